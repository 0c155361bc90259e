"""What a person gets to read: which rollouts, with what the judge wrote and what each step was trained with."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axiomrm.data.trajectory import Message, Outcome, Task, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.personalization.compile import compile_criteria
from axiomrm.personalization.profile import profile_of
from axiomrm.policy_opt.algorithms.build import build_algorithm
from axiomrm.policy_opt.config import (
    BestOfKConfig,
    GiGPOConfig,
    GRPOConfig,
    PolicyConfig,
    PPOConfig,
    ProcessReplayConfig,
    RLOOConfig,
    RolloutConfig,
)
from axiomrm.policy_opt.monitoring.spot_checks import LONGEST, pick, read_spot_checks, write_spot_checks
from axiomrm.policy_opt.monitoring.told_advantages import told_advantages
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.rewards.answers import asked_about
from axiomrm.policy_opt.rewards.base import Episode, TurnScores, apply_scores
from axiomrm.policy_opt.rewards.judge import programmatic_reward, scores
from axiomrm.policy_opt.rewards.personal import PersonalReward
from axiomrm.policy_opt.rewards.sources import Composite, verifier_reward
from axiomrm.rm import RewardModel
from axiomrm.rm.judgement import Judgement, TurnJudgement
from axiomrm.rubrics import Rubric

NAN = math.nan
SHORT = Rubric.load(Path(__file__).with_name("lengths.yaml"))


def talk(name: str, rewards: Sequence[float] = (NAN, NAN), outcome: float | None = 1.0) -> Trajectory:
    said = [m for t in range(len(rewards)) for m in (_said("user", f"q{t}"), _said("assistant", f"a{t}"))]
    return Trajectory(
        id=name, messages=tuple(said), outcome=Outcome(score=outcome), turn_rewards=tuple(rewards),
        task=Task(features={"subject": "u-3f9a11c2"}),
    )  # fmt: skip


def _said(role: Any, text: str) -> Message:
    return Message(role=role, content=text)


def record(name: str, outcome: float, rewards: Sequence[float] = (NAN, NAN), group: str = "g") -> Any:
    steps = [
        StepRecord(
            traj_id=name, turn=t, segment=0, start=2 + 4 * t, end=4 + 4 * t, policy_version=0,
            behaviour_logprobs=np.array([-0.5, -0.25], dtype=np.float32), r_local=reward, anchor=t,
        )
        for t, reward in enumerate(rewards)
    ]  # fmt: skip
    ids = np.arange(4 * len(steps), dtype=np.int32)
    return TrajectoryRecord(name, "task", group, [ids], steps, 0, outcome=outcome)


def episode(name: str, outcome: float = 1.0, rewards: Sequence[float] = (NAN, NAN)) -> Episode:
    return Episode(record(name, outcome, rewards), talk(name, rewards, outcome))


def answer(critiques: list[dict[str, str]], turns: Sequence[float] = (0.5, 0.5), **more: Any) -> TurnScores:
    reasons = ["cannot_assess:x" if math.isnan(t) else None for t in turns]
    return replace(TurnScores(list(turns), reasons, "r", "h", critiques=critiques), **more)


# --- which ------------------------------------------------------------------------------------------------------


def test_each_end_of_reward_disagreement_and_advantage_is_named_with_its_place() -> None:
    read = [
        talk("a", [0.9, 0.7], 0.0),
        talk("b", [0.2, 0.4], 1.0),
        talk("c", [0.5, 0.5], 1.0),
        talk("d", [1, 1]),
    ]
    steps = {"a": [-0.5, -1.5], "b": [0.5, 2.0], "c": [0.25, NAN], "d": [1.0, -2.0]}
    found = {c.trajectory.id: c for c in pick(read, kept=1, advantages=steps)}
    assert {name: (c.why, c.value) for name, c in found.items()} == {
        "a": ("failed, but rewarded most", 0.8),
        "b": ("solved, but rewarded least", pytest.approx(0.3)),
        "d": ("highest turn rewards", 1.0),
    }
    # up: b 2, d 1, c .25; down: d -2, a -1.5. Lowest reward: b, named already.
    assert found["b"].places == {
        "solved, but rewarded least": 1, "lowest turn rewards": 1, "highest advantage": 1
    }  # fmt: skip
    assert found["d"].places == {"highest turn rewards": 1, "lowest advantage": 1}
    places = {c.trajectory.id: c.places for c in pick(read, kept=2, advantages=steps)}
    assert places["d"]["highest advantage"] == 2 and places["a"]["lowest advantage"] == 2


def test_a_rollout_that_no_judge_rewarded_is_found_by_its_advantage() -> None:
    read = [talk(name) for name in "abcd"]
    assert pick(read) == pick(read, advantages={}) == []
    found = pick(read, advantages={"a": [0.5, 0.5], "b": [-0.5, -0.75], "c": [0.0, 0.0], "d": [NAN, NAN]})
    assert [(c.trajectory.id, c.why, c.value) for c in found] == [
        ("a", "highest advantage", 0.5), ("b", "lowest advantage", -0.75)
    ]  # fmt: skip


def test_no_rollout_stands_at_both_ends_of_reward() -> None:
    found = pick([talk("a", [0.5], None), talk("b", [0.25], None)], kept=2)
    assert [dict(c.places) for c in found] == [{"highest turn rewards": 1}, {"highest turn rewards": 2}]


# --- advantages -------------------------------------------------------------------------------------------------


def test_advantages_told_afterwards_by_hand() -> None:
    # outcomes 1, 0, missing; turn rewards .5, 0 and 1, 0
    rows = [record("a", 1.0, [0.5, 0.0]), record("b", 0.0, [1.0, 0.0]), record("c", NAN, [0.0, 0.0])]

    def told(config: Any) -> Any:
        algorithm = build_algorithm(config)
        algorithm.ingest(rows, 0)
        algorithm.finish(0)
        return told_advantages(algorithm, rows)

    alone = pytest.approx([NAN, NAN], nan_ok=True)
    assert told(GRPOConfig(scale="none")) == {"a": [0.5, 0.5], "b": [-0.5, -0.5], "c": alone}
    # a 1.5 against b 1: means of the others
    assert told(RLOOConfig(reward="summed")) == {"a": [0.5, 0.5], "b": [-0.5, -0.5], "c": alone}
    # each turn is one state: returns of turn 0 gamma and 0, of turn 1 1 and 0
    found = told(GiGPOConfig(gamma=0.5, omega=1.0, scale="none"))
    assert found == {"a": [0.75, 1.0], "b": [-0.75, -1.0], "c": alone}
    assert told(BestOfKConfig()) is None
    assert told_advantages(build_algorithm(PPOConfig()), rows) is None
    assert {step.uses for row in rows for step in row.steps} == {0}


@pytest.mark.parametrize(
    "algorithm",
    [
        ProcessReplayConfig(reuse=0, calibrate_beta=False), GRPOConfig(passes=2), GRPOConfig(reward="summed"),
        RLOOConfig(kl_place="reward"), GiGPOConfig(minibatches=2),
    ],
    ids=["process_replay", "grpo", "grpo_summed", "rloo", "gigpo"],
)  # fmt: skip
def test_what_is_told_is_what_the_loss_was_given(toy: Any, tmp_path: Path, algorithm: Any) -> None:
    config = PolicyConfig(
        iterations=2, tasks_per_iteration=2, group_size=4, algorithm=algorithm,
        rollout=RolloutConfig(max_turn_tokens=4),
    )  # fmt: skip
    given: dict[tuple[str, int], float] = {}
    told: list[Any] = []
    made = toy.trainer(tmp_path, config, on_iteration=lambda i, row, es: told.append(afterwards(es)))
    loss = made.algorithm.token_loss

    def afterwards(episodes: list[Episode]) -> Any:
        return told_advantages(made.algorithm, [e.record for e in episodes])

    def spied(logp_N: Any, batch: Any) -> Any:
        for item, value in zip(batch.steps, batch.advantage_S.tolist(), strict=True):
            given[(item.record.traj_id, item.step.turn)] = value
        return loss(logp_N, batch)

    made.algorithm.token_loss = spied
    made.run()
    flat = {
        (name, turn): value
        for rows in told
        for name, values in rows.items()
        for turn, value in enumerate(values)
        if not math.isnan(value)
    }
    assert given and flat == pytest.approx(given, abs=1e-6)


# --- critiques --------------------------------------------------------------------------------------------------


def test_verdicts_with_a_text_give_it_and_the_others_nothing() -> None:
    verdicts: list[dict[str, Any]] = [
        {
            "a": Scored(value=1, critique="right"),
            "b": Scored(value=0),
            "c": Failed(kind="timeout", detail="x"),
        },
        {"a": CannotAssess(reason="no tool", critique="not shown")},
        {},
    ]
    turns = tuple(
        TurnJudgement(index=i, reward=1.0, interval=(1, 1), coverage=1, gate=None, verdicts=v)
        for i, v in enumerate(verdicts)
    )
    judgement = Judgement(reward=1.0, interval=(1, 1), coverage=1, gate=None, turns=turns)
    header = {"schema": "atr/1", "rubric": {"id": "abc", "version": "1.0.0"}}
    axiom = {"id": "ax.base", "type": "premise", "statement": "Serves."}
    common = {
        "derived_from": ["ax.base"],
        "derivation": "given",
        "evidence": {"level": "turn", "reduce": "mean"},
    }
    theorems = [{"id": name, "statement": f"Says {name}.", **common} for name in "abc"]
    rubric = Rubric.loads(json.dumps(header | {"axioms": [axiom], "theorems": theorems}), "abc.json")
    read, active = talk("t", [NAN] * 3), rubric.bind({}, task="t")
    assert scores(judgement, read, active).critiques == [{"a": "right"}, {"a": "not shown"}, {}]
    assert scores(judgement, read, active, "trajectory").critiques == []
    direct = judgement.model_copy(update={"turns": turns[2:]})
    assert scores(direct, read, active).critiques == []
    personal = profile_of("u-3f9a11c2", {}).view()
    assert scores(judgement, read, compile_criteria(personal, rubric, {}).active).critiques == []


def test_what_a_judge_of_a_users_own_rubric_wrote_stays_with_it() -> None:
    read = [talk("a", [NAN] * 2)]
    (generic,) = programmatic_reward(SHORT)(read)
    assert generic.critiques == [{"th.short": "n=1"}, {"th.short": "n=1"}]
    own = PersonalReward(RewardModel.programmatic(), SHORT, {"u-3f9a11c2": profile_of("u-3f9a11c2", {})})
    (found,) = own(read)
    assert found.turns == [0.0, 0.0] and found.critiques == []
    mix = Composite({"own": own, "all": programmatic_reward(SHORT)}, {"own": 1.0, "all": 1.0})
    assert mix(read)[0].critiques == [{"all/th.short": "n=1"}] * 2


def test_a_mix_keeps_what_each_part_wrote_about_turns() -> None:
    mix = Composite(
        {
            "kind": lambda _: [answer([{"tone": "warm"}, {}])],
            "right": lambda _: [answer([{"tone": "dry", "fact": "wrong"}, {"fact": "right"}])],
            "direct": lambda _: [answer([])],
            "whole": lambda _: [answer([{"x": "of the whole"}] * 2, level="trajectory")],
            "outcome": verifier_reward,
        },
        dict.fromkeys(("kind", "right", "direct", "whole", "outcome"), 1.0),
    )
    assert mix([talk("a")])[0].critiques == [
        {"kind/tone": "warm", "right/tone": "dry", "right/fact": "wrong"}, {"right/fact": "right"}
    ]  # fmt: skip
    silent = Composite(
        {"direct": lambda _: [answer([])], "outcome": verifier_reward}, {"direct": 1, "outcome": 1}
    )
    assert silent([talk("a")])[0].critiques == []


def test_what_is_written_about_a_turn_that_the_environment_rewarded_is_not_its_reason() -> None:
    made = episode("a", rewards=[NAN, 1.0])
    told = answer([{"a": "why", "b": ""}, {"a": "beside the point"}], [NAN, 0.0])
    apply_scores([made], asked_about(lambda _: [told], [made]))
    assert made.critiques == [{"a": "why"}, {}]
    apply_scores([made], [answer([{}, {}], [NAN, 0.0])])
    assert made.critiques == []


def test_rows_hold_critiques_cut_to_length_and_advantages_and_nothing_where_there_is_none(
    tmp_path: Path,
) -> None:
    long, path = "x" * (LONGEST + 1), tmp_path / "spot_checks.jsonl"
    made = [episode("a"), episode("b")]
    texts = [{"k": long, "l": "y" * LONGEST, "m": "half \ud83d"}, {}]
    apply_scores(made, [answer(texts), answer([])])
    write_spot_checks(path, 0, made, {"a": [1.5, NAN]})
    rows = {row["trajectory"]["id"]: row for row in read_spot_checks(path)}
    kept = rows["a"]["trajectory"]["metadata"]
    told, none = kept["turn_critiques"]
    assert {name: len(text) for name, text in told.items()} == {"k": LONGEST, "l": LONGEST, "m": 6}
    assert told["k"].endswith("x…") and told["l"].endswith("yy") and told["m"] == "half ?" and none == {}
    assert kept["turn_advantages"] == [1.5, None] and rows["a"]["places"]["highest advantage"] == 1
    assert not {"turn_critiques", "turn_advantages"} & set(rows["b"]["trajectory"]["metadata"])
