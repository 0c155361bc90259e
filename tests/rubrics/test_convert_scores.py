"""Imported rubrics score as their own formats do; each formula is written down again here, by hand."""

import json
import random
from collections.abc import Mapping

import pytest

from axiomrm.data.verdict import CannotAssess, Scored
from axiomrm.rubrics import Aggregate, Rubric, aggregate
from axiomrm.rubrics.convert import import_rubrics

SETS = 100


def scored(text: str, form: str, values: Mapping[int, float | None]) -> Aggregate:
    """Aggregate of the i-th criterion's value, ``None``: cannot be assessed."""
    model = import_rubrics(text, form, activate=True).rubrics[0].model
    active = Rubric.from_model(model).bind({})
    verdicts = {
        item.id: CannotAssess() if (v := values[i]) is None else Scored(value=v)
        for i, item in enumerate(active.items)
    }
    return aggregate(active, verdicts)


def weights(rng: random.Random, *, negative: bool) -> list[float]:
    signs = (1, 1, -1) if negative else (1,)
    return [rng.choice(signs) * rng.choice([0.5, 1, 2, 3, 7.25, 10]) for _ in range(rng.randint(1, 7))]


@pytest.mark.parametrize("seed", range(SETS))
def test_the_reward_is_autorubrics_normalised_score(seed: int) -> None:
    rng = random.Random(seed)
    found = weights(rng, negative=True)
    options = [{"label": "a", "value": 0}, {"label": "b", "value": 0.4}, {"label": "c", "value": 1}]
    choice = [rng.random() < 0.3 for _ in found]
    criteria = [
        {"weight": w, "requirement": f"criterion {i}", **({"options": options} if c else {})}
        for i, (w, c) in enumerate(zip(found, choice, strict=True))
    ]
    values = {i: rng.choice([0, 0.4, 1]) if c else rng.choice([0, 1]) for i, c in enumerate(choice)}
    got = scored(json.dumps(criteria), "autorubric", values)

    total = sum(w * values[i] for i, w in enumerate(found))
    positive = sum(w for w in found if w > 0)
    negative = -sum(w for w in found if w < 0)
    expected = total / positive if positive else 1 + total / negative
    assert got.reward == pytest.approx(min(1, max(0, expected)), abs=1e-12)


@pytest.mark.parametrize("seed", range(SETS))
def test_an_abstention_is_autorubrics_fail(seed: int) -> None:
    rng = random.Random(1000 + seed)
    found = weights(rng, negative=True)
    values = {i: rng.choice([0, 1, None]) for i in range(len(found))}
    got = scored(
        json.dumps([{"weight": w, "requirement": f"c {i}"} for i, w in enumerate(found)]),
        "autorubric",
        values,
    )

    def part(i: int, w: float) -> float:
        value = values[i]
        return w * value if value is not None else min(w, 0)  # FAIL: nothing, or the whole penalty

    total = sum(part(i, w) for i, w in enumerate(found))
    positive = sum(w for w in found if w > 0)
    negative = -sum(w for w in found if w < 0)
    expected = total / positive if positive else 1 + total / negative
    assert got.base == pytest.approx(min(1, max(0, expected)), abs=1e-12)


@pytest.mark.parametrize("seed", range(SETS))
def test_the_unclipped_value_is_healthbenchs_score(seed: int) -> None:
    rng = random.Random(2000 + seed)
    points = [rng.randint(1, 10), *(rng.choice([-9, -5, -2, 1, 4, 8]) for _ in range(rng.randint(0, 8)))]
    met = [rng.random() < 0.5 for _ in points]
    rubrics = [{"criterion": f"c {i}", "points": p, "tags": []} for i, p in enumerate(points)]
    row = json.dumps({"prompt": [], "prompt_id": "p", "rubrics": rubrics})
    got = scored(row, "healthbench", {i: float(m) for i, m in enumerate(met)})

    achieved = sum(p for p, m in zip(points, met, strict=True) if m)
    possible = sum(p for p in points if p > 0)
    assert got.unclipped == pytest.approx(achieved / possible, abs=1e-12)
    assert got.reward == pytest.approx(min(1, max(0, achieved / possible)), abs=1e-12)


def test_healthbench_goes_below_zero_where_the_reward_stops() -> None:
    rubrics = [{"criterion": "a", "points": 4, "tags": []}, {"criterion": "b", "points": -6, "tags": []}]
    row = json.dumps({"prompt": [], "prompt_id": "p", "rubrics": rubrics})
    got = scored(row, "healthbench", {0: 0.0, 1: 1.0})
    assert (got.unclipped, got.reward) == (-1.5, 0.0)  # −6 ÷ 4


@pytest.mark.parametrize("seed", range(SETS))
def test_the_reward_is_the_weighted_mean_of_verifiers(seed: int) -> None:
    rng = random.Random(3000 + seed)
    found = weights(rng, negative=False)
    sizes = [rng.randint(2, 7) for _ in found]
    picks = [rng.randrange(n) for n in sizes]
    criteria = [
        {"name": f"n{i}", "text": f"c {i}", "weight": w, "choices": [f"level {k}" for k in range(n)]}
        for i, (w, n) in enumerate(zip(found, sizes, strict=True))
    ]
    values = {i: k / (n - 1) for i, (k, n) in enumerate(zip(picks, sizes, strict=True))}
    got = scored(json.dumps({"criteria": criteria}), "verifiers", values)
    expected = sum(w * values[i] for i, w in enumerate(found)) / sum(found)
    assert got.reward == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(SETS))
def test_the_base_is_the_weighted_mean_of_promptfoo(seed: int) -> None:
    rng = random.Random(4000 + seed)
    found = weights(rng, negative=True)
    asserts = [
        {"type": "llm-rubric" if w > 0 else "not-llm-rubric", "value": f"c {i}", "weight": abs(w)}
        for i, w in enumerate(found)
    ]
    values = {i: rng.random() for i in range(len(found))}
    got = scored(json.dumps({"tests": [{"assert": asserts}]}), "promptfoo", values)
    # an inverted assertion passes with 1 − score
    total = sum(abs(w) * (values[i] if w > 0 else 1 - values[i]) for i, w in enumerate(found))
    assert got.base == pytest.approx(total / sum(map(abs, found)), abs=1e-12)
