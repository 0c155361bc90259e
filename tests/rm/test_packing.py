import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.rm.engines.packing import buckets, pack, shared_length

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple), min_size=1, max_size=12)


def read_back(sequences: list[tuple[int, ...]], branches: int, shared: float) -> dict[int, list[int]]:
    """What the last token of each prompt sees, in order of position."""
    seen: dict[int, list[int]] = {}
    for row in pack(sequences, max_branches=branches, min_shared=shared):
        tokens, positions, mask = row.tokens(), row.positions(), row.mask()
        for j, (index, _, _) in enumerate(row.ends, len(row.ids)):
            visible = np.flatnonzero(mask[j])
            order = sorted(visible, key=lambda k: positions[k])
            assert [positions[k] for k in order] == list(range(len(order)))
            assert index not in seen
            seen[index] = [tokens[k] for k in order]
    return seen


@given(SEQUENCES, st.sampled_from([0, 3, 1000]), st.sampled_from([0.0, 0.5, 1.0]))
def test_every_last_token_sees_exactly_its_prompt(
    sequences: list[tuple[int, ...]], branches: int, shared: float
) -> None:
    seen = read_back(sequences, branches, shared)
    assert seen == {i: list(s) for i, s in enumerate(sequences)}


def test_a_shared_trunk_is_held_once() -> None:
    trunk = tuple(range(10, 20))
    rows = pack([(*trunk, 1, 2), (*trunk, 1, 3), (*trunk, 4)], max_branches=100)
    assert len(rows) == 1
    assert rows[0].size == 10 + 1 + 3  # trunk, the shared 1, three last tokens
    assert rows[0].tokens()[-3:] == [2, 3, 4]  # last tokens stand at the end


def test_no_sharing_gives_a_row_each() -> None:
    rows = pack([(1, 2, 3), (1, 2, 4), (1, 2)], max_branches=0)
    assert sorted(row.size for row in rows) == [2, 3, 3]


def test_a_row_closes_where_another_prompt_would_cost_more_than_a_new_row() -> None:
    trunk = tuple(range(100))
    prompts = [(*trunk, 200 + i, *range(10)) for i in range(40)]
    full = 110 + (30 * 110 + 110**2) ** 0.5  # L + sqrt(balance L + L^2), L without the last token
    sizes = [row.size for row in pack(prompts, max_branches=10**6, balance=30)]
    assert max(sizes) <= full < max(sizes) + 11
    assert len(pack(prompts, max_branches=10**6)) == 1


@given(st.lists(st.integers(0, 1), max_size=9).map(tuple), st.lists(st.integers(0, 1), max_size=9).map(tuple))
def test_shared_length_is_the_common_prefix(a: tuple[int, ...], b: tuple[int, ...]) -> None:
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
