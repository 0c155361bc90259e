from typing import Any

import numpy as np
import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.policy_opt.kl import KLController
from axiomrm.policy_opt.monitoring.monitors import Alarm, Monitors
from axiomrm.policy_opt.monitoring.observe import FROM_METRICS
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.rewards.base import Episode, TurnScores
from axiomrm.policy_opt.rewards.heldout import HeldOutCriteria


def episodes(
    rng: np.random.Generator,
    *,
    judge: float,
    outcome: float,
    text: str | None = None,
    missing: str | None = None,
    n: int = 32,
) -> list[Episode]:
    made = []
    for i in range(n):
        rewards = np.clip(judge + 0.1 * rng.normal(size=4), 0, 1)
        steps = [
            StepRecord(
                traj_id=str(i), turn=t, segment=0, start=1, end=2 + int(rng.integers(1, 9)), policy_version=0,
                behaviour_logprobs=np.zeros(1, dtype=np.float32),
                r_local=float("nan") if missing else float(r),
                missing=missing,
            )
            for t, r in enumerate(rewards)
        ]  # fmt: skip
        record = TrajectoryRecord(
            str(i), "t", f"g{i // 8}", [], steps, 0, outcome=float(rng.random() < outcome)
        )
        said = [Message(role="assistant", content=text or f"word {rng.integers(1000)}") for _ in range(4)]
        made.append(Episode(record, Trajectory(messages=tuple(said))))
    return made


def alarms(later: dict[str, Any], *, seed: int = 0, iterations: int = 15) -> set[str]:
    rng = np.random.default_rng(seed)
    monitors = Monitors()
    found: set[str] = set()
    for k in range(iterations):
        settings = {"judge": 0.5, "outcome": 0.4} | ({} if k < 6 else later)
        found |= {alarm.name for alarm in monitors.look(episodes(rng, **settings))}
    return found


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        ({"judge": 0.9}, {"divergence"}),
        ({"text": "I am so sorry"}, {"canned_text"}),
        ({"missing": "cannot_assess:hidden"}, {"abstention"}),
        ({"outcome": 0.0}, {"collapse"}),
    ],
)
def test_each_trouble_raises_its_alarm(later: dict[str, Any], expected: set[str]) -> None:
    assert expected <= alarms(later)


@pytest.mark.parametrize("seed", range(2))
def test_a_quiet_run_and_an_honest_rise_raise_no_alarm(seed: int) -> None:
    assert alarms({}, seed=seed) == set()
    assert alarms({"judge": 0.8, "outcome": 0.8}, seed=seed) == set()


def test_the_memory_survives_a_checkpoint() -> None:
    rng = np.random.default_rng(0)
    one, two = Monitors(), Monitors()
    for _ in range(8):
        one.look(episodes(rng, judge=0.5, outcome=0.4))
    two.load_state_dict(one.state_dict())
    batch = episodes(rng, judge=0.9, outcome=0.4)
    assert one.look(batch) == two.look(batch)
    assert one.state_dict() == two.state_dict()


def quiet_row(**changed: float) -> dict[str, float]:
    row = {
        "judge": 0.5, "outcome": 0.4, "canned": 0.02, "length_correlation": 0.1, "turns_correlation": 0.0,
        "abstained": 0.0, "failed": 0.0, "coverage": 0.9, "group_std": 0.4, "repetition": 0.05, "duplicates": 0.02,
        "no_effect": 0.05, "refusals": 0.0, "dominant": 0.4, "entropy": 0.8, "grad_norm": 1.0, "ess_frac": 0.9,
        "disc": 0.3, "disc_groups": 64.0, "beta_eff": 0.5, "kl_beta": 0.02, "kl_at_clamp": 0.0, "heldout": 0.5,
    }  # fmt: skip
    return row | changed


def taken_in(monitors: Monitors, row: dict[str, float]) -> list[Alarm]:
    """An iteration whose rollouts and update gave these numbers."""
    seen = {name: value for name, value in row.items() if name not in FROM_METRICS}
    metrics = {FROM_METRICS[name]: value for name, value in row.items() if name in FROM_METRICS}
    return [*monitors.look_at(seen), *monitors.updated(metrics)]


def alarms_of(*later: dict[str, float], usual: dict[str, float] | None = None) -> set[str]:
    monitors = Monitors()
    for _ in range(6):
        assert taken_in(monitors, quiet_row(**(usual or {}))) == []
    return {alarm.name for row in later for alarm in taken_in(monitors, quiet_row(**row))}


