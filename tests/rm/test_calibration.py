import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from axiomrm.data.splits import split_by_group
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rm.calibration import (
    CALIBRATION_FILE,
    Calibration,
    Entry,
    calibrated,
    isotonic_value,
    read_calibration,
    scale_of,
    tempered,
    write_calibration,
)
from axiomrm.rm.calibration_fit import (
    Labelled,
    conformal_residual,
    data_hash,
    fit_calibration,
    fit_isotonic,
    fit_temperature,
)
from axiomrm.rm.labels import BINARY, binary_labels, level_labels
from axiomrm.rubrics import Rubric

LEVELS = level_labels([(0.0, ""), (0.5, ""), (1.0, "")])
CASES = [
    json.loads(s) for s in (Path(__file__).parents[1] / "cases/dev_cases.jsonl").read_text().splitlines()
]
slow_machines = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def yes(p: float, **fields: Any) -> Scored:
    label = "Y" if p >= 0.5 else "N"
    return Scored(value=p, label=label, distribution={"Y": p, "N": 1 - p}, **fields)


def entry(**fields: Any) -> Entry:
    base = {"scale": scale_of(BINARY), "mode": "direct", "readout": "expected", "judge_revision": "r"}
    return Entry.model_validate({**base, "labels": 300, "temperature": 1.0, **fields})


