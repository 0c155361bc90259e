import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rm.gating import ALWAYS, GatePair, between, choose_gate, gated, verdict_confidence

slow_machines = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def scored(p: float, label: str = "", mode: Any = "direct") -> Scored:
    return Scored(
        value=p, label=label or ("Y" if p >= 0.5 else "N"), distribution={"Y": p, "N": 1 - p}, mode=mode
    )


def test_confidence_worked_by_hand() -> None:
    assert verdict_confidence(scored(0.5)) == 0
    assert verdict_confidence(scored(0.9)) == pytest.approx(0.8)
    three = Scored(value=0.5, label="1", distribution={"0": 0.2, "1": 0.6, "2": 0.2})
    assert verdict_confidence(three) == pytest.approx((3 * 0.6 - 1) / 2)
    assert verdict_confidence(CannotAssess(p_na=0.9)) == pytest.approx(0.8)
    assert verdict_confidence(Failed(kind="low_mass")) == 0


@pytest.fixture(scope="module")
def judge(tiny_llama: Any, tiny_tokenizer: Any) -> RewardModel:
    return RewardModel.from_model(
        tiny_llama, tiny_tokenizer, min_mass=0.0, max_notes_tokens=4, untrained=True
    )


def asked(n: int = 6) -> list[VerdictRequest]:
    talk = Trajectory(
        messages=(Message(role="user", content="hi"), Message(role="assistant", content="Yes."))
    )
    return [VerdictRequest(talk, Criterion(f"c{i}", f"Is it {'so ' * i}?")) for i in range(n)]


def close(a: Sequence[Verdict], b: Sequence[Verdict]) -> bool:
    """Equal up to what the make-up of a batch does to a float."""

    def plain(verdicts: Sequence[Verdict]) -> list[Any]:
        rows: list[Any] = []
        for verdict in verdicts:
            assert isinstance(verdict, Scored)
            rest = verdict.model_dump(exclude={"value", "distribution", "p_na", "captured_mass"})
            rows.append((rest, pytest.approx(verdict.value, abs=1e-5)))
        return rows

    return [(r, v.expected) for r, v in plain(a)] == plain(b)


def test_a_gate_of_zero_is_direct_mode_and_one_above_one_is_critique_mode(judge: RewardModel) -> None:
    requests = asked()
    assert close(
        judge.with_settings(mode="gated", gate=0.0).verdicts(requests),
        judge.with_settings(mode="direct").verdicts(requests),
    )
    critiques = judge.with_settings(mode="critique").verdicts(requests)
    assert close(judge.with_settings(mode="gated", gate=1.5).verdicts(requests), critiques)


def test_between_them_the_unsure_answers_get_a_critique(judge: RewardModel) -> None:
    requests = asked()
    direct = judge.with_settings(mode="direct").verdicts(requests)
    sure = sorted(verdict_confidence(v) for v in direct)
    gate = (sure[2] + sure[3]) / 2
    found = judge.with_settings(mode="gated", gate=gate).verdicts(requests)
    modes = [v.mode for v in found if isinstance(v, Scored)]
    assert modes == ["critique" if verdict_confidence(v) < gate else "direct" for v in direct]
    assert modes.count("critique") == 3


def test_a_gated_judge_is_another_judge_and_leaves_the_mode_by_name(judge: RewardModel) -> None:
    one, two = judge.with_settings(mode="gated", gate=0.3), judge.with_settings(mode="gated", gate=0.4)
    assert len({judge.judge_revision, one.judge_revision, two.judge_revision}) == 3
    assert (one.mode, one.with_settings(mode="critique").mode) == ("gated", "critique")
    assert one.with_settings(mode="direct").judge_revision == judge.judge_revision


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"mode": "gated"}, "needs gate"),
        ({"mode": "gated", "gate": -0.1}, "gate -0.1"),
        ({"mode": "gated", "gate": float("nan")}, "gate nan"),
        ({"mode": "gated", "gate": 0.5, "readout": "sampled"}, "sampled"),
        ({"mode": "quick"}, "'quick'"),
    ],
)
def test_gates_that_cannot_be_used_are_named(judge: RewardModel, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        judge.with_settings(**changes)


def test_a_failed_direct_answer_is_unsure_and_a_failed_critique_stays_missing() -> None:
    request = asked(1)[0]
    verdict: dict[str, Verdict] = {"good": scored(0.9, mode="critique"), "none": Failed(kind="truncated")}

    def fails(_: Sequence[VerdictRequest]) -> list[Verdict]:
        return [Failed(kind="low_mass")]

    assert gated([request], fails, lambda _: [verdict["good"]], 0.1) == [verdict["good"]]
    assert gated([request], fails, lambda _: [verdict["none"]], 0.1) == [verdict["none"]]
    assert gated([request], fails, lambda _: [verdict["good"]], 0.0) == fails([])


# confidences .2 .4 .6 .8: direct is right on the last two, critiques on all but the last
PAIRS = [
    GatePair(scored(0.6), scored(0.1), "N"),
    GatePair(scored(0.7), scored(0.1), "N"),
    GatePair(scored(0.8), scored(0.9), "Y"),
    GatePair(scored(0.9), scored(0.4), "Y"),
]


def test_the_cheapest_gate_worked_by_hand() -> None:
    found = choose_gate(PAIRS)
    assert [(p.critiques, p.agreement) for p in found.points] == [
        (0, 0.5),
        (0.25, 0.75),
        (0.5, 1.0),
        (0.75, 1.0),
        (1.0, 0.75),
    ]
    assert [p.gate for p in found.points] == [0, 0.3, 0.5, 0.7, ALWAYS]  # near the middle, one digit
    assert found.always.agreement == 0.75 and found.chosen.gate == 0.3
    assert choose_gate(PAIRS, max_loss=0.25).chosen.gate == 0
    with pytest.raises(DataError, match="no labelled items"):
        choose_gate([])


@given(st.floats(0, 1), st.floats(0, 1))
@example(0.99998, 0.9999800001)
@example(0.0, 5e-324)
@example(0.1, math.nextafter(0.1, 1))
def test_a_gate_between_two_confidences_parts_them_in_few_digits(one: float, other: float) -> None:
    below, above = sorted((one, other))
    assume(below < above)
    gate = between(below, above)
    assert below < gate <= above and float(repr(gate)) == gate
    if above - below > 1e-3:
        assert len(repr(gate)) <= len("0.1234")


probabilities = st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9, 0.99998, 0.999981, 1 - 1e-7])


@slow_machines
@given(st.lists(st.tuples(probabilities, probabilities, st.sampled_from("YN")), min_size=1, max_size=12))
def test_every_point_is_what_gated_mode_would_do(rows: list[tuple[float, float, str]]) -> None:
    pairs = [GatePair(scored(d), scored(c, mode="critique"), gold) for d, c, gold in rows]
    for point in choose_gate(pairs).points:
        chosen = [p.critique if verdict_confidence(p.direct) < point.gate else p.direct for p in pairs]
        right = sum(isinstance(v, Scored) and v.label == p.gold for v, p in zip(chosen, pairs, strict=True))
        assert point.agreement == pytest.approx(right / len(pairs))
        written = sum(v is p.critique for v, p in zip(chosen, pairs, strict=True))
        assert point.critiques == pytest.approx(written / len(pairs))


def test_no_critique_is_asked_for_where_none_is_needed(judge: RewardModel) -> None:
    before: Mapping[str, int] = judge.usage
    judge.with_settings(mode="gated", gate=0.0).verdicts(asked(1))
    assert judge.usage["completion_tokens"] == before["completion_tokens"]
