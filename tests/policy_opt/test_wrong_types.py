"""A judge or a caller in Python that hands over the wrong thing is told place, what was found, what was expected."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from axiomrm.data.trajectory import Message, Task, Trajectory
from axiomrm.errors import ConfigError, DataError
from axiomrm.policy_opt.config import PolicyConfig, ProcessReplayConfig, RolloutConfig
from axiomrm.policy_opt.monitoring.kept_rollouts import write_rollouts
from axiomrm.policy_opt.rewards.answers import ask
from axiomrm.policy_opt.rewards.base import TurnScores
from axiomrm.policy_opt.rewards.heldout import HeldOutCriteria
from axiomrm.policy_opt.rewards.sources import Composite
from axiomrm.policy_opt.rollouts.rollout import group_requests

RIGHT = TurnScores(
    [0.5, math.nan], [None, "cannot_assess:x"], "r1", "h", 0.25, [1.0, math.nan], [{"a": 0.5}, {}]
)


def spoilt(**fields: Any) -> TurnScores:
    return replace(RIGHT, **fields)


WRONG: dict[str, tuple[Any, str]] = {
    "nothing": (None, "judge: found None (NoneType), expected a list of 1 TurnScores"),
    "one": (RIGHT, "judge: found TurnScores("),
    "another number": ([RIGHT, RIGHT], "judge: 2 answers for 1 trajectories"),
    "no scores": ([[0.5, 0.5]], "judge, trajectory 'a': found [0.5, 0.5] (list), expected a TurnScores"),
    "short": ([spoilt(turns=[0.5])], "turns: found [0.5] (list), expected a list with one entry for each of 2"),
    "number": ([spoilt(turns=0.5)], "turns: found 0.5 (float), expected a list"),
    "turn": ([spoilt(turns=[0.5, None])], "turns[1]: found None (NoneType), expected a finite number, or NaN"),
    "turn text": ([spoilt(turns=["0.5", 1.0])], "turns[0]: found '0.5' (str)"),
    "turn infinite": ([spoilt(turns=[0.5, -math.inf])], "turns[1]: found -inf (float)"),
    "turn infinite in half precision": ([spoilt(turns=[0.5, np.float16("inf")])], "turns[1]: found np.float16(inf)"),
    "turn huge": ([spoilt(turns=[0.5, -1.1e9])], "turns[1]: found -1100000000.0 (float), expected a finite number, or NaN for"),
    "turn beyond floats": ([spoilt(turns=[0.5, 10**400])], "at most 1e+09 in size"),
    "whole infinite": ([spoilt(trajectory=math.inf)], "trajectory 'a': trajectory: found inf (float), expected"),
    "whole": ([spoilt(trajectory=None)], "trajectory: found None (NoneType), expected a finite number, or NaN"),
    "reasons": ([spoilt(reasons=None)], "reasons: found None (NoneType), expected a list"),
    "reason": ([spoilt(reasons=[None, 3])], "reasons[1]: found 3 (int), expected text or None"),
    "coverage": ([spoilt(coverage=[1.0])], "coverage: found [1.0] (list), expected a list with one entry"),
    "coverage infinite": ([spoilt(coverage=[1.0, math.inf])], "coverage[1]: found inf"),
    "parts": ([spoilt(parts=[{}, 1.0])], "parts[1]: found 1.0 (float), expected a dict"),
    "part": ([spoilt(parts=[{}, {"a": math.inf}])], "parts[1]['a']: found inf"),
    "critiques": ([spoilt(critiques=[{}])], "critiques: found [{}] (list), expected a list with one entry for each of 2"),
    "critique": ([spoilt(critiques=[{}, "good"])], "critiques[1]: found 'good' (str), expected a dict of criterion to text"),
    "critique name": ([spoilt(critiques=[{3: "good"}, {}])], "critiques[0]: found {3: 'good'} (dict), expected a dict of"),
    "critique text": ([spoilt(critiques=[{}, {"a": 0.5}])], "critiques[1]['a']: found 0.5 (float), expected text"),
    "critique none": ([spoilt(critiques=[{"a": None}, {}])], "critiques[0]['a']: found None (NoneType), expected text"),
    "revision": ([spoilt(judge_revision=None)], "judge_revision: found None (NoneType), expected text"),
    "level": ([spoilt(level="turns")], "level: found 'turns' (str), expected one of turn, trajectory, both"),
}  # fmt: skip


def talk() -> Trajectory:
    pair = (Message(role="user", content="q"), Message(role="assistant", content="a"))
    return Trajectory(id="a", messages=pair * 2)


def test_a_right_answer_passes_with_its_missing_numbers() -> None:
    assert ask(lambda _: [RIGHT], [talk()], [2]) == [RIGHT]
    assert ask(lambda _: [], []) == []


NUMPY = spoilt(
    turns=(np.float32(0.5), 1),
    trajectory=np.float16(0.25),
    coverage=[np.int64(1), np.float32("nan")],
    parts=[MappingProxyType({"a": np.float32(0.5)}), {}],
    mixed=np.bool_(True),
)


def test_numbers_of_numpy_come_out_as_pythons() -> None:
    (found,) = ask(lambda _: [NUMPY], [talk()], [2])
    told = [found.turns, found.trajectory, found.coverage, found.parts, found.mixed]
    assert json.dumps(told) == '[[0.5, 1.0], 0.25, [1.0, NaN], [{"a": 0.5}, {}], true]'


def test_the_weights_of_a_mix_may_be_of_numpy() -> None:
    mix = Composite({"steps": lambda _: [RIGHT]}, {"steps": np.float32(0.5)})  # type: ignore[dict-item]  # NumPy
    assert mix([talk()])[0].parts[0] == {"steps": 0.25}
    assert repr(mix([talk()])) == repr(Composite(mix.parts, {"steps": 0.5})([talk()]))  # NaN is not itself


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_answer_is_refused_with_its_place(name: str) -> None:
    answer, says = WRONG[name]
    with pytest.raises(DataError) as caught:
        ask(lambda _: answer, [talk()], [2])
    assert says in str(caught.value) and str(caught.value).startswith("turn judge")


@pytest.mark.parametrize("bad", [None, [], [None], [replace(RIGHT, trajectory=math.inf)]], ids=repr)
def test_the_parts_of_a_mix_are_looked_at_too(bad: Any) -> None:
    mix = Composite({"fine": lambda _: [RIGHT], "bad": lambda _: bad}, {"fine": 1.0, "bad": 1.0})
    with pytest.raises(DataError, match=r"^reward part 'bad'"):
        mix([talk()])


def test_parts_of_a_mix_that_speak_of_different_numbers_of_turns_are_refused() -> None:
    short = TurnScores([0.5], [None], "r", "h")
    mix = Composite({"fine": lambda _: [RIGHT], "short": lambda _: [short]}, {"fine": 1.0, "short": 1.0})
    with pytest.raises(DataError, match=r"different numbers of turns: \{'fine': 2, 'short': 1\}"):
        mix([talk()])


def config(**options: Any) -> PolicyConfig:
    return PolicyConfig(
        iterations=1, tasks_per_iteration=2, group_size=2, rollout=RolloutConfig(max_turn_tokens=4), **options
    )


@pytest.mark.parametrize("judge", [lambda _: None, lambda ts: [None for _ in ts]], ids=["none", "of none"])
def test_a_trainer_stops_with_the_judges_fault(toy: Any, tmp_path: Path, judge: Callable[..., Any]) -> None:
    with pytest.raises(DataError, match=r"^turn judge.*found .*None.*expected"):
        toy.trainer(tmp_path / "a", config(), turn_judge=judge).run()
    with pytest.raises(DataError, match=r"^held-out judge.*found .*None.*expected"):
        toy.trainer(tmp_path / "b", config(), heldout=HeldOutCriteria(judge)).run()


@pytest.mark.parametrize("score", [None, "0.5", math.inf], ids=repr)
def test_a_held_out_score_that_is_no_number_is_named(toy: Any, tmp_path: Path, score: Any) -> None:
    with pytest.raises(DataError, match=r"^held-out criteria, iteration 0: found .* a finite number"):
        toy.trainer(tmp_path, config(), heldout=lambda *_: score).run()


def test_a_run_with_numbers_of_numpy_is_that_with_pythons(toy: Any, tmp_path: Path) -> None:
    def run(name: str, kind: Callable[[float], Any]) -> list[dict[str, float]]:
        def judge(trajectories: Any) -> list[TurnScores]:
            return [
                replace(
                    s,
                    turns=[kind(v) for v in s.turns],
                    trajectory=kind(0.5),
                    coverage=[kind(1.0) for _ in s.turns],
                    parts=[{"copied": kind(v)} for v in s.turns],
                )
                for s in toy.judge(trajectories)
            ]

        trainer = toy.trainer(
            tmp_path / name,
            config(algorithm=ProcessReplayConfig(reuse=1)),
            turn_judge=judge,
            heldout=lambda *_: kind(0.5),
            on_iteration=lambda i, _, episodes: write_rollouts(tmp_path / f"{name}.jsonl", i, episodes),
        )
        trainer.env_factory = lambda: toy.env(3, dense=False)
        rows: list[dict[str, float]] = trainer.run()
        return [{key: v for key, v in row.items() if not key.startswith("time/")} for row in rows]

    assert repr(run("numpy", np.float32)) == repr(run("python", float))
    assert (tmp_path / "numpy.jsonl").read_bytes() == (tmp_path / "python.jsonl").read_bytes()
    states = [(tmp_path / name / "checkpoint-1" / "state.json").read_text() for name in ("numpy", "python")]
    assert json.loads(states[0])["monitors"] == json.loads(states[1])["monitors"]


def test_a_changed_judge_is_looked_at_when_it_is_asked_again(toy: Any, tmp_path: Path) -> None:
    options = config(algorithm=ProcessReplayConfig(rescore_turns=50)).model_copy(update={"group_size": 6})
    first = toy.trainer(tmp_path, options, turn_judge=toy.judge)
    first.env_factory = lambda: toy.env(3, dense=False)
    first.run()
    asked: list[int] = []

    def second(trajectories: Any) -> Any:
        asked.append(len(trajectories))
        right = [replace(s, judge_revision="oracle-2") for s in toy.judge(trajectories)]
        return right if len(asked) == 1 else [replace(s, trajectory=math.inf) for s in right]

    again = toy.trainer(tmp_path, options.model_copy(update={"iterations": 2}), turn_judge=second)
    again.env_factory = first.env_factory
    with pytest.raises(DataError, match=r"^turn judge, trajectory .*: trajectory: found inf"):
        again.run()
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tasks": [None]}, r"tasks\[0\]: found None \(NoneType\), expected a Task"),
        (
            {"tasks": [Task(id="open", payload={"call": print})]},
            r"tasks\[0\] \('open'\): cannot be written as JSON: ",
        ),
        ({"tasks": 3}, r"tasks: found 3 \(int\), expected a list of Task"),
        ({"turn_judge": "judge"}, r"turn_judge: found 'judge' \(str\), expected a function"),
    ],
)
def test_a_trainer_names_the_argument_that_is_wrong(
    toy: Any, tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=f"^policy training: {says}"):
        toy.trainer(tmp_path, config(), **options)


def test_a_configuration_and_an_environment_of_another_kind_are_named(toy: Any, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^policy training: config: found \{\} \(dict\), expected a PolicyConfig"
    ):
        toy.trainer(tmp_path, {})
    kind = type(toy.trainer(tmp_path, config()))
    with pytest.raises(ConfigError, match=r"env_factory: found .*CopyEnv.*expected a function or class"):
        kind(toy.warm(), toy.chat, toy.env(3), toy.tasks(2), config(), tmp_path)


def test_rollouts_of_no_task_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^rollouts: tasks\[0\]: found 'a' \(str\), expected a Task"):
        group_requests("a", 2, "it0")  # type: ignore[arg-type]
