"""What is missing, or cannot be measured, is never taken for a number."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from axiomrm.config import PolicyStageConfig
from axiomrm.data.trajectory import Message, Outcome, Trajectory
from axiomrm.policy_opt.algorithms.ppo import PPO
from axiomrm.policy_opt.audit.rollouts import audit
from axiomrm.policy_opt.config import PolicyConfig, PPOConfig
from axiomrm.policy_opt.forgetting import _without
from axiomrm.policy_opt.monitoring.observe import observe


def test_without_rollouts_no_share_is_known() -> None:
    row = observe([])
    assert all(math.isnan(row[name]) for name in ("canned", "abstained", "failed", "refusals"))


@pytest.mark.parametrize("kind", ["rloo", "ppo"])
def test_a_kl_penalty_in_the_reward_needs_a_reference(kind: str) -> None:
    algorithm = {"kind": kind, "kl_place": "reward"}
    with pytest.raises(ValidationError, match="no reference"):
        PolicyConfig.model_validate({"algorithm": algorithm, "kl": {"enabled": False}})
    PolicyConfig.model_validate({"algorithm": algorithm})
    PolicyConfig.model_validate({"algorithm": algorithm | {"kl_coefficient": 0}, "kl": {"enabled": False}})


def test_a_guard_needs_an_outcome_to_go_on_with() -> None:
    with pytest.raises(ValidationError, match="nothing is left"):
        PolicyConfig.model_validate({"algorithm": {"kind": "process_replay", "alpha": 0}, "on_hack": "guard"})


@pytest.mark.parametrize(
    "values",
    [
        {"turn_reward": "jugde"},
        {"turn_reward": "judge", "reward": {"kind": "verifier"}},
        {"heldout": {"kind": "verifier"}},
    ],
)
def test_a_reward_setting_that_would_be_ignored_is_an_error(values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PolicyStageConfig.model_validate(values)


def rollout(name: str, rewards: tuple[float, ...] | None) -> Trajectory:
    turns = [Message(role="user", content="hi"), Message(role="assistant", content=name)]
    return Trajectory(
        id=name, group_id="g", messages=tuple(turns), turn_rewards=rewards, outcome=Outcome(score=1.0)
    )


def test_a_rollout_without_rewards_counts_as_missing_in_the_audit() -> None:
    found = audit([rollout("a", (0.5,)), rollout("b", (1.0,)), rollout("c", None)])
    assert found.verdicts == 3 and found.missing_share == pytest.approx(1 / 3)


def test_a_value_head_is_read_back_without_its_model() -> None:
    trained = PPO(PPOConfig())
    trained.open_critic(7)
    read = PPO(PPOConfig())
    read.load_state_dict(trained.state_dict())
    assert read.state_dict() == trained.state_dict()


def test_a_forgotten_subjects_scale_is_nowhere_in_a_judges_state() -> None:
    state = {"personal": {"ann": {"turn": [0.1, 0.2]}, "ben": {"turn": [0.3, 0.4]}}}
    assert _without(state, "ann") == {"personal": {"ben": {"turn": [0.3, 0.4]}}}
    assert _without(None, "ann") is None
