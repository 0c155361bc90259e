"""Sampling with one cache across turns equals a plain forward over the whole row."""

from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPTJConfig, GPTJForCausalLM

from axiomrm.policy_opt.engines import transformers as sampling
from axiomrm.policy_opt.engines.live_rows import LiveRows
from axiomrm.policy_opt.engines.packed_reader import reads_packed
from axiomrm.policy_opt.engines.transformers import Generation, TransformersSampler
from axiomrm.policy_opt.logprobs import selected_logprobs

PROMPTS = [
    [[2, 3, 8, 4], [3, 9, 9, 9, 4], [3, 10, 4]],
    [[2, 3, 9, 9, 9, 9, 4], [3, 8, 4], [3, 11, 11, 4]],
    [[2, 4], [4], [4]],
]


def tiny_gptj() -> Any:
    """Computes its attention by itself, so its rows are padded."""
    torch.manual_seed(0)
    config = GPTJConfig(
        vocab_size=16, n_embd=32, n_layer=2, n_head=4, n_positions=256, rotary_dim=8, initializer_range=0.2,
        bos_token_id=2, eos_token_id=1,
    )  # fmt: skip
    return GPTJForCausalLM(config).eval()


@pytest.fixture(params=["packed", "padded"])
def model(request: pytest.FixtureRequest, toy: Any) -> Any:
    return toy.model() if request.param == "packed" else tiny_gptj()


def uniforms(row: int, turn: int, n: int = 6) -> Any:
    return np.random.default_rng((row, turn)).random(n)


def turn(live: LiveRows, new_ids: dict[int, list[int]], draws: dict[int, Any]) -> dict[int, Generation]:
    """A turn of each of these rows, all of them to their end."""
    for row, ids in new_ids.items():
        live.feed(row, ids, draws[row])
    out: dict[int, Generation] = {}
    while ended := live.step():
        out |= ended
    return out


def one(model: Any, ends: Any, ids: list[int]) -> Generation:
    return turn(TransformersSampler(model, frozenset(ends)).open(1), {0: ids}, {0: uniforms(0, 0)})[0]


def play(model: Any, rows: list[int], temperature: float = 1.0) -> dict[int, list[Generation]]:
    """Three turns of each row; a row goes on as soon as its turn ends."""
    live = TransformersSampler(model, frozenset({1, 5, 6, 7}), temperature=temperature).open(len(rows))
    out: dict[int, list[Generation]] = {row: [] for row in rows}
    for place, row in enumerate(rows):
        live.feed(place, PROMPTS[row][0], uniforms(row, 0))
    while ended := live.step():
        for place, generation in ended:
            row = rows[place]
            out[row].append(generation)
            if len(out[row]) < 3:
                live.feed(place, PROMPTS[row][len(out[row])], uniforms(row, len(out[row])))
            else:
                live.drop(place)
    return out


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_behaviour_logprobs_equal_a_fresh_forward(model: Any, temperature: float) -> None:
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


def test_samples_do_not_depend_on_who_else_is_in_the_batch(model: Any) -> None:
    together = play(model, [0, 1, 2])
    for row in range(3):
        assert [g.token_ids for g in play(model, [row])[row]] == [g.token_ids for g in together[row]]


def test_dropping_rows_leaves_the_others_as_they_were(model: Any) -> None:
    alone = play(model, [2])[2]
    live = TransformersSampler(model, frozenset({1, 5, 6, 7})).open(3)
    turn(live, {r: PROMPTS[r][0] for r in range(3)}, {r: uniforms(r, 0) for r in range(3)})
    live.drop(0)
    live.drop(1)
    assert turn(live, {2: PROMPTS[2][1]}, {2: uniforms(2, 1)})[2].token_ids == alone[1].token_ids


def test_a_row_that_is_not_fed_waits(model: Any) -> None:
    alone = play(model, [0])[0]
    live = TransformersSampler(model, frozenset({1, 5, 6, 7})).open(3)
    turn(live, {r: PROMPTS[r][0] for r in range(3)}, {r: uniforms(r, 0) for r in range(3)})
    turn(live, {r: PROMPTS[r][1] for r in (1, 2)}, {r: uniforms(r, 1) for r in (1, 2)})
    assert live.step() == []
    assert turn(live, {0: PROMPTS[0][1]}, {0: uniforms(0, 1)})[0].token_ids == alone[1].token_ids


def test_a_fork_forgets_the_rows_past(model: Any) -> None:
    live = TransformersSampler(model, frozenset({1})).open(2)
    turn(live, {0: [2, 3, 8, 4], 1: [2, 3, 9, 4]}, {0: uniforms(0, 0), 1: uniforms(1, 0)})
    live.fork(0)
    forked = turn(live, {0: [2, 3, 10, 4], 1: [3, 9, 4]}, {0: uniforms(0, 0), 1: uniforms(1, 1)})[0]
    fresh = one(model, {1}, [2, 3, 10, 4])
    assert forked.token_ids == fresh.token_ids
    np.testing.assert_allclose(forked.logprobs, fresh.logprobs, atol=1e-5)


def test_the_terminator_is_part_of_the_action_and_a_length_stop_says_so(model: Any) -> None:
    everything = one(model, range(16), [2, 4])
    assert len(everything.token_ids) == 1 and everything.stop_reason == "stop"
    nothing = one(model, (), [2, 4])
    assert len(nothing.token_ids) == 6 and nothing.stop_reason == "length"


def test_draws_follow_the_models_distribution(model: Any) -> None:
    n = 4000
    u = np.random.default_rng(0).random(n)
    rows = TransformersSampler(model, frozenset(range(16))).open(n)
    drawn = turn(rows, {i: [2, 4] for i in range(n)}, {i: u[i : i + 1] for i in range(n)})
    with torch.no_grad():
        p = model(input_ids=torch.tensor([[2, 4]])).logits[0, -1].softmax(0).numpy()
    counts = np.bincount([drawn[i].token_ids[0] for i in range(n)], minlength=16) / n
    assert np.abs(counts - p).max() < 4 * np.sqrt(0.25 / n)


def test_rows_are_packed_where_the_model_takes_its_attention_from_transformers(toy: Any) -> None:
    assert reads_packed(toy.model())
    assert not reads_packed(tiny_gptj())


def test_a_row_whose_turn_ends_waits_for_no_other(toy: Any) -> None:
    model, passes = toy.model(), []
    live = TransformersSampler(model, frozenset()).open(2)
    model.get_decoder().register_forward_hook(lambda *_: passes.append(1))
    lengths = {0: [6, 1, 3], 1: [1, 6, 3]}
    for row in lengths:
        live.feed(row, PROMPTS[row][0], uniforms(row, 0, lengths[row].pop(0)))
    while ended := live.step():
        for row, _ in ended:
            if lengths[row]:
                live.feed(row, [3, 4], uniforms(row, 1, lengths[row].pop(0)))
    assert len(passes) == 10


def test_prompts_longer_than_a_pass_take_several(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = play(model, [0, 1, 2])
    monkeypatch.setattr(sampling, "PASS_TOKENS", 3)
    for row, generations in play(model, [0, 1, 2]).items():
        assert [g.token_ids for g in generations] == [g.token_ids for g in whole[row]]


def test_the_model_is_left_as_it_was(model: Any) -> None:
    model.train()
    before = model.config._attn_implementation
    play(model, [0, 1])
    assert model.config._attn_implementation == before
    assert all(module.training and "forward" not in module.__dict__ for module in model.modules())
