import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.errors import ConfigError
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rm.labels import BINARY, level_labels
from axiomrm.rm.readout import NEVER, Reading, Rule, Share, counting, read_out
from axiomrm.rm.sampling import HALF_WIDTH, decided, precise, round_seed, rounds, sample

LEVELS = level_labels([(0.0, ""), (0.5, ""), (1.0, "")])
Found = Reading | Failed

slow_machines = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def said(**p: float) -> Reading:
    return Reading({k.removeprefix("_"): math.log(v) for k, v in p.items() if v > 0})


def share(**q: float) -> Share:
    return Share({k.removeprefix("_"): v for k, v in q.items()}, 1.0)


def meaning(verdict: Verdict) -> str:
    return verdict.label if isinstance(verdict, Scored) else verdict.status


@pytest.mark.parametrize(
    ("k", "expected"), [(1, [1]), (2, [2]), (3, [2, 1]), (5, [3, 1, 1]), (16, [9, 4, 2, 1])]
)
def test_rounds_start_with_the_smallest_majority(k: int, expected: list[int]) -> None:
    assert rounds(k) == expected


@slow_machines
@given(st.integers(1, 200))
def test_rounds_sum_to_k_and_their_seeds_differ(k: int) -> None:
    assert sum(rounds(k)) == k and min(rounds(k)) >= 1
    seeds = [round_seed(7, n) for n in range(len(rounds(k)))]
    assert len(set(seeds)) == len(seeds) and seeds[0] == 7


def test_a_lead_that_cannot_be_caught_up_decides_and_a_smaller_one_does_not() -> None:
    # summed lead of Y after three: .8 + .8 + .6 = 2.2
    three = [share(Y=0.9, N=0.1, X=0), share(Y=0.9, N=0.1, X=0), share(Y=0.8, N=0.2, X=0)]
    assert decided(three, 2, BINARY, Rule())
    assert not decided(three, 3, BINARY, Rule())


def test_x_decides_at_its_threshold_whatever_follows() -> None:
    three = [share(Y=0.1, N=0.0, X=0.9)] * 3
    assert decided(three, 2, BINARY, Rule())  # 2.7 / 5 is above one half
    assert not decided(three, 3, BINARY, Rule())  # 2.7 / 6 is below, 5.7 / 6 above
    doubtful = [share(Y=0.7, N=0.0, X=0.3)] * 3
    assert not decided(doubtful, 2, BINARY, Rule())  # 2.9 / 5 could still be reached
    assert decided(doubtful, 2, BINARY, Rule(x_threshold=NEVER))


def test_precise_waits_for_three_and_uses_students_t() -> None:
    from scipy.special import stdtrit

    v = [0.6, 0.62, 0.65]
    half = float(stdtrit(2, 0.95)) * 0.0251661 / math.sqrt(3)
    assert half < HALF_WIDTH
    shares = [share(Y=x, N=1 - x, X=0) for x in v]
    assert precise(shares, BINARY) and not precise(shares[:2], BINARY)
    wider = [share(Y=x, N=1 - x, X=0) for x in (0.6, 0.62, 0.67)]  # half-width .061
    assert not precise(wider, BINARY)


weights = st.tuples(*[st.integers(0, 12)] * 4).filter(lambda w: sum(w) > 0)


def one(w: tuple[int, ...], mass: float) -> Reading:
    total = sum(w) / mass
    return said(_0=w[0] / total, _1=w[1] / total, _2=w[2] / total, X=w[3] / total)


readings = st.one_of(
    st.builds(one, weights, st.sampled_from([0.5, 1.0])),
    st.just(Failed(kind="truncated")),
)