@pytest.mark.parametrize(
    ("alarm", "changed", "harmless", "rows"),
    [
        ("divergence", {"judge": 0.7}, {"judge": 0.7, "outcome": 0.7}, 4),
        (
            "heldout_divergence",
            {"judge": 0.7, "outcome": 0.7},
            {"judge": 0.7, "outcome": 0.7, "heldout": 0.7},
            4,
        ),
        ("canned_text", {"canned": 0.6}, {"canned": 0.4}, 1),
        ("repetition", {"repetition": 0.4}, {"repetition": 0.2}, 1),
        ("duplicate_turns", {"duplicates": 0.4}, {"duplicates": 0.2}, 1),
        ("no_effect", {"no_effect": 0.4}, {"no_effect": 0.2}, 1),
        ("refusals", {"refusals": 0.3}, {"refusals": 0.1}, 1),
        ("length", {"length_correlation": 0.9}, {"length_correlation": 0.7}, 1),
        ("turns", {"turns_correlation": 0.9}, {"turns_correlation": 0.7}, 1),
        ("abstention", {"abstained": 0.3}, {"abstained": 0.1}, 1),
        ("failures", {"failed": 0.1}, {"failed": 0.03}, 1),
        ("coverage", {"coverage": 0.6}, {"coverage": 0.8}, 1),
        ("one_criterion", {"dominant": 0.7}, {"dominant": 0.55}, 1),
        ("collapse", {"group_std": 0.15}, {"group_std": 0.15, "outcome": 0.9}, 1),
        ("entropy_collapse", {"entropy": 0.3}, {"entropy": 0.5}, 1),
        ("gradient", {"grad_norm": 6.0}, {"grad_norm": 4.0}, 1),
        ("replay_weights", {"ess_frac": 0.1}, {"ess_frac": 0.3}, 2),
        ("discrimination", {"disc": 0.01}, {"disc": 0.01, "disc_groups": 20.0}, 1),
        ("kl_clamped", {"kl_at_clamp": 10.0}, {"kl_at_clamp": 9.0}, 1),
    ],
)
def test_each_alarm_has_what_triggers_it_and_what_does_not(
    alarm: str, changed: dict[str, float], harmless: dict[str, float], rows: int
) -> None:
    assert alarm in alarms_of(*[changed] * rows)
    assert alarm not in alarms_of(*[harmless] * rows)


def test_a_fall_is_measured_from_the_height_that_was_reached() -> None:
    rise = [{"judge": 0.5 + k / 40, "outcome": 0.4 + k / 20, "heldout": 0.5 + k / 40} for k in range(9)]
    assert alarms_of(*rise) == set()
    # Still three deviations above the start: only a "normal" that has moved can see the outcome fall.
    assert "divergence" in alarms_of(*rise, *[{"judge": 0.8, "outcome": 0.55, "heldout": 0.8}] * 2)


def test_an_alarm_that_needs_time_does_not_fire_at_once() -> None:
    assert alarms_of({"judge": 0.6}, {}) == set()
    assert alarms_of({"ess_frac": 0.1}, {"ess_frac": 0.9}) == set()


def test_unknown_numbers_raise_nothing() -> None:
    monitors = Monitors()
    assert [taken_in(monitors, {}) for _ in range(30)] == [[]] * 30
    assert [taken_in(monitors, dict.fromkeys(quiet_row(), float("nan"))) for _ in range(3)] == [[]] * 3


def test_what_was_high_from_the_start_is_the_policys_way_not_news() -> None:
    usual = {"repetition": 0.4, "refusals": 0.3, "abstained": 0.4, "length_correlation": 0.95}
    assert alarms_of(usual, usual=usual) == set()


def test_a_checkpoint_of_before_the_held_out_alarm_can_be_read() -> None:
    monitors = Monitors()
    monitors.load_state_dict(
        {"history": [{"judge": 0.5, "group_std": float("nan")}], "low": -1.0, "total": 2.0}
    )
    assert (
        monitors.divergence.test("judge").total == 2.0
        and monitors.history == [{"judge": 0.5}]
        and not monitors.gamed
    )


