import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from axiomrm.errors import ConfigError, DataError
from axiomrm.rm import RewardModel
from axiomrm.rm.adapters import (
    TRL_LOGGER,
    check_trl_rewards,
    completed,
    hide_texts_in_trl_log,
    mixed_reward,
    mixed_rewards,
    trl_reward,
)
from axiomrm.rubrics import Rubric

SHORT_TEXT = """
schema: atr/1
rubric: {id: short, version: 1.0.0, title: At most three words, languages: [en], license: Apache-2.0}
facets: {n: {type: int, range: [0, 2000], probe: word_count}}
defaults: {evidence: {level: turn, reduce: mean}}
axioms: [{id: ax.short, type: premise, statement: Words cost time.}]
theorems:
  - {id: th.short, derived_from: [ax.short], derivation: fewer words cost less, statement: At most three words.,
     requires: n <= 3, judge: {kind: constraint}}
policy: {scale: net}
changelog: [{version: 1.0.0, date: "2026-01-12", note: first}]
"""
SHORT = Rubric.loads(SHORT_TEXT)
USER = [{"role": "user", "content": "where is order 12?"}]
TOOL_RUN = [
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"type": "function", "function": {"name": "find", "arguments": {"order": "12"}}}],
    },
    {"role": "tool", "name": "find", "content": "shipped"},
    {"role": "assistant", "content": "It is on its way to you."},
]


def test_texts_and_messages_are_scored_alike_and_what_cannot_be_read_is_none() -> None:
    reward = trl_reward(RewardModel.programmatic(), SHORT)
    rewards = reward(
        prompts=["hi", USER, USER, USER],
        completions=[
            "it was sent",
            [{"role": "assistant", "content": "It was sent by ship."}],
            [],
            [{"role": "x"}],
        ],
        completion_ids=[[1]] * 4,
        trainer_state=None,
    )
    assert rewards == [1.0, 0.0, None, None]


def test_a_tool_run_loads_as_a_trajectory_with_its_calls_and_results() -> None:
    trajectory, first = completed(
        [*USER, {"role": "assistant", "content": "One moment."}, *USER], TOOL_RUN, {}
    )
    assert (len(trajectory.turns), first) == (3, 1)
    assert trajectory.turns[1].action.tool_calls[0].arguments == {"order": "12"}
    assert [m.role for m in trajectory.turns[1].messages] == ["assistant", "tool"]


def test_only_the_completions_own_turns_count_at_level_turns() -> None:
    prompt = [*USER, {"role": "assistant", "content": "far too many words here"}, *USER]
    own = trl_reward(RewardModel.programmatic(), SHORT, level="turns")
    whole = trl_reward(RewardModel.programmatic(), SHORT)
    said = [{"role": "assistant", "content": "Sent today."}]
    assert own(prompts=[prompt], completions=[said]) == [1.0]
    assert whole(prompts=[prompt], completions=[said]) == [0.5]


def test_a_missing_reward_is_none_not_zero_and_the_judge_says_how_often_and_why(
    make_model: Callable[..., Any], tiny_tokenizer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    told: dict[str, float] = {}
    judge = RewardModel.from_model(make_model(), tiny_tokenizer, min_mass=1.0)
    reward = trl_reward(judge, Rubric.load("service_desk_steps"), level="turns")
    assert reward(prompts=["hi"], completions=["hello"], log_metric=told.__setitem__) == [None]
    assert told == {"judge/missing_share": 1.0}
    assert "reward 'service_desk_steps': a completion has none:" in caplog.text
    assert "failed:low_mass" in caplog.text


def test_a_rubric_that_could_never_give_a_reward_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"'general_quality' has items that need a judge model.*th\.correct"
    ):
        trl_reward(RewardModel.programmatic(), Rubric.load("general_quality"))
    with pytest.raises(ConfigError, match=r"'code_agent' has no criterion of turns; use level 'trajectory'"):
        trl_reward(RewardModel.programmatic(), Rubric.load("code_agent"), level="turns")


@pytest.mark.parametrize("level", ["trajectories", "trajectry", "turn", "", None])
def test_a_level_that_is_none_is_refused(level: Any) -> None:
    with pytest.raises(ConfigError, match=r"level: found .*, expected one of trajectory, turns$"):
        trl_reward(RewardModel.programmatic(), SHORT, level=level)


def test_each_different_reason_of_a_missing_reward_is_logged_once_without_texts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reward = trl_reward(RewardModel.programmatic(), Rubric.load("process_shaping"))
    for _ in range(2):
        assert reward(
            prompts=["q"] * 4,
            completions=["a", "a", [{"role": "x", "content": "secret"}], ["secret"]],
            features=["{}", "{}", {}, {}],
        ) == [None] * 4  # fmt: skip
    assert [r.getMessage().partition(": a completion has none: ")[2] for r in caplog.records] == [
        "features: expected an object a row, not str",
        "completion[0].role: 'x' is not one of system, developer, user, assistant, tool, function",
        "completion[0]: expected an object with 'role' and 'content'",
    ]
    assert "secret" not in caplog.text


def test_a_missing_feature_is_named_once_whatever_the_task(caplog: pytest.LogCaptureFixture) -> None:
    domain = "features: {domain: {type: enum, values: [a, b]}}"
    needy = Rubric.loads(SHORT_TEXT.replace("facets:", f"{domain}\nfacets:"))
    reward = trl_reward(RewardModel.programmatic(), needy)
    rows = {"prompts": ["q"] * 2, "completions": ["a"] * 2}
    assert reward(**rows, features=[{}, {}], task_id=["t1", "other"]) == [None, None]
    assert "feature 'domain' is missing" in caplog.text and len(caplog.records) == 1
    assert reward(**rows, features=[{"domain": "a"}, {"domain": "b"}]) == [1.0, 1.0]


