"""Tree packing reads like single rows: equal losses, equal gradients, right masks."""

import random
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.rm.prompt import JudgePrompter
from axiomrm.rm.training.config import StageConfig
from axiomrm.rm.training.losses import completion_loss, mean_loss, plan_packing, reads_trees, trained_tokens
from axiomrm.rm.training.packing import TreeRow, batches, collate, single_rows, tree_rows
from axiomrm.rm.training.row_set import IGNORED, JudgeRow
from axiomrm.rm.training.rows import make_rows


def row(ids: list[int], start: int, unit: str = "u", weight: float = 1.0) -> JudgeRow:
    mask = (0,) * start + (1,) * (len(ids) - start)
    return JudgeRow(tuple(ids), mask, start, "direct", unit=unit, weight=weight)


def path_of(tree: TreeRow, index: int) -> list[int]:
    """Tokens that token ``index`` sees, itself last."""
    return [tree.ids[i] for i, on in enumerate(tree.mask()[index]) if on]


def test_two_branches_share_their_prefix_and_do_not_see_each_other() -> None:
    # trunk 1 2 3; branch a: 4 5 -> answer 6; branch b attaches after 1 2: 7 8 -> answer 9
    (tree,) = tree_rows([row([1, 2, 3, 4, 5, 6], 5), row([1, 2, 7, 8, 9], 4)], max_tokens=99)
    assert tree.ids == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert tree.positions == [0, 1, 2, 3, 4, 5, 2, 3, 4]
    assert tree.labels == [IGNORED] * 5 + [6] + [IGNORED] * 2 + [9]
    assert path_of(tree, 5) == [1, 2, 3, 4, 5, 6]
    assert path_of(tree, 8) == [1, 2, 7, 8, 9]


def test_trained_tokens_and_the_token_before_them_are_never_shared() -> None:
    # the same prompt with two answers: soft labels
    (tree,) = tree_rows([row([1, 2, 3, 4], 3), row([1, 2, 3, 5], 3)], max_tokens=99)
    assert tree.ids == [1, 2, 3, 4, 3, 5]
    assert tree.labels == [IGNORED, IGNORED, IGNORED, 4, IGNORED, 5]
    assert path_of(tree, 5) == [1, 2, 3, 5]


def test_the_label_counts_more_than_the_notes_around_it_wherever_the_row_was_cut() -> None:
    # 1 2 shared; then notes 4 5, the label 6 and the end 7
    noted = JudgeRow((1, 2, 3, 4, 5, 6, 7), (0, 0, 0, 1, 1, 1, 1), 5, "critique", unit="u", label_weight=10)
    direct = JudgeRow((1, 2, 9, 6, 7), (0, 0, 0, 1, 1), 3, "direct", unit="u", weight=2, label_weight=10)
    (tree,) = tree_rows([noted, direct], max_tokens=99)
    assert dict(zip(tree.ids[3:7], tree.weights[3:7], strict=True)) == {4: 1, 5: 1, 6: 10, 7: 1}
    assert tree.ids[7:] == [9, 6, 7] and tree.weights[7:] == [0, 20, 2]


def test_other_units_strangers_and_full_trees_start_anew() -> None:
    alike = [1, 2, 3, 4]
    assert len(tree_rows([row([*alike, 5], 4), row([*alike, 6], 4, unit="v")], max_tokens=99)) == 2
    assert len(tree_rows([row([*alike, 5], 4), row([*alike, 6], 4)], max_tokens=6)) == 2
    assert len(tree_rows([row([*alike, 5], 4), row([*alike, 6], 4)], max_tokens=7)) == 1
    assert (
        len(tree_rows([row([1, 2, 3, 4, 5], 4), row([1, 9, 8, 7, 6], 4)], max_tokens=99, min_shared=0.5)) == 2
    )


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=9), min_size=1, max_size=8), st.integers(9, 40)
)
def test_every_row_is_found_whole_on_its_own_path(prompts: list[list[int]], limit: int) -> None:
    rows = [row([*ids, 90 + i], len(ids)) for i, ids in enumerate(prompts)]
    trees = tree_rows(rows, max_tokens=limit, min_shared=0.2)
    assert sum(tree.rows for tree in trees) == len(rows)
    found = []
    for tree in trees:
        for index, label in enumerate(tree.labels):
            if label != IGNORED:
                assert tree.positions[index] == len(path_of(tree, index)) - 1
                assert tree.ids[index - 1] == path_of(tree, index)[-2]  # the loss reads the token before
                found.append(tuple(path_of(tree, index)))
    assert sorted(found) == sorted(r.input_ids for r in rows)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(20, 120), st.integers(0, 3))