def test_held_out_criteria_are_asked_about_a_small_repeatable_sample() -> None:
    rng = np.random.default_rng(0)
    batch, asked = episodes(rng, judge=0.5, outcome=0.4, n=64), []

    def judge(trajectories: Any) -> list[TurnScores]:
        asked.append([t.messages[0].content for t in trajectories])
        return [TurnScores([0.25, float("nan")], [None, "cannot_assess:x"], "r", "h") for _ in trajectories]

    heldout = HeldOutCriteria(judge, share=0.05, seed=3)
    assert heldout(batch, 1) == heldout(batch, 1) == 0.25
    assert len(asked[0]) == 4 and asked[0] == asked[1]
    heldout(batch, 2)
    assert asked[2] != asked[0]


# --- the chain of bandits of POLICY.md: T = 8 turns, 6 actions each, 8 tasks in groups of 8 ------------------

RIGHT, FILLER, ACTIONS = 0, 5, 6


def chain(
    seed: int, *, filler_pay: float, alpha: float = 0.0, iterations: int = 45
) -> tuple[list[float], int | None]:
    """REINFORCE on the turn rewards of a judge (noise 0.15) that also pays for filler.

    Returns:
        The exact success rate before each iteration and the iteration of the first divergence alarm.
    """
    rng, monitors = np.random.default_rng(seed), Monitors()
    logits = np.zeros((8, 8, ACTIONS))
    logits[:, :, RIGHT] = np.log(0.8 * (ACTIONS - 1) / 0.2)
    success: list[float] = []
    alarm = None
    for iteration in range(iterations):
        p = np.exp(logits)
        p /= p.sum(axis=-1, keepdims=True)
        success.append(float(np.prod(p[:, :, RIGHT], axis=1).mean()))
        drawn = rng.random((8, 8, 8, 1))  # task, rollout, turn
        action = np.minimum((drawn > np.cumsum(p, axis=-1)[:, None]).sum(axis=-1), ACTIONS - 1)
        right = action == RIGHT
        told = np.where(rng.random(right.shape) < 0.15, ~right, right)
        reward = (1 - filler_pay) * told + filler_pay * (action == FILLER)
        outcome = right.all(axis=-1).astype(float)
        found = monitors.look_at({"judge": float(reward.mean()), "outcome": float(outcome.mean())})
        if alarm is None and any(a.name == "divergence" for a in found):
            alarm = iteration
        local = (reward - (reward.sum(axis=1, keepdims=True) - reward) / 7) / max(reward.std(), 0.05)
        whole = (outcome - (outcome.sum(axis=1, keepdims=True) - outcome) / 7) / max(outcome.std(), 0.05)
        advantage = np.clip(local + alpha * whole[:, :, None], -3, 3)
        logits += 0.4 * (advantage[..., None] * (np.eye(ACTIONS)[action] - p[:, None])).mean(axis=1)
    return success, alarm


def lost_ten_points(success: list[float]) -> int | None:
    best = np.maximum.accumulate(success)
    lost = np.nonzero(best - np.array(success) >= 0.1)[0]
    return int(lost[0]) if len(lost) else None


def test_the_alarm_comes_before_ten_points_are_lost_and_seldom_without_cause() -> None:
    early = lost = false = slow = fallen = 0
    for seed in range(10):
        success, alarm = chain(seed, filler_pay=0.7)
        too_late = lost_ten_points(success)
        lost += too_late is not None
        early += alarm is not None and too_late is not None and alarm < too_late
        success, alarm = chain(
            seed, filler_pay=0.7, alpha=1.0
        )  # outcomes teach too: success rises, then falls
        too_late = lost_ten_points(success)
        fallen += too_late is not None
        slow += alarm is not None and too_late is not None and alarm < too_late
        false += chain(seed, filler_pay=0.0)[1] is not None
        false += chain(seed, filler_pay=0.0, alpha=1.0)[1] is not None
    assert lost == 10 and early >= 9 and false <= 1
    assert fallen >= 5 and slow >= fallen - 1


def test_a_controller_with_bounds_of_its_own_is_seen_to_stick_at_them() -> None:
    controller, monitors, found = KLController(beta=2e-3, lowest=1e-3), Monitors(), []
    for _ in range(60):
        controller.update(0.0)
        metrics = {"kl/beta": controller.beta, "kl/at_clamp": float(controller.at_clamp)}
        found = [alarm.name for alarm in (*monitors.look([]), *monitors.updated(metrics))]
    assert controller.beta == 1e-3 and found == ["kl_clamped"]
