"""Criteria that are held out are none that the policy is rewarded for."""

from typing import Any

import pytest
from pydantic import ValidationError

from axiomrm.config import PolicyStageConfig

SHAPING = {"kind": "programmatic", "rubric": "process_shaping"}
CODE = {"kind": "programmatic", "rubric": "code_agent"}
DESK = {"kind": "rubric_judge", "rubric": "service_desk_steps"}


def mix(**parts: Any) -> dict[str, Any]:
    return {"kind": "composite", "parts": parts, "weights": dict.fromkeys(parts, 1.0)}


SAME: dict[str, tuple[Any, Any, str]] = {
    "equal": (SHAPING, SHAPING, "reward"),
    "level": (SHAPING, SHAPING | {"level": "turn"}, "reward"),
    "path": (SHAPING | {"rubric": "a.yaml"}, SHAPING | {"rubric": "./a.yaml"}, "reward"),
    "part of the reward": (mix(desk=DESK, shape=SHAPING), SHAPING, "reward.parts.shape"),
    "deeper": (mix(desk=DESK, all=mix(shape=SHAPING)), SHAPING, "reward.parts.all.parts.shape"),
    "part of the held out": (DESK, mix(desk=DESK, shape=SHAPING), "reward"),
    "judge by default": (DESK, DESK | {"judge": "trained"}, "reward"),
    "a judge that is not needed": (SHAPING | {"kind": "rubric_judge", "judge": "x"}, SHAPING, "reward"),
}


@pytest.mark.parametrize("name", SAME)
def test_a_source_of_the_reward_cannot_be_held_out(name: str) -> None:
    reward, heldout, place = SAME[name]
    with pytest.raises(ValidationError, match=f"heldout: {place} is the same source.*name other criteria"):
        PolicyStageConfig.model_validate({"reward": reward, "heldout": heldout})


OTHER: dict[str, tuple[Any, Any]] = {
    "rubric": (SHAPING, CODE),
    "judge": (DESK, DESK | {"judge": "other/judge"}),
    "verifier in both": (mix(v={"kind": "verifier"}, d=DESK), mix(v={"kind": "verifier"}, s=SHAPING)),
    "without weight": (mix(d=DESK, s=SHAPING) | {"weights": {"d": 1.0, "s": 0.0}}, SHAPING),
    "oracle": ({"kind": "desk_oracle", "filler_pay": 0.7}, {"kind": "desk_oracle"}),
}


@pytest.mark.parametrize("name", OTHER)
def test_another_source_can_be_held_out(name: str) -> None:
    reward, heldout = OTHER[name]
    assert PolicyStageConfig.model_validate({"reward": reward, "heldout": heldout}).heldout is not None
