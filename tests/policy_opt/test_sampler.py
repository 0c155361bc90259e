"""Sampling with one cache across turns equals a plain forward over the whole row."""

from typing import Any

import numpy as np
import pytest
import torch

from axiomrm.policy_opt.logprobs import selected_logprobs
from axiomrm.policy_opt.sampler import Generation, TransformersSampler

PROMPTS = [
    [[2, 3, 8, 4], [3, 9, 9, 9, 4], [3, 10, 4]],
    [[2, 3, 9, 9, 9, 9, 4], [3, 8, 4], [3, 11, 11, 4]],
    [[2, 4], [4], [4]],
]


def uniforms(row: int, turn: int, n: int = 6) -> Any:
    return np.random.default_rng((row, turn)).random(n)


def play(model: Any, rows: list[int], temperature: float = 1.0) -> dict[int, list[Generation]]:
    live = TransformersSampler(model, frozenset({1, 5, 6, 7}), temperature=temperature).open(len(rows))
    out: dict[int, list[Generation]] = {row: [] for row in rows}
    for turn in range(3):
        turns = live.turn([PROMPTS[row][turn] for row in rows], [uniforms(row, turn) for row in rows])
        for row, generation in zip(rows, turns, strict=True):
            out[row].append(generation)
    return out


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_behaviour_logprobs_equal_a_fresh_forward(toy: Any, temperature: float) -> None:
    model = toy.model()
    for row, generations in play(model, [0, 1, 2], temperature).items():
        ids: list[int] = []
        places: list[int] = []
        for prompt, generation in zip(PROMPTS[row], generations, strict=True):
            ids += prompt
            places += range(len(ids), len(ids) + len(generation.token_ids))
            ids += generation.token_ids
        batch = torch.tensor([ids])
        rows = torch.zeros(len(places), dtype=torch.long)
        got = selected_logprobs(model, batch, torch.ones_like(batch), rows, torch.tensor(places), temperature)
        said = torch.tensor([p for g in generations for p in g.logprobs])
        torch.testing.assert_close(got.logp_N.detach(), said, atol=1e-5, rtol=0)


def test_samples_do_not_depend_on_who_else_is_in_the_batch(toy: Any) -> None:
    model = toy.model()
    together = play(model, [0, 1, 2])
    for row in range(3):
        assert [g.token_ids for g in play(model, [row])[row]] == [g.token_ids for g in together[row]]


def test_dropping_rows_leaves_the_others_as_they_were(toy: Any) -> None:
    model = toy.model()
    alone = play(model, [1])[1]
    live = TransformersSampler(model, frozenset({1, 5, 6, 7})).open(3)
    live.turn([PROMPTS[r][0] for r in range(3)], [uniforms(r, 0) for r in range(3)])
    live.keep([1])
    second = live.turn([PROMPTS[1][1]], [uniforms(1, 1)])
    assert second[0].token_ids == alone[1].token_ids


def test_a_fork_forgets_the_rows_past(toy: Any) -> None:
    model = toy.model()
    live = TransformersSampler(model, frozenset({1})).open(2)
    live.turn([[2, 3, 8, 4], [2, 3, 9, 4]], [uniforms(0, 0), uniforms(1, 0)])
    live.fork(0)
    forked = live.turn([[2, 3, 10, 4], [3, 9, 4]], [uniforms(0, 1), uniforms(1, 1)])[0]
    fresh = TransformersSampler(model, frozenset({1})).open(1).turn([[2, 3, 10, 4]], [uniforms(0, 1)])[0]
    assert forked.token_ids == fresh.token_ids
    np.testing.assert_allclose(forked.logprobs, fresh.logprobs, atol=1e-5)


def test_the_terminator_is_part_of_the_action_and_a_length_stop_says_so(toy: Any) -> None:
    model = toy.model()
    everything = TransformersSampler(model, frozenset(range(16))).open(1).turn([[2, 4]], [uniforms(0, 0)])[0]
    assert len(everything.token_ids) == 1 and everything.stop_reason == "stop"
    nothing = TransformersSampler(model, frozenset()).open(1).turn([[2, 4]], [uniforms(0, 0)])[0]
    assert len(nothing.token_ids) == 6 and nothing.stop_reason == "length"


def test_draws_follow_the_models_distribution(toy: Any) -> None:
    model = toy.model()
    n = 4000
    live = TransformersSampler(model, frozenset(range(16))).open(1)
    u = np.random.default_rng(0).random(n)
    rows = TransformersSampler(model, frozenset(range(16))).open(n)
    drawn = [g.token_ids[0] for g in rows.turn([[2, 4]] * n, [u[i : i + 1] for i in range(n)])]
    with torch.no_grad():
        p = model(input_ids=torch.tensor([[2, 4]])).logits[0, -1].softmax(0).numpy()
    counts = np.bincount(drawn, minlength=16) / n
    assert np.abs(counts - p).max() < 4 * np.sqrt(0.25 / n)
    assert live is not None
