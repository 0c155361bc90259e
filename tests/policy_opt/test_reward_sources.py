import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from axiomrm.data.trajectory import Message, Outcome, Task, ToolCall, Trajectory
from axiomrm.errors import ConfigError, DataError
from axiomrm.personalization.profile import profile_of
from axiomrm.policy_opt.records import TrajectoryRecord
from axiomrm.policy_opt.reward_build import build_reward
from axiomrm.policy_opt.rewards.base import Episode, StatefulJudge, TurnScores, apply_scores
from axiomrm.policy_opt.rewards.config import RewardConfig
from axiomrm.policy_opt.rewards.judge import programmatic_reward
from axiomrm.policy_opt.rewards.labels import LabelReward, read_labels
from axiomrm.policy_opt.rewards.personal import PersonalReward, Scale, read_profiles
from axiomrm.policy_opt.rewards.sources import Composite, verifier_reward
from axiomrm.rm import RewardModel
from axiomrm.rubrics import Rubric

NAN = math.nan
REWARD: TypeAdapter[Any] = TypeAdapter(RewardConfig)


def talk(name: str = "a", *, turns: int = 2, outcome: float | None = 1.0, subject: str = "") -> Trajectory:
    messages = [m for t in range(turns) for m in (Message(role="user", content=f"q{t}"), said(f"a{t}"))]
    features = {"subject": subject} if subject else {}
    return Trajectory(
        messages=tuple(messages), id=name, task=Task(features=features), outcome=Outcome(score=outcome)
    )


def said(text: str) -> Message:
    return Message(role="assistant", content=text)


def fixed(
    turns: Sequence[float], whole: float = NAN, level: Any = "both", reason: str = "cannot_assess:x"
) -> Any:
    reasons = [reason if math.isnan(r) else None for r in turns]
    return lambda ts: [TurnScores(list(turns), list(reasons), "r", "h", whole, level=level) for _ in ts]


def no_judge(name: str) -> RewardModel:
    raise AssertionError(f"{name}: no judge is needed here")


def test_the_verifier_rewards_the_whole_and_is_not_asked_about_turns() -> None:
    (found,) = verifier_reward([talk(outcome=0.5)])
    assert found.trajectory == 0.5 and all(map(math.isnan, found.turns))
    assert found.reasons == ["not_asked:verifier"] * 2
    assert math.isnan(verifier_reward([talk(outcome=None)])[0].trajectory)


def test_a_mix_is_the_weighted_sum_of_those_that_speak_about_the_unit() -> None:
    mix = Composite(
        {
            "judge": fixed([0.2, 0.4], 0.5),
            "rule": fixed([1.0, 0.0], level="turn"),
            "outcome": verifier_reward,
        },
        {"judge": 2.0, "rule": -0.5, "outcome": 3.0},
    )
    (found,) = mix([talk()])
    assert found.turns == pytest.approx([2 * 0.2 - 0.5, 2 * 0.4])
    assert found.trajectory == pytest.approx(2 * 0.5 + 3 * 1.0)  # the rule says nothing about the whole
    assert found.parts[0] == pytest.approx({"judge": 0.4, "rule": -0.5})
    assert found.mixed and found.level == "both"


@pytest.mark.parametrize("reason", ["cannot_assess:x", "failed:timeout"])
def test_a_missing_part_makes_the_sum_missing_never_smaller(reason: str) -> None:
    shy = fixed([NAN, 1.0], NAN, reason=reason)
    mix = Composite({"a": fixed([1.0, 1.0], 1.0), "b": shy}, {"a": 1.0, "b": 1.0})
    (found,) = mix([talk()])
    assert math.isnan(found.turns[0]) and found.turns[1] == 2.0 and math.isnan(found.trajectory)
    assert found.reasons == [reason, None]


def test_a_failure_outranks_an_abstention_as_the_reason() -> None:
    parts = {"a": fixed([NAN]), "b": fixed([NAN], reason="failed:timeout")}
    assert Composite(parts, {"a": 1, "b": 1})([talk(turns=1)])[0].reasons == ["failed:timeout"]


def test_parts_without_weights_and_weights_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(ConfigError, match="same things"):
        Composite({"a": verifier_reward}, {"b": 1.0})
    with pytest.raises(ConfigError, match="finite"):
        Composite({"a": verifier_reward}, {"a": NAN})


def test_a_configured_mix_stands_for_outcome_and_judge_and_a_missing_mix_is_missing() -> None:
    record = TrajectoryRecord("a", "t", "g", [], [], 0, outcome=1.0)
    apply_scores([Episode(record, talk(turns=0))], [TurnScores([], [], "r", "h", 0.3, mixed=True)])
    assert record.r_global == 0.3
    record.judge_reward = NAN
    assert math.isnan(record.r_global)
    record.mixed = False
    assert record.r_global == 1.0