@slow_machines
@given(st.lists(readings, min_size=9, max_size=9), st.integers(2, 9), st.sampled_from([0.5, NEVER]))
def test_stopping_when_decided_gives_the_label_of_all_samples(
    every: list[Found], k: int, threshold: float
) -> None:
    rule = Rule(min_mass=0.8, x_threshold=threshold)
    taken = list(every[:k])

    def draw(counts: dict[int, int], number: int) -> dict[int, list[Found]]:
        return {i: [taken.pop(0) for _ in range(n)] for i, n in counts.items()}

    (early,) = sample(draw, [k], [LEVELS], rule, stop="decided")
    labels = []
    for found in (early, every[:k]):
        good = [r for r in found if isinstance(r, Reading)]
        labels.append(meaning(read_out(good, LEVELS, rule)) if good else "failed")
    assert labels[0] == labels[1]


@slow_machines
@given(st.lists(st.sampled_from("YNX?"), min_size=7, max_size=7), st.integers(2, 7))
def test_sampled_labels_stop_early_without_another_outcome(written: list[str], k: int) -> None:
    rule = Rule(readout="sampled")
    every = [Reading(label=w) for w in written[:k]]
    taken = list(every)

    def draw(counts: dict[int, int], number: int) -> dict[int, list[Found]]:
        return {0: [taken.pop(0) for _ in range(counts[0])]}

    (early,) = sample(draw, [k], [BINARY], rule, stop="decided")
    good = [r for r in early if isinstance(r, Reading)]
    assert meaning(read_out(good, BINARY, rule)) == meaning(read_out(every, BINARY, rule))


def test_unanimous_samples_stop_at_the_majority_and_a_split_goes_on() -> None:
    def run(labels: str) -> int:
        taken = list(labels)

        def draw(counts: dict[int, int], number: int) -> dict[int, list[Found]]:
            return {0: [Reading(label=taken.pop(0)) for _ in range(counts[0])]}

        (found,) = sample(draw, [len(labels)], [BINARY], Rule(readout="sampled"), stop="decided")
        return len(found)

    assert (run("YYYYYYY"), run("YNYNYNY"), run("YYYNYYY")) == (4, 7, 6)


def test_readings_that_do_not_count_decide_nothing() -> None:
    assert counting([said(Y=0.3, N=0.1, X=0.1)], BINARY, Rule()) == []
    assert not decided([], 1, BINARY, Rule())


@pytest.fixture(scope="module")
def judge(tiny_llama: Any, tiny_tokenizer: Any) -> RewardModel:
    return RewardModel.from_model(
        tiny_llama, tiny_tokenizer, min_mass=0.0, mode="critique", max_notes_tokens=4, untrained=True
    )


def asked(n: int) -> list[VerdictRequest]:
    talk = Trajectory(
        messages=(Message(role="user", content="hi"), Message(role="assistant", content="Yes."))
    )
    return [VerdictRequest(talk, Criterion(f"c{i}", f"Is it {i}?")) for i in range(n)]


def test_stopping_early_leaves_samples_out_and_changes_none(judge: RewardModel) -> None:
    full = judge.with_settings(n_samples=5).verdicts(asked(4))
    early = judge.with_settings(n_samples=5, stop="decided").verdicts(asked(4))
    assert all(isinstance(v, Scored) and v.n == 5 and v.spread is not None for v in full)
    assert [meaning(v) for v in full] == [meaning(v) for v in early]
    for a, b in zip(full, early, strict=True):
        assert isinstance(a, Scored) and isinstance(b, Scored)
        assert b.n in (3, 4, 5)
        assert a.critique.startswith(b.critique)


def test_a_direct_reading_is_taken_once_whatever_the_number_of_samples(judge: RewardModel) -> None:
    (found,) = judge.with_settings(mode="direct", n_samples=5).verdicts(asked(1))
    assert isinstance(found, Scored | CannotAssess)
    assert not isinstance(found, Scored) or (found.n, found.spread) == (1, None)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"n_samples": 0}, "n_samples 0"),
        ({"n_samples": 2.5}, "n_samples 2.5"),
        ({"n_samples": True}, "n_samples True"),
        ({"stop": "soon"}, "stop 'soon'"),
        ({"samples": 2}, "'samples'"),
    ],
)
def test_settings_that_cannot_be_used_are_named(
    judge: RewardModel, changes: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        judge.with_settings(**changes)
