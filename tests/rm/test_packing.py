import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.rm.engines.budget import Budget
from axiomrm.rm.engines.packing import Ids, buckets, families, rows_of, shared_length

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple), min_size=1, max_size=12)


def read_back(sequences: list[Ids], *, share: bool, limit: int, min_shared: float) -> dict[int, list[int]]:
    """What the last token of each prompt sees, trunk and own branch, in order of position."""
    seen: dict[int, list[int]] = {}
    for family in families(sequences, share=share, min_shared=min_shared):
        columns = len(family.trunk) + 2  # two columns of padding behind the trunk
        for row in rows_of(sequences, family, number=0, limit=limit):
            tokens, positions, own = row.tokens(), row.positions(), row.own_mask()
            mask = np.hstack([np.tile(np.arange(columns) < row.base, (row.size, 1)), own])
            held = [*family.trunk, -1, -1, *tokens]
            places = [*range(len(family.trunk)), -1, -1, *positions]
            for j, leaf in enumerate(row.leaves, len(row.ids)):
                visible = sorted(np.flatnonzero(mask[j]), key=lambda k: places[k])
                assert [places[k] for k in visible] == list(range(len(visible)))
                assert leaf.prompt not in seen
                seen[leaf.prompt] = [held[k] for k in visible]
    return seen


@given(SEQUENCES, st.booleans(), st.sampled_from([0, 3, 1000]), st.sampled_from([0.0, 0.5, 1.0]))
def test_every_last_token_sees_exactly_its_prompt(
    sequences: list[Ids], share: bool, limit: int, min_shared: float
) -> None:
    seen = read_back(sequences, share=share, limit=limit, min_shared=min_shared)
    assert seen == {i: list(s) for i, s in enumerate(sequences)}


def test_the_last_turn_s_prefix_is_the_trunk_and_earlier_turns_leave_it_early() -> None:
    first, second = tuple(range(10, 20)), tuple(range(20, 30))
    prompts = [(*first, 1, 2), (*first, 1, 3), (*first, *second, 1, 4), (*first, *second, 1, 5)]
    (family,) = families(prompts)
    assert family.trunk == (*first, *second, 1)
    early, late = rows_of(prompts, family, number=0, limit=100)
    assert early.tokens() == [1, 2, 3]  # the first turn's shared 1 once, then the last tokens
    assert early.positions() == [10, 11, 11]
    assert (late.tokens(), late.positions()) == ([4, 5], [21, 21])
    assert (early.base, late.base) == (10, 21)


def test_samples_of_one_prompt_cost_one_token_each() -> None:
    prompt = tuple(range(50))
    (family,) = families([prompt] * 4)
    assert family.trunk == prompt[:-1]
    (row,) = rows_of([prompt] * 4, family, number=0, limit=100)
    assert row.tokens() == [49] * 4


def test_strangers_and_prompts_that_are_not_to_share_stand_alone() -> None:
    assert [f.trunk for f in families([(1, 2, 3), (4, 5), (1, 9, 9, 9, 9)])] == [()] * 3
    assert [f.members for f in families([(1, 2, 3), (1, 2, 4)], share=False)] == [[0], [1]]


def test_a_row_closes_at_its_limit() -> None:
    trunk = tuple(range(100))
    prompts = [(*trunk, 200 + i, *range(9)) for i in range(12)]  # branches of ten tokens
    (family,) = families(prompts)
    assert [row.size for row in rows_of(prompts, family, number=0, limit=40)] == [40] * 3
    assert [row.size for row in rows_of(prompts, family, number=0, limit=1)] == [10] * 12
    assert [row.size for row in rows_of(prompts, family, number=0, limit=999, leaves=4)] == [40] * 3


def test_the_cheapest_row_balances_masked_pairs_against_calls() -> None:
    budget = Budget()
    # sqrt(4 tokens a row * balance 900)
    assert budget.row_tokens(900.0, "cpu") == 60
    assert budget.row_tokens(1e9, "cpu") == budget.batch_tokens
    assert Budget(branch_tokens=7).row_tokens(900.0, "cpu") == 7
    assert Budget(branch_tokens=7).halved().branch_tokens == 3


@given(st.lists(st.integers(0, 1), max_size=9).map(tuple), st.lists(st.integers(0, 1), max_size=9).map(tuple))
def test_shared_length_is_the_common_prefix(a: Ids, b: Ids) -> None:
    n = shared_length(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


@given(st.lists(st.integers(1, 50), max_size=30))
def test_buckets_hold_every_row_once_within_budget(sizes: list[int]) -> None:
    batches = buckets(sizes, max_tokens=100, max_square=3000)
    assert sorted(i for batch in batches for i in batch) == list(range(len(sizes)))
    for batch in batches:
        longest = max(sizes[i] for i in batch)
        assert len(batch) == 1 or (len(batch) * longest <= 100 and len(batch) * longest**2 <= 3000)
