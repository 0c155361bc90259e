import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, brier_score_loss, cohen_kappa_score

from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.eval.criterion import CriterionItem, Kind, calibration_error, criterion_report


def item(
    gold: bool | None, value: float | Verdict, name: str = "c", kind: Kind = "surface", group: str = ""
) -> CriterionItem:
    verdict = Scored(value=value) if isinstance(value, float) else value
    return CriterionItem(name, gold, verdict, kind, group)


def test_balanced_accuracy_and_kappa_by_hand() -> None:
    # TP 3, FN 1, TN 1, FP 1: recalls 3/4 and 1/2; observed 4/6, chance (4·4 + 2·2) / 36 = 20/36
    items = [item(True, 0.9)] * 3 + [item(True, 0.1), item(False, 0.2), item(False, 0.7)]
    found = criterion_report([items]).criteria[0]
    assert found.balanced_accuracy.value == pytest.approx((3 / 4 + 1 / 2) / 2)
    assert found.kappa.value == pytest.approx((4 / 6 - 20 / 36) / (1 - 20 / 36))
    assert found.minority_share == pytest.approx(2 / 6)
    # Brier: (3·0.1² + 0.9² + 0.2² + 0.7²) / 6
    assert found.brier == pytest.approx((3 * 0.01 + 0.81 + 0.04 + 0.49) / 6)


def test_metrics_agree_with_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    gold = rng.random(300) < 0.4
    value = np.clip(gold * 0.3 + rng.random(300) * 0.7, 0, 1)
    found = criterion_report([[item(bool(g), float(v)) for g, v in zip(gold, value, strict=True)]]).criteria[
        0
    ]
    assert found.balanced_accuracy.value == pytest.approx(balanced_accuracy_score(gold, value >= 0.5))
    assert found.kappa.value == pytest.approx(cohen_kappa_score(gold, value >= 0.5))
    assert found.brier == pytest.approx(brier_score_loss(gold, value))
    low, value_, high = (
        found.balanced_accuracy.low,
        found.balanced_accuracy.value,
        found.balanced_accuracy.high,
    )
    assert low is not None and value_ is not None and high is not None and low < value_ < high


def test_a_missing_verdict_is_counted_by_kind_and_changes_no_value() -> None:
    items = [item(True, 0.9), item(True, 0.1), item(False, 0.1), item(False, 0.2)]
    holes = [
        item(True, CannotAssess()),
        item(False, Failed(kind="timeout")),
        item(False, Failed(kind="refused")),
    ]
    found = criterion_report([items + holes]).criteria[0]
    assert (
        found.balanced_accuracy.value == criterion_report([items]).criteria[0].balanced_accuracy.value == 0.75
    )
    assert (found.n, found.cannot_assess, found.failed, found.balanced_accuracy.missing) == (4, 1, 2, 3)


def test_one_answer_only_is_undefined_and_in_no_mean() -> None:
    both = [item(True, 0.9, "ok"), item(False, 0.1, "ok"), item(False, 0.8, "ok")]
    one = [item(True, 0.9, "always"), item(True, 0.2, "always")]
    report = criterion_report([both + one])
    assert report.undefined == ("always",)
    assert report.criteria[1].balanced_accuracy.value is None and report.criteria[1].minority_share == 0
    assert report.balanced_accuracy["surface"].value == report.criteria[0].balanced_accuracy.value == 0.75


def test_surface_and_relational_criteria_are_averaged_apart() -> None:
    perfect = [item(True, 0.9, "s"), item(False, 0.1, "s")]
    chance = [item(g, v, "r", "relational") for g in (True, False) for v in (0.1, 0.9)]
    report = criterion_report([perfect + chance])
    assert report.balanced_accuracy["surface"].value == 1.0
    assert report.balanced_accuracy["relational"].value == 0.5


def test_a_perfect_score_keeps_an_interval_that_is_not_a_point() -> None:
    items = [item(bool(i % 2), float(i % 2)) for i in range(40)]
    found = criterion_report([items]).criteria[0].balanced_accuracy
    # Wilson's lower end of 20 of 20 is 20 / (20 + z²)
    assert found.low == pytest.approx(20 / (20 + 1.959964**2), abs=1e-5) and found.high == 1.0


def test_items_of_one_dialogue_are_drawn_together() -> None:
    rng = np.random.default_rng(1)
    right = rng.random(40) < 0.6
    one_each = [item(bool(i % 2), float(bool(i % 2) == r), group=f"d{i}") for i, r in enumerate(right)]
    copies = [item(i.gold, i.verdict, group=i.group) for i in one_each for _ in range(10)]
    a, b = (criterion_report([x]).criteria[0].balanced_accuracy for x in (one_each, copies))
    assert a.value == pytest.approx(b.value)
    assert (a.low, a.high) == pytest.approx((b.low, b.high)), "ten copies of a dialogue are no new evidence"


def test_seeds_are_averaged_and_their_spread_is_in_the_interval() -> None:
    def seed(right: int) -> list[CriterionItem]:
        return [item(bool(i % 2), float(bool(i % 2) == (i // 2 < right))) for i in range(200)]

    found = criterion_report([seed(60), seed(80), seed(100)]).criteria[0].balanced_accuracy
    assert found.value == pytest.approx(0.8)
    single = criterion_report([seed(80)]).criteria[0].balanced_accuracy
    assert None not in (found.low, found.high, single.low, single.high)
    assert (found.high or 0) - (found.low or 0) > 2 * ((single.high or 0) - (single.low or 0))
    assert "seeds and dialogues" in found.method


def test_saying_that_the_recording_does_not_tell_is_scored_where_it_does_not() -> None:
    items = [
        item(None, CannotAssess()),
        item(None, CannotAssess()),
        item(None, 0.9),
        item(None, Failed(kind="timeout")),
        item(True, 0.9),
    ]
    found = criterion_report([items]).criteria[0]
    assert found.abstention_recall.value == pytest.approx(2 / 3)
    assert found.abstention_recall.missing == 1 and found.n == 1


def test_calibration_error_by_hand() -> None:
    # bin [.8, .9): two items at .8, one true: gap .3; bin [.1, .2): two items at .1, none true: gap .1
    gold, value = np.array([1.0, 0.0, 0.0, 0.0]), np.array([0.8, 0.8, 0.1, 0.1])
    assert calibration_error(gold, value) == pytest.approx((2 * 0.3 + 2 * 0.1) / 4)
    assert calibration_error(np.ones(3), np.ones(3)) == 0.0


def test_no_items_at_all_is_an_empty_report() -> None:
    report = criterion_report([[], []])
    assert report.criteria == () and report.balanced_accuracy == {}