def call_turn(name: str) -> Trajectory:
    calls = (ToolCall(name=name, arguments={"q": "x"}, id="c1"),)
    call = Message(role="assistant", tool_calls=calls, extra={"expected_tools": ["search"]})
    tool = {
        "type": "function",
        "function": {"name": "search", "parameters": {"type": "object", "properties": {}}},
    }
    return Trajectory(
        messages=(Message(role="user", content="q"), call, Message(role="tool", content="r", tool_call_id="c1")),
        tools=(tool,),
        outcome=Outcome(score=1.0, metrics={"tests_passed": 8, "tests_total": 10, "compiles": True, "starts": True,
                                            "changed_paths": ["a", "b", "c"], "steps": 12}),
    )  # fmt: skip


def test_the_code_preset_gives_its_documented_number() -> None:
    (found,) = programmatic_reward(Rubric.load("code_agent"))([call_turn("search")])
    assert found.trajectory == pytest.approx(0.6298, abs=1e-4)  # RUBRICS.md: 0.48 + 0.2 - 0.0222 - 0.028


def test_a_programmatic_reward_refuses_a_rubric_that_needs_a_model() -> None:
    with pytest.raises(ConfigError, match="service_desk_steps"):
        programmatic_reward(Rubric.load("service_desk_steps"))


# --- labels -------------------------------------------------------------------------------------------------


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text(
        "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), encoding="utf-8"
    )
    return path


def test_labels_of_people_become_rewards_and_an_unlabelled_turn_is_missing(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "turn": 0, "reward": 1, "source": "human", "rater": "r1"},
        {"id": "a", "turn": 0, "reward": 0, "source": "human", "rater": "r2"},
        {"id": "a", "turn": 1, "reward": 0.2, "source": "ai"},
        {"id": "a", "reward": 0.7, "source": "human"},
    ]
    path = write(tmp_path / "labels.jsonl", rows)
    one, other = LabelReward.read(path)([talk("a"), talk("b")])
    assert one.turns == [0.5, 0.2] and one.trajectory == 0.7 and one.mixed
    assert all(map(math.isnan, [*other.turns, other.trajectory]))
    assert other.reasons == ["cannot_assess:no label"] * 2
    (people,) = LabelReward.read(path, "human")([talk("a")])
    assert people.turns[0] == 0.5 and math.isnan(people.turns[1])


def test_more_labels_of_the_same_people_are_the_same_judge(tmp_path: Path) -> None:
    first = {"id": "a", "turn": 0, "reward": 1, "source": "human", "rater": "r1"}
    path = write(tmp_path / "labels.jsonl", [first])
    before = LabelReward.read(path).revision
    write(path, [first, {**first, "id": "b", "rater": "r2"}])
    assert LabelReward.read(path).revision == before == "human"
    write(path, [first, {**first, "source": "ai"}])
    assert LabelReward.read(path).revision == "ai+human"


def test_a_label_of_another_text_is_not_used(tmp_path: Path) -> None:
    right = {"id": "a", "turn": 0, "reward": 1, "source": "human", "content_hash": talk("a").content_hash}
    path = write(tmp_path / "l.jsonl", [right, {**right, "turn": 1, "content_hash": "0" * 64}])
    (found,) = LabelReward.read(path)([talk("a")])
    assert found.turns[0] == 1.0 and math.isnan(found.turns[1])


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("{", "JSON"),
        ({"turn": 0, "reward": 1, "source": "ai"}, "id"),
        ({"id": "a", "turn": -1, "reward": 1, "source": "ai"}, "turn"),
        ({"id": "a", "turn": 0, "reward": None, "source": "ai"}, "finite number"),
        ({"id": "a", "turn": 0, "reward": True, "source": "ai"}, "finite number"),
        ({"id": "a", "turn": 0, "reward": 10**400, "source": "ai"}, "finite number of at most 1e+09 in size"),
        ({"id": "a", "turn": 0, "reward": 1, "source": "cat"}, "'human' or 'ai'"),
        ({"id": "a", "turn": 0, "reward": 1, "source": "ai", "score": 1}, "unknown keys"),
        ({"id": "a", "turn": 0, "reward": 1, "source": "ai", "rater": "r"}, "on line 1"),
    ],
)
def test_a_bad_label_is_rejected_with_file_line_and_reason(tmp_path: Path, row: Any, says: str) -> None:
    good = {"id": "a", "turn": 0, "reward": 0.5, "source": "ai", "rater": "r"}
    labels, rejected = read_labels(write(tmp_path / "l.jsonl", [good, row]))
    assert [label.reward for label in labels] == [0.5]
    assert rejected[0].line == 2 and rejected[0].file.endswith("l.jsonl") and says in rejected[0].reason


def test_a_file_without_a_usable_label_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no usable label"):
        LabelReward.read(write(tmp_path / "l.jsonl", ["{"]))


# --- personal -----------------------------------------------------------------------------------------------

LENGTHS = Rubric.load(Path(__file__).with_name("lengths.yaml"))
ANNA, BERT = "u-3f9a11c2", "u-77b0e4d9"