def test_batches_hold_every_row_once_within_their_budget(sizes: list[int], limit: int, seed: int) -> None:
    trees = single_rows([row(list(range(n + 1)), n) for n in sizes])
    made = batches(trees, max_tokens=limit, seed=seed)
    assert sorted(id(tree) for batch in made for tree in batch) == sorted(map(id, trees))
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(tree.size for tree in batch) <= limit
    assert [[t.size for t in b] for b in made] == [
        [t.size for t in b] for b in batches(trees, max_tokens=limit, seed=seed)
    ]


def loss_and_gradient(model: Any, trees: list[TreeRow], *, packed: bool) -> tuple[float, int, torch.Tensor]:
    model.zero_grad()
    inputs = collate(trees, 0, packed=packed)
    loss = completion_loss(model, inputs)
    torch.autograd.backward(loss)
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return loss.item(), trained_tokens(inputs), gradient


@pytest.mark.parametrize("shape", ["llama", "qwen"])
@pytest.mark.parametrize("weighted", [False, True])
def test_packed_rows_have_the_loss_and_the_gradient_of_single_ones(
    tokenizer: Any, shape: str, weighted: bool, tiny: Any, examples: Any
) -> None:
    model = tiny(shape)
    rows = make_rows(examples(0) + examples(1), JudgePrompter(tokenizer, template="compact")).rows
    if weighted:
        rows = [
            JudgeRow(r.input_ids, r.completion_mask, r.label_at, r.mode, unit=r.unit, weight=1 + i % 3)
            for i, r in enumerate(rows)
        ]
    trees = tree_rows(rows, max_tokens=4096)
    assert len(trees) == 2
    tokens = sum(tree.size for tree in trees)
    assert tokens < 0.6 * sum(len(r.input_ids) for r in rows)
    plain, n, gradient = loss_and_gradient(model, single_rows(rows), packed=False)
    packed, m, packed_gradient = loss_and_gradient(model, trees, packed=True)
    assert n == m
    assert packed == pytest.approx(plain, rel=1e-5)
    torch.testing.assert_close(packed_gradient, gradient, rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))


def test_the_loss_is_that_of_the_model_itself(tokenizer: Any, tiny: Any, examples: Any) -> None:
    model = tiny("llama")
    rows = make_rows(examples(0)[:3], JudgePrompter(tokenizer, template="compact")).rows
    inputs = collate(single_rows(rows), 0, packed=False)
    theirs = model(**{k: v for k, v in inputs.items() if k != "label_weights"}).loss
    ours = completion_loss(model, inputs) / trained_tokens(inputs)
    assert ours.item() == pytest.approx(theirs.item(), rel=1e-5)


def test_a_model_with_a_sliding_window_trains_on_plain_rows(tokenizer: Any, tiny: Any, examples: Any) -> None:
    rows = make_rows(examples(0), JudgePrompter(tokenizer, template="compact")).rows
    assert reads_trees(tiny("llama"), tokenizer, rows)
    mistral = tiny("mistral")  # window of 8 tokens: a packed row has other neighbours
    assert not reads_trees(mistral, tokenizer, rows)
    packed, trees = plan_packing(mistral, tokenizer, rows, StageConfig())
    assert not packed and len(trees) == len(rows)
    with pytest.raises(Exception, match="packing 'tree'"):
        plan_packing(mistral, tokenizer, rows, StageConfig(packing="tree"))


@pytest.mark.parametrize("seed", [0, 1])
def test_the_mean_loss_does_not_depend_on_how_rows_are_batched(
    tokenizer: Any, tiny: Any, examples: Any, seed: int
) -> None:
    rows = make_rows(examples(seed), JudgePrompter(tokenizer, template="compact")).rows
    random.Random(seed).shuffle(rows)
    model = tiny("llama")
    one = mean_loss(model, tokenizer, rows, StageConfig(batch_tokens=4096))
    other = mean_loss(model, tokenizer, rows, StageConfig(batch_tokens=300, packing="off"))
    assert one == pytest.approx(other, rel=1e-5)
    assert mean_loss(model, tokenizer, [], StageConfig()) is None
