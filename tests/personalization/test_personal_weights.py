import math
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.errors import ConfigError, DataError
from axiomrm.personalization.profile import FeedbackEvent
from axiomrm.personalization.weights import (
    MAX_STEP,
    WeightPosterior,
    event_evidence,
    project_to_simplex,
    share,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def test_the_share_follows_the_table_of_the_specification() -> None:
    assert [round(share(n), 12) for n in (0, 8, 24, 72)] == [0.0, 0.2, 0.3, 0.36]


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_the_share_grows_with_evidence_and_never_passes_its_bound(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert 0 <= share(low) <= share(high) <= 0.4


@pytest.mark.parametrize("n", [-1.0, math.nan, math.inf])
def test_no_share_without_a_count(n: float) -> None:
    with pytest.raises(ConfigError, match="n_eff"):
        share(n)


def _event(days: float) -> FeedbackEvent:
    return FeedbackEvent(shown=("a", "b"), choice="a", created_at=NOW - timedelta(days=days))


def test_an_event_counts_half_after_each_half_life() -> None:
    assert event_evidence([_event(0), _event(60), _event(120)], NOW) == pytest.approx(1 + 0.5 + 0.25)
    assert event_evidence([], NOW) == 0
    with pytest.raises(DataError, match="after now"):
        event_evidence([_event(-1)], NOW)
    with pytest.raises(ConfigError, match="half_life"):
        event_evidence([], NOW, 0)
    with pytest.raises(DataError, match="has no time zone"):
        event_evidence([_event(0)], NOW.replace(tzinfo=None))


def test_one_update_by_hand() -> None:
    before = WeightPosterior(np.array([0.5, 0.5]), np.eye(2) * 4.0, np.eye(2) * 4.0, steepness=1.0)
    delta = np.array([0.04, -0.04])
    after = before.updated(delta, True, gamma=1.0)
    # p = 1/2; precision = 4 I + ¼ΔΔᵀ; ΔΔᵀ/4 has eigenvalue ¼·0.0032 along Δ, so Σ⁻¹Δ = Δ / 4.0008
    step = 0.5 * delta / 4.0008
    assert after.mean_C == pytest.approx(before.mean_C + step)  # sums to 1 already: no projection
    assert after.precision_CC == pytest.approx(4 * np.eye(2) + 0.25 * np.outer(delta, delta))


def test_forgetting_draws_the_precision_back_to_the_prior() -> None:
    start = WeightPosterior.uniform(2)
    sharp = WeightPosterior(start.mean_C, start.precision_CC * 10, start.prior_precision_CC)
    after = sharp.updated(np.zeros(2), True, gamma=0.5)
    assert after.precision_CC == pytest.approx(start.prior_precision_CC * 5.5)


@given(st.lists(st.tuples(st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.booleans()), max_size=30))
def test_weights_stay_on_the_simplex_and_move_in_small_steps(events: list[tuple[list[float], bool]]) -> None:
    posterior = WeightPosterior.uniform(3)
    for delta, chose_a in events:
        after = posterior.updated(np.array(delta), chose_a)
        assert np.all(after.mean_C >= -1e-12) and after.mean_C.sum() == pytest.approx(1)
        assert np.max(np.abs(after.mean_C - posterior.mean_C)) <= MAX_STEP + 1e-12
        posterior = after


def test_choices_that_follow_one_criterion_give_it_the_weight() -> None:
    rng = np.random.default_rng(0)
    posterior = WeightPosterior.uniform(3)
    for _ in range(60):
        delta = rng.choice([-1.0, 0.0, 1.0], size=3)
        posterior = posterior.updated(delta, bool(delta[1] > 0 or (delta[1] == 0 and rng.random() < 0.5)))
    assert posterior.mean_C[1] > 0.55
    assert posterior.mean_C[1] > 2 * max(posterior.mean_C[0], posterior.mean_C[2])


def test_a_missing_score_is_no_difference() -> None:
    for bad in ([math.nan, 0.0], [2.0, 0.0], [0.0]):
        with pytest.raises(DataError, match="delta"):
            WeightPosterior.uniform(2).updated(np.array(bad), True)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6))
def test_the_projection_is_the_nearest_point_of_the_simplex(values: list[float]) -> None:
    point = np.array(values)
    found = project_to_simplex(point)
    assert np.all(found >= 0) and found.sum() == pytest.approx(1)
    rng = np.random.default_rng(1)
    others = rng.dirichlet(np.ones(point.size), size=200)
    assert np.all(np.linalg.norm(others - point, axis=1) >= np.linalg.norm(found - point) - 1e-9)