def spoke(name: str, subject: str, *texts: str) -> Trajectory:
    return Trajectory(id=name, messages=tuple(map(said, texts)), task=Task(features={"subject": subject}))


def personal() -> PersonalReward:
    profiles = {token: profile_of(token, {}) for token in (ANNA, BERT)}
    return PersonalReward(RewardModel.programmatic(), LENGTHS, profiles)


def test_each_user_has_a_scale_of_their_own() -> None:
    source = personal()
    a, b, stranger = source(
        [spoke("1", ANNA, "short", "short", "this is far too long", "short"), spoke("2", BERT, "ok", "no"),
         spoke("3", "u-00000000", "ok")]
    )  # fmt: skip
    # Anna: 1 1 0 1, mean .75, std sqrt(3)/4; Bert: all 1, std 0, floored
    assert a.turns == pytest.approx([0.57735, 0.57735, -1.73205, 0.57735], abs=1e-4)
    assert b.turns == [0.0, 0.0]
    assert math.isnan(stranger.turns[0]) and stranger.reasons == ["cannot_assess:no profile"]


def test_one_single_value_has_no_scale_and_is_missing() -> None:
    (found,) = personal()([spoke("1", ANNA, "short")])
    assert math.isnan(found.turns[0]) and found.reasons == ["cannot_assess:the user has no scale yet"]


def test_scales_are_as_they_were_before_the_batch_survive_a_checkpoint_and_can_be_forgotten() -> None:
    one = personal()
    one([spoke("1", ANNA, "short", "this is far too long")])  # mean .5, std .5
    two = personal()
    assert isinstance(two, StatefulJudge)
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    batch = [spoke("2", ANNA, "short", "this is far too long", "short")]
    assert one(batch)[0].turns == two(batch)[0].turns == [1.0, -1.0, 1.0]
    mixed = Composite({"users": one, "steps": verifier_reward}, {"users": 1.0, "steps": 1.0})
    mixed.forget(ANNA)  # a part that keeps nothing is left alone
    assert one.state_dict() == {} and math.isnan(one(batch)[0].turns[0])


def test_two_scales_blend_slowly() -> None:
    scale = Scale(0.0, 1.0).after([1.0, 3.0])
    assert (scale.mean, scale.std) == pytest.approx((0.05 * 2.0, 0.95 + 0.05 * 1.0))
    assert Scale(0.0, 1.0).after([]) == Scale(0.0, 1.0)


def test_a_name_is_no_subject_and_no_consent_no_profile(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="opaque"):
        PersonalReward(RewardModel.programmatic(), LENGTHS, {"anna@mail.org": profile_of("x" * 8, {})})
    rows = [
        {"subject": ANNA, "slots": {"stated.verbosity": 2}, "policy_training": True},
        {"subject": BERT, "slots": {"stated.verbosity": 2}},
        {"subject": "Bert Long", "slots": {}, "policy_training": True},
        {"subject": ANNA, "slots": {}, "policy_training": True},
    ]
    profiles, rejected = read_profiles(write(tmp_path / "p.jsonl", rows))
    assert list(profiles) == [ANNA] and "policy_training" in profiles[ANNA].values[0].purposes
    assert [(r.line, r.reason.split(":")[0]) for r in rejected] == [
        (2, "policy_training is not true"), (3, "subject"), (4, "subject stands twice"),
    ]  # fmt: skip


# --- configuration ------------------------------------------------------------------------------------------


def test_yaml_names_sources_by_kind_and_builds_them(tmp_path: Path) -> None:
    labels = write(tmp_path / "l.jsonl", [{"id": "a", "reward": 1, "source": "ai"}])
    config = REWARD.validate_python(
        {
            "kind": "composite",
            "parts": {
                "outcome": {"kind": "verifier"},
                "people": {"kind": "labels", "path": str(labels)},
                "steps": {"kind": "programmatic", "rubric": "process_shaping"},
            },
            "weights": {"outcome": 1, "people": 0.5, "steps": 2},
        }
    )
    (found,) = build_reward(config, no_judge)([call_turn("search").model_copy(update={"id": "a"})])
    assert found.turns == pytest.approx([2 * 0.15])  # right tool 0.1, well formed 0.05
    assert REWARD.validate_python(config.model_dump(mode="json")) == config


def test_an_unknown_kind_and_a_weight_too_few_are_refused() -> None:
    with pytest.raises(ValidationError, match="kind"):
        REWARD.validate_python({"kind": "vibes"})
    with pytest.raises(ValidationError, match="same things"):
        REWARD.validate_python({"kind": "composite", "parts": {"a": {"kind": "verifier"}}, "weights": {}})


@pytest.mark.parametrize("level", ["turns", "trajectories", None])
def test_another_level_is_refused_when_the_source_is_made(level: Any) -> None:
    with pytest.raises(ConfigError, match=r"level: found .* expected one of turn, trajectory, both$"):
        programmatic_reward(Rubric.load("process_shaping"), level)
