"""The first mistakes of a caller in Python: a trainer names the argument, what it was and what is wanted."""

import math
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.arguments import fixed_positions
from axiomrm.policy_opt.config import PolicyConfig, RolloutConfig
from axiomrm.policy_opt.rewards.heldout import HeldOutCriteria
from axiomrm.policy_opt.rewards.sources import Composite, verifier_reward


class Tokenizer:
    """What a tokenizer has and a chat format has not."""

    def apply_chat_template(self, messages: Any) -> str:
        return ""


def of_trl(prompts: Any, completions: Any, **columns: Any) -> list[float]:
    return [1.0 for _ in completions]


def config(**rollout: Any) -> PolicyConfig:
    return PolicyConfig(
        iterations=1, tasks_per_iteration=2, group_size=2, rollout=RolloutConfig(max_turn_tokens=4, **rollout)
    )


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "trl reward": ({"turn_judge": of_trl}, r"turn_judge: found <function of_trl.*, expected a function from a list "
        r"of trajectories to TurnScores, one each; this one takes \(prompts, completions, \*\*columns\)$"),
    "no judge": ({"turn_judge": 3}, r"turn_judge: found 3 \(int\), expected a function from a list of trajectories"),
    "tracker": ({"tracker": "tensorboard"}, r"tracker: found 'tensorboard' \(str\), expected an object with log\(.*"
        r"open_tracker\('tensorboard', folder, run\) opens one"),
    "held out": ({"heldout": verifier_reward}, r"heldout: found .*HeldOutCriteria\(judge\) makes one"),
    "rewarded": ({"turn_judge": verifier_reward, "heldout": HeldOutCriteria(verifier_reward)},
        "heldout: asks the turn judge, which the policy is rewarded by"),
    "callback": ({"on_iteration": lambda iteration: None}, "on_iteration: found .* of iteration, metrics and ep"),
    "model": ({"model": "gpt2"}, r"model: found 'gpt2' \(str\), expected a causal language model; "
        r"transformers.AutoModelForCausalLM.from_pretrained\('gpt2'\) loads one"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_trainer_names_what_it_cannot_be_made_of(toy: Any, tmp_path: Path, name: str) -> None:
    options, says = WRONG[name]
    with pytest.raises(ConfigError, match=f"^policy training: {says}"):
        toy.trainer(tmp_path, config(), **{"model": toy.model(), **options})


def test_a_tokenizer_is_no_chat_format(toy: Any, tmp_path: Path) -> None:
    kind = type(toy.trainer(tmp_path, config(), model=toy.model()))
    with pytest.raises(ConfigError, match=r"chat: found .*ChatFormat; .*TemplateChat\(tokenizer\) makes one"):
        kind(toy.model(), Tokenizer(), toy.env, toy.tasks(2), config(), tmp_path)


def test_a_folder_that_is_a_file_or_lies_below_one_is_refused(toy: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "run" / "a"):
        with pytest.raises(ConfigError, match=r"^policy training: folder .*file' is a file; name a folder"):
            toy.trainer(folder, config(), model=toy.model())
    with pytest.raises(ConfigError, match=r"^policy training: folder: found None"):
        toy.trainer(None, config(), model=toy.model())
    toy.trainer(tmp_path / "new" / "run", config(), model=toy.model())


def test_episodes_longer_than_the_models_positions_are_refused(toy: Any, tmp_path: Path) -> None:
    says = r"rollout.max_episode_tokens=2049: the model has 2048 positions; set at most 2048"
    with pytest.raises(ConfigError, match=says):
        toy.trainer(tmp_path, config(max_episode_tokens=2049), model=toy.model())
    toy.trainer(tmp_path, config(max_episode_tokens=2048), model=toy.model())


def test_scaled_or_endless_positions_are_left_alone(toy: Any) -> None:
    model = toy.model()
    assert fixed_positions(model) == 2048
    model.config.rope_parameters = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}
    assert fixed_positions(model) is None
    model.config.rope_parameters = {"full_attention": {"rope_type": "linear", "factor": 2.0}}
    assert fixed_positions(model) is None
    model.config.rope_parameters, model.config.alibi = {"rope_type": "default", "rope_theta": 1e4}, True
    assert fixed_positions(model) is None
    model.config.alibi, model.config.max_position_embeddings = False, 0
    assert fixed_positions(model) is None
    assert fixed_positions(object()) is None


@pytest.mark.parametrize("share", [0.0, 5, -0.1, math.nan, "0.1", None])
def test_a_share_of_held_out_rollouts_lies_above_0_and_at_most_at_1(share: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"^held-out criteria: share: found .*, expected a number in \(0, 1\]"
    ):
        HeldOutCriteria(verifier_reward, share)
    assert HeldOutCriteria(verifier_reward, 1).share == 1


def test_sources_of_another_kind_are_refused_where_they_are_put_together() -> None:
    with pytest.raises(ConfigError, match=r"^held-out criteria: judge: found <function of_trl"):
        HeldOutCriteria(of_trl)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"^composite reward: parts\['a'\]: found .*this one takes \(prompts"
    ):
        Composite({"a": of_trl}, {"a": 1.0})  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match=r"^composite reward: parts: found \[.*\(list\), expected a dict"):
        Composite([verifier_reward], [1.0])  # type: ignore[arg-type]


@pytest.mark.parametrize("weight", ["1", None, math.inf])
def test_a_weight_of_a_composite_is_a_finite_number(weight: Any) -> None:
    with pytest.raises(ConfigError, match=r"^composite reward: weights \{'a': .*\} must be finite numbers"):
        Composite({"a": verifier_reward}, {"a": weight})


def test_a_judge_may_take_more_than_it_is_given(toy: Any, tmp_path: Path) -> None:
    def judge(trajectories: list[Trajectory], strict: bool = True, **more: Any) -> Any:
        return toy.judge(trajectories)

    toy.trainer(tmp_path, config(), model=toy.model(), turn_judge=judge)