def test_columns_become_the_task_and_a_bad_one_costs_its_row_only() -> None:
    trajectory, _ = completed("q", "a", {"features": {"domain": "orders"}, "reference": 7, "task_id": "t1"})
    assert trajectory.task.features == {"domain": "orders"} and trajectory.task.reference == 7
    reward = trl_reward(RewardModel.programmatic(), SHORT)
    assert reward(prompts=["q", "q"], completions=["a", "a"], features=[{}, "no object"]) == [1.0, None]


def test_judge_and_verifier_mix_into_one_function_where_a_failed_judge_adds_no_penalty() -> None:
    judge = trl_reward(RewardModel.programmatic(), SHORT)

    def verifier(prompts: Any, completions: Any, **columns: Any) -> list[float | None]:
        return [0.0, 1.0]

    reward = mixed_reward({"judge": judge, "verifier": verifier}, {"judge": 1.0, "verifier": 2.0})
    assert reward(prompts=["q", "q"], completions=["a", []]) == [1.0, None]
    with pytest.raises(DataError, match="same things"):
        mixed_reward({"judge": judge}, {"verifier": 1.0})
    with pytest.raises(DataError, match="differ in length"):
        mixed_rewards({"a": [1.0], "b": []}, {"a": 1, "b": 1})


@pytest.mark.parametrize("weight", [math.nan, math.inf, "1", None])
def test_a_weight_that_is_no_finite_number_is_refused(weight: Any) -> None:
    says = r"^weight of reward part 'a': found .*, expected a finite number$"
    with pytest.raises(DataError, match=says):
        mixed_reward({"a": lambda **_: [1.0]}, {"a": weight})
    with pytest.raises(DataError, match=says):
        mixed_rewards({"a": [1.0]}, {"a": weight})


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ([1.0, 2.0], r"'a': found \[1.0, 2.0\] \(list\), expected a list of 1 rewards, one a completion"),
        ([], r"'a': found \[\] \(list\), expected a list of 1"),
        (None, r"'a': found None \(NoneType\), expected a list of 1"),
        (["1.0"], r"'a', row 0: found '1.0' \(str\), expected a finite number, or None for a missing one"),
        ([math.inf], r"'a', row 0: found inf \(float\), expected a finite number"),
    ],
)
def test_a_part_of_a_mix_that_answers_wrongly_is_named(answer: Any, says: str) -> None:
    reward = mixed_reward({"a": lambda **_: answer, "b": lambda **_: [1.0]}, {"a": 1.0, "b": 1.0})
    with pytest.raises(DataError, match=f"^reward part {says}"):
        reward(prompts=["q"], completions=["a"])


def test_a_part_may_answer_with_any_kind_of_number() -> None:
    part: Any = lambda **_: torch.tensor([1.0, math.nan])  # noqa: E731  # of no type that a part says
    reward = mixed_reward({"a": part}, {"a": 2})
    assert reward(prompts=["q"] * 2, completions=["a"] * 2) == [2.0, None]


def test_several_functions_that_trl_would_sum_first_are_refused() -> None:
    judge = trl_reward(RewardModel.programmatic(), SHORT)
    with pytest.raises(ConfigError, match="counts a missing verdict as 0"):
        check_trl_rewards([judge, judge])
    check_trl_rewards([judge, judge], "normalize_then_sum")
    check_trl_rewards([judge])
    check_trl_rewards(judge)


def test_the_warning_of_trl_shows_no_text_of_users(caplog: pytest.LogCaptureFixture) -> None:
    hide_texts_in_trl_log()
    hide_texts_in_trl_log()
    with caplog.at_level(logging.WARNING, TRL_LOGGER):
        logging.getLogger(TRL_LOGGER).warning("All reward functions returned None for the following: secret")
    assert "secret" not in caplog.text and "no reward" in caplog.text


@pytest.mark.slow
def test_a_real_grpo_run_trains_on_the_judge(
    tmp_path: Path, make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    judge = RewardModel.from_model(make_model(), tiny_tokenizer, min_mass=0.0, untrained=True)
    scored = trl_reward(judge, Rubric.load("service_desk_steps"), level="turns")
    seen: list[list[float | None]] = []

    def reward(**columns: Any) -> list[float | None]:
        rewards = scored(**columns)
        rewards[0] = None  # one judgement fails at each step
        seen.append(rewards)
        return rewards

    options = GRPOConfig(
        output_dir=str(tmp_path), max_steps=5, per_device_train_batch_size=4, num_generations=4,
        max_completion_length=8, learning_rate=1e-2, report_to="none", use_cpu=True, bf16=False, logging_steps=1,
        save_strategy="no", disable_tqdm=True, gradient_checkpointing=False,
    )  # fmt: skip
    check_trl_rewards(reward, options.multi_objective_aggregation)
    rows = Dataset.from_list([{"prompt": USER}] * 8)
    policy = make_model()
    before = [p.detach().clone() for p in policy.parameters()]
    trainer = GRPOTrainer(
        model=policy, reward_funcs=reward, args=options, train_dataset=rows, processing_class=tiny_tokenizer
    )
    trainer.train()
    assert len(seen) == 5 and all(r[0] is None and None not in r[1:] for r in seen)
    assert any((a != b).any() for a, b in zip(before, policy.parameters(), strict=True))
    logged = [row["reward"] for row in trainer.state.log_history if "reward" in row]
    known = [[v for v in r if v is not None] for r in seen]
    assert logged == pytest.approx([sum(k) / len(k) for k in known], abs=1e-4)