def overconfident(n: int, seed: int = 0) -> list[Labelled]:
    """Says .9 or .1 and is right seven times in ten."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        gold, right = rng.random() < 0.5, rng.random() < 0.7
        p = 0.9 if gold == right else 0.1
        rows.append(Labelled(yes(p), BINARY, "Y" if gold else "N", "r", f"g{i}"))
    return rows


def test_a_temperature_worked_by_hand() -> None:
    # T = 2 takes square roots: 3 : 1 from 9 : 1
    found = calibrated(yes(0.9), BINARY, entry(temperature=2.0, residual=0.3))
    assert found.distribution == pytest.approx({"Y": 0.75, "N": 0.25})
    assert found.value == pytest.approx(0.75) and found.label == "Y"
    assert found.interval == pytest.approx((0.45, 1.0))
    assert found.flags == ("calibrated",)


def test_the_best_temperature_is_found_where_it_is_known() -> None:
    # .9 is right 7 times of 10: ln 9 / T = ln (7/3)
    p = np.array([[0.9, 0.1]] * 10)
    gold = np.array([0] * 7 + [1] * 3)
    assert fit_temperature(p, gold) == pytest.approx(math.log(9) / math.log(7 / 3), rel=1e-4)


rows_of_three = st.lists(
    st.tuples(*[st.floats(0.0, 1.0)] * 3).filter(lambda q: sum(q) > 0.01), min_size=1, max_size=20
)


@slow_machines
@given(rows_of_three, st.integers(0, 2**20))
def test_a_temperature_never_raises_the_loss_it_was_fitted_on_and_keeps_the_likeliest_label(
    rows: list[tuple[float, ...]], seed: int
) -> None:
    p = np.array([[x / sum(q) for x in q] for q in rows])
    gold = np.random.default_rng(seed).integers(3, size=len(rows))
    t = fit_temperature(p, gold)

    def nll(q: Any) -> float:
        return float(-np.log(np.maximum(q[np.arange(len(gold)), gold], 1e-12)).sum())

    after = np.array([list(tempered(dict(enumerate(q)), t).values()) for q in np.maximum(p, 1e-12)])  # type: ignore[arg-type]
    assert nll(after) <= nll(p) + 1e-6
    assert all(a[q.argmax()] == pytest.approx(a.max()) for a, q in zip(after, p, strict=True))


@slow_machines
@given(
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 1.0])), min_size=2, max_size=30),
    st.lists(st.floats(0, 1), min_size=2, max_size=10),
)
def test_isotonic_keeps_order_and_is_defined_everywhere(
    pairs: list[tuple[float, float]], asked: list[float]
) -> None:
    knots = fit_isotonic([x for x, _ in pairs], [y for _, y in pairs], edge=0.05)
    values = [isotonic_value(knots, x) for x in sorted(asked)]
    assert values == sorted(values)
    assert all(0.05 - 1e-9 <= v <= 0.95 + 1e-9 for v in values)


@pytest.mark.parametrize(
    "case", [c for c in CASES if c["input"].get("kind") == "isotonic"], ids=lambda c: c["id"]
)
def test_isotonic_gives_what_the_case_says(case: dict[str, Any]) -> None:
    knots = fit_isotonic(case["input"]["x"], case["input"]["y"])
    found = [isotonic_value(knots, x) for x in case["input"]["query"]]
    assert found == pytest.approx(case["expect"]["values"])


def test_isotonic_agrees_with_scikit_learn_between_the_knots() -> None:
    from sklearn.isotonic import IsotonicRegression

    rng = np.random.default_rng(1)
    x = rng.uniform(size=80)
    y = (rng.uniform(size=80) < x**2).astype(float)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(x, y).predict(np.linspace(0, 1, 51))
    knots = fit_isotonic(x.tolist(), y.tolist())
    assert [isotonic_value(knots, v) for v in np.linspace(0, 1, 51)] == pytest.approx(
        theirs.tolist(), abs=1e-6
    )


def test_a_conformal_residual_worked_by_hand() -> None:
    # n = 9, level .8: the ceil(10 * .8) = 8th smallest
    assert conformal_residual([0.1 * i for i in range(1, 10)], 0.8) == pytest.approx(0.8)
    assert conformal_residual([0.1] * 8, 0.9) is None  # the 9th of 8


def test_conformal_intervals_hold_about_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2)

    def rows(n: int) -> list[Labelled]:
        made = []
        for i in range(n):
            q = rng.dirichlet([1.0, 1.0, 1.0])
            gold = str(rng.choice(3, p=q))
            verdict = Scored(
                value=q[1] / 2 + q[2], label="0", distribution={str(k): float(x) for k, x in enumerate(q)}
            )
            made.append(Labelled(verdict, LEVELS, gold, "r", f"g{i}"))
        return made

    fitted = fit_calibration(rows(900), level=0.8)
    held = [(fitted.apply(r.verdict, r.labels), r) for r in rows(900)]
    inside = [
        v.interval[0] <= r.labels.values[r.gold] <= v.interval[1]
        for v, r in held
        if isinstance(v, Scored) and v.interval is not None
    ]
    assert len(inside) == 900 and 0.74 <= sum(inside) / 900 <= 0.9


def test_an_overconfident_judge_is_brought_back() -> None:
    fitted = fit_calibration(overconfident(600), source="made up")
    (found,) = fitted.entries
    assert found.temperature == pytest.approx(math.log(9) / math.log(7 / 3), rel=0.25)
    assert found.nll_before is not None and found.nll_after is not None and found.nll_after < found.nll_before
    after = fitted.apply(yes(0.9), BINARY)
    assert isinstance(after, Scored) and after.value == pytest.approx(0.7, abs=0.06)
    assert fit_calibration(overconfident(600), method="temperature").entries[0].isotonic == ()


def test_isotonic_stays_out_where_it_would_fit_noise_and_comes_in_where_it_helps() -> None:
    rng = np.random.default_rng(3)
    noise = [
        Labelled(yes(float(rng.uniform(0.6, 0.9))), BINARY, str(rng.choice(["Y", "N"])), "r", f"g{i}")
        for i in range(300)
    ]
    (left,) = fit_calibration(noise).entries
    assert left.isotonic == () and "isotonic left out: NLL in cross-validation" in left.note
    assert fit_calibration(noise, method="isotonic").entries[0].isotonic
    # says .6 to .9 and means 0 to 1: no temperature moves the point where yes and no are even
    shifted = []
    for i in range(300):
        p = float(rng.uniform(0.6, 0.9))
        gold = "Y" if rng.random() < (p - 0.6) / 0.3 else "N"
        shifted.append(Labelled(yes(p), BINARY, gold, "r", f"g{i}"))
    (kept,) = fit_calibration(shifted).entries
    assert kept.isotonic and kept.note == ""


def test_a_split_of_the_callers_own_leaves_labels_for_the_residuals() -> None:
    half = split_by_group(overconfident(900), {"fit": 0.5, "test": 0.5}, seed=0, key=lambda r: r.group)["fit"]
    assert fit_calibration(half, seed=0).entries[0].residual is not None


def test_below_two_hundred_labels_there_is_none_and_it_says_so() -> None:
    fitted = fit_calibration(overconfident(199))
    assert fitted.entries[0].temperature is None
    assert "199 labels, at least 200" in fitted.entries[0].note
    assert fitted.apply(yes(0.9), BINARY) == yes(0.9)
    assert fit_calibration(overconfident(200)).entries[0].temperature is not None


def test_each_scale_mode_and_readout_has_its_own_entry() -> None:
    rows = overconfident(200)
    critique = [r._replace(verdict=r.verdict.model_copy(update={"mode": "critique"})) for r in rows]
    few = [r._replace(verdict=r.verdict.model_copy(update={"readout": "argmax"})) for r in rows[:10]]
    fitted = fit_calibration([*rows, *critique, *few])
    assert [(e.mode, e.readout, e.temperature is not None) for e in fitted.entries] == [
        ("direct", "expected", True),
        ("critique", "expected", True),
        ("direct", "argmax", False),
    ]
    other = Scored(value=0.5, label="1", distribution={"0": 0.2, "1": 0.6, "2": 0.2})
    assert fitted.apply(other, LEVELS) == other
    assert scale_of(binary_labels("sure", "no way")) == scale_of(BINARY)


def test_what_is_no_number_stays_none_and_nothing_is_calibrated_twice() -> None:
    fitted = fit_calibration(overconfident(200))
    for verdict in (CannotAssess(p_na=0.9), Failed(kind="low_mass")):
        assert fitted.apply(verdict, BINARY) == verdict
    once = fitted.apply(yes(0.9), BINARY)
    with pytest.raises(ConfigError, match="calibrated already"):
        fitted.apply(once, BINARY)


@pytest.mark.parametrize(
    ("row", "named"),
    [
        (Labelled(yes(0.9), BINARY, "X", "r"), "gold label 'X'"),
        (Labelled(yes(0.9, flags=("calibrated",)), BINARY, "Y", "r"), "calibrated already"),
        (Labelled(yes(0.9, mode="programmatic"), BINARY, "Y", "r"), "programmatic"),
        (Labelled(yes(0.9), BINARY, "Y", "another"), "2 judges"),
    ],
)
def test_rows_that_cannot_be_used_are_named(row: Labelled, named: str) -> None:
    with pytest.raises(DataError, match=named):
        fit_calibration([*overconfident(200), row])
    with pytest.raises(DataError, match="no labelled verdicts"):
        fit_calibration([])


def test_the_data_hash_depends_on_the_labels_and_not_on_their_order() -> None:
    rows = overconfident(20)
    assert data_hash(rows) == data_hash(rows[::-1])
    flipped = [rows[0]._replace(gold="N" if rows[0].gold == "Y" else "Y"), *rows[1:]]
    assert data_hash(rows) != data_hash(flipped)


TALK = Trajectory(messages=(Message(role="user", content="hi"), Message(role="assistant", content="Yes.")))


@pytest.fixture()
def checkpoint(tmp_path: Path, tiny_llama: Any, tiny_tokenizer: Any) -> Path:
    tiny_llama.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_a_calibrator_lies_with_its_checkpoint_and_changes_verdicts_without_an_engine_call(
    checkpoint: Path, one_theorem: str
) -> None:
    raw = RewardModel.from_pretrained(checkpoint)
    made = Calibration(
        entries=(entry(temperature=3.0, residual=0.2, judge_revision=raw.judge_revision),), data_hash="d"
    )
    assert read_calibration(checkpoint) is None
    write_calibration(checkpoint, made)
    assert read_calibration(checkpoint) == made
    judge = RewardModel.from_pretrained(checkpoint)
    asked = [VerdictRequest(TALK, Criterion("c", "Is it so?"))]
    (before,), (after,) = raw.verdicts(asked), judge.verdicts(asked)
    assert isinstance(before, Scored) and isinstance(after, Scored)
    assert abs(after.value - 0.5) < abs(before.value - 0.5) and "calibrated" in after.flags
    spent = dict(judge.usage)
    assert made.apply(before, BINARY) == after
    assert judge.usage == spent
    assert judge.judge_revision == raw.judge_revision
    rubric = Rubric.loads(one_theorem, "one.yaml")
    found, plain = judge.score(TALK, rubric), raw.score(TALK, rubric)
    assert (found.calibration, plain.calibration) == (made.hash, "")
    assert found.reward is not None
    assert found.interval == pytest.approx((max(0, found.reward - 0.2), min(1, found.reward + 0.2)))
    assert plain.interval == (plain.reward, plain.reward)


def test_the_calibrator_of_another_judge_is_refused(checkpoint: Path) -> None:
    write_calibration(checkpoint, Calibration(entries=(entry(judge_revision="f" * 64),), data_hash="d"))
    with pytest.raises(ConfigError, match="fitted on judge 'ffffffffffff'"):
        RewardModel.from_pretrained(checkpoint)
    assert RewardModel.from_pretrained(checkpoint, calibration=None).modes.calibration is None
    (checkpoint / CALIBRATION_FILE).write_text('{"entries": []}')
    with pytest.raises(ConfigError, match="not a calibration file"):
        RewardModel.from_pretrained(checkpoint)
