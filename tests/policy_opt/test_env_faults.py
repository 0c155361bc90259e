"""An environment that raises or answers wrongly, in whichever method, ends one episode and nothing else."""

import json
import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axiomrm.data.environment import Observation
from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.writing import json_line, to_record
from axiomrm.errors import JudgeError
from axiomrm.policy_opt.config import PolicyConfig, ProcessReplayConfig, RolloutConfig
from axiomrm.policy_opt.engines.transformers import TransformersSampler
from axiomrm.policy_opt.records import to_json
from axiomrm.policy_opt.rollouts.limits import RolloutLimits
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests

LIMITS = RolloutLimits(max_turns=8, max_turn_tokens=8)
Change = Callable[[Any], Any]


def raising(*_: Any, **__: Any) -> Any:
    raise RuntimeError("the database is gone")


def answering(method: str, change: Change) -> Change:
    """An environment whose ``method`` answers what ``change`` makes of the right answer."""

    def spoil(env: Any) -> Any:
        right = getattr(env, method)
        setattr(env, method, lambda *a, **k: change(right(*a, **k)))
        return env

    return spoil


def told(**info: Any) -> Change:
    return answering("step", lambda answer: (*answer[:4], answer[4] | info))


def replaced(place: int, value: Any) -> Change:
    return answering("step", lambda answer: (*answer[:place], value, *answer[place + 1 :]))


class Unreadable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def throwing(error: BaseException) -> Change:
    def throw(_: Any) -> Any:
        raise error

    return throw


FAULTS: dict[str, tuple[Change, str]] = {
    "made": (raising, "()$|(): RuntimeError: the database is gone"),
    "made nothing": (lambda env: None, "(): found None (NoneType), expected an environment with the methods"),
    "reset raises": (answering("reset", raising), "CopyEnv.reset: RuntimeError: the database is gone"),
    "reset nothing": (answering("reset", lambda _: None), "CopyEnv.reset: found None (NoneType), expected (obs"),
    "reset info": (answering("reset", lambda a: (a[0], None)), "CopyEnv.reset: info: found None (NoneType)"),
    "reset text": (answering("reset", lambda a: ("hello", {})), "observation: found 'hello' (str), expected an"),
    "reset progress": (answering("reset", lambda a: (a[0], {"progress": "half"})), "info['progress']: found 'half'"),
    "message": (
        answering("reset", lambda a: (Observation(({"role": "user"},)), {})),  # type: ignore[arg-type]
        "observation.messages[0]: found {'role': 'user'} (dict), expected a Message",
    ),
    "tools": (
        answering("reset", lambda a: (Observation(a[0].messages, ("find",)), {})),  # type: ignore[arg-type]
        "observation.tools[0]: found 'find' (str), expected a dict",
    ),
    "step short": (answering("step", lambda a: a[:4]), "expected (observation, reward, terminated, truncated, info)"),
    "step observation": (replaced(0, None), "CopyEnv.step: observation: found None"),
    "step reward": (replaced(1, "good"), "reward: found 'good' (str), expected a finite number, or None"),
    "step infinite": (replaced(1, math.inf), "CopyEnv.step: reward: found inf"),
    "step huge": (replaced(1, 1e300), "CopyEnv.step: reward: found 1e+300 (float), expected a finite number, or None for"),
    "step many": (replaced(1, np.ones(3)), "CopyEnv.step: reward: found array"),
    "step end": (replaced(2, "no"), "terminated: found 'no' (str), expected True or False"),
    "step info": (replaced(4, None), "CopyEnv.step: info: found None"),
    "outcome text": (told(outcome="1"), "info['outcome']: found '1'"),
    "outcome infinite": (told(outcome=-math.inf), "info['outcome']: found -inf"),
    "parts": (told(parts=[1]), "info['parts']: found [1] (list), expected a dict"),
    "part": (told(parts={"a": "x"}), "info['parts']['a']: found 'x'"),
    "labels": (told(labels={"a": 1}), "info['labels']['a']: found 1 (int), expected a label with value"),
    "metrics": (told(metrics=np.ones(2)), "info['metrics']: found array"),
    "state key": (told(state_key={"at": object()}), "CopyEnv.step: info['state_key']: found {'at': <object"),
    "state key bytes": (told(state_key=b"x"), "info['state_key']: found b'x' (bytes), expected a plain JSON value"),
    "state key set": (told(state_key=frozenset("ab")), "info['state_key']: found frozenset"),
    "state key nan": (told(state_key=[math.nan]), "info['state_key']: found [nan]"),
    "state key objects": (told(state_key=np.array([object()])), "info['state_key']: found array"),
    "state key keys": (told(state_key={1: 2}), "info['state_key']: found {1: 2}"),
    "state key surrogate": (told(state_key="\ud800"), "info['state_key']: found '\\ud800'"),
    "full prompt": (
        answering("reset", lambda a: (Observation(a[0].messages, full_prompt="no"), {})),  # type: ignore[arg-type]
        "CopyEnv.reset: observation.full_prompt: found 'no' (str), expected True or False",
    ),
    "exits": (answering("step", throwing(SystemExit(0))), "CopyEnv.step: SystemExit: 0"),
    "generator": (answering("reset", throwing(GeneratorExit())), "CopyEnv.reset: GeneratorExit: "),
    "exits at the end": (answering("close", throwing(SystemExit(1))), "CopyEnv.close: SystemExit: 1"),
    "error surrogate": (answering("step", throwing(OSError("bad \ud800"))), "step: OSError: bad \\ud800"),
    "error unreadable": (answering("step", throwing(Unreadable())), "step: Unreadable (its text cannot be read)"),
    "repr unreadable": (replaced(1, Unreadable()), "reward: found something without a repr (Unreadable)"),
    "close": (answering("close", raising), "CopyEnv.close: RuntimeError: the database is gone"),
}  # fmt: skip
CUT = {"outcome raises": raising, "outcome text": lambda _: "solved"}


def roll(toy: Any, spoil: Change | None = None, limits: RolloutLimits = LIMITS) -> Any:
    """Twelve episodes; the third environment is spoilt."""
    made = iter(range(100))

    def factory() -> Any:
        env = toy.env(3)
        return spoil(env) if spoil is not None and next(made) == 2 else env

    sampler = TransformersSampler(toy.warm(), toy.chat.end_ids)
    return collect(
        sampler, toy.chat, factory, group_requests(toy.tasks(3, 3, 3), 4, "it0"), limits=limits, seed=0
    )


def alone(toy: Any, spoil: Change, limits: RolloutLimits = LIMITS) -> Any:
    """The spoilt episode, after a look at the others: they are what they are without it."""
    found, plain = roll(toy, spoil, limits), roll(toy, None, limits)
    for index, (one, other) in enumerate(zip(found, plain, strict=True)):
        if index != 2:
            assert one.trajectory == other.trajectory and one.record.ending != "env_error"
            assert one.record.segments[-1].tolist() == other.record.segments[-1].tolist()
    record = found[2].record
    assert record.ending == "env_error" and record.truncated and not record.terminated
    assert math.isnan(record.outcome) and found[2].trajectory.outcome.score is None
    assert len(found[2].trajectory.metadata["turns"]) == max(len(record.steps), 1)
    return found[2]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_ends_one_episode_and_is_told(toy: Any, name: str) -> None:
    spoil, says = FAULTS[name]
    last = alone(toy, spoil).trajectory.metadata["turns"][-1]
    assert last["error_kind"] == "env_error"
    assert any(part in last["detail"] for part in says.split("|"))


@pytest.mark.parametrize("name", CUT)
def test_a_verifier_that_breaks_on_a_cut_episode_ends_that_one(toy: Any, name: str) -> None:
    few = RolloutLimits(max_turns=2, max_turn_tokens=8)
    detail = alone(toy, answering("outcome", CUT[name]), few).trajectory.metadata["turns"][-1]["detail"]
    assert detail.startswith(
        ("CopyEnv.outcome: RuntimeError", "CopyEnv.outcome: outcome: found 'solved' (str)")
    )


def test_a_verifier_that_breaks_on_an_episode_that_grew_too_long_ends_that_one(toy: Any) -> None:
    short = RolloutLimits(max_turns=8, max_turn_tokens=8, max_episode_tokens=9)
    assert (
        "CopyEnv.outcome"
        in alone(toy, answering("outcome", raising), short).trajectory.metadata["turns"][-1]["detail"]
    )


def test_the_first_fault_is_the_one_that_is_told(toy: Any) -> None:
    def twice(env: Any) -> Any:
        return answering("close", raising)(replaced(4, None)(env))

    assert "info: found None" in alone(toy, twice).trajectory.metadata["turns"][-1]["detail"]


def test_an_interrupt_stops_the_run(toy: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        roll(toy, answering("step", throwing(KeyboardInterrupt())))


def said_at_the_end(message: Message) -> Change:
    return answering("step", lambda a: (Observation((message,)), *a[1:]) if a[2] else a)


def tool(specification: dict[str, Any]) -> Change:
    return answering("reset", lambda a: (Observation(a[0].messages, (specification,)), a[1]))


def user(content: str = "x", **extra: Any) -> Message:
    return Message(role="user", content=content, extra=extra)


NUMBER: dict[str, Any] = {"role": "user", "content": 5}
ROUND: dict[str, Any] = {}
ROUND["me"] = ROUND
UNWRITABLE: dict[str, tuple[Change, str]] = {
    "metrics keys": (told(metrics={1: 2}), "turn 0: info['metrics']: TypeError: key 1 is no text"),
    "metrics pairs": (told(metrics={(1, 2): 2}), "turn 0: info['metrics']: TypeError: key (1, 2) is no text"),
    "metrics objects": (told(metrics={"a": np.array([object()])}), "turn 0: info['metrics']: "),
    "metrics huge": (told(metrics={"a": 10**5000}), "turn 0: info['metrics']: "),
    "metrics circular": (told(metrics=ROUND), "RecursionError"),
    "error kind": (told(error_kind="\ud800"), "turn 0: info['error_kind']: "),
    "part name": (told(parts={"\ud800": 0.5}), "turn 0: info['parts']: "),
    "message": (said_at_the_end(user("bad \ud800")), "message 6 (user): "),
    "extra function": (said_at_the_end(user(f=print)), "message 6 (user): "),
    "extra surrogate": (said_at_the_end(user(f="\ud800")), "message 6 (user): "),
    "no content": (said_at_the_end(Message.model_construct(**NUMBER)), "message 6 (user): "),
    "tool function": (tool({"f": print}), "tools[0]: "),
    "tool keys": (tool({1: 2}), "tools[0]: TypeError: key 1 is no text"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("name", UNWRITABLE)
def test_what_files_cannot_hold_ends_one_episode(toy: Any, name: str) -> None:
    spoil, says = UNWRITABLE[name]
    episode = alone(toy, spoil)
    assert says in episode.trajectory.metadata["turns"][-1]["detail"]
    json_line(to_record(episode.trajectory))
    again = Trajectory.model_validate_json(episode.trajectory.model_dump_json())
    assert len(again.turns) == len(episode.record.steps)
    json.dumps(to_json(episode.record), ensure_ascii=False).encode()


def test_a_task_that_an_environment_writes_into_is_as_it_was(toy: Any) -> None:
    def spoil(env: Any) -> Any:
        start = env.reset

        def reset(*, seed: int, task: Any) -> Any:
            task.payload["mine"] = print
            return start(seed=seed, task=task)

        env.reset = reset
        return env

    found = roll(toy, spoil)
    assert {e.record.ending for e in found} == {"done"}
    assert all(set(e.trajectory.task.payload) == {"symbols"} for e in found)


def config(**options: Any) -> PolicyConfig:
    return PolicyConfig(
        iterations=1, tasks_per_iteration=3, group_size=4, rollout=RolloutConfig(max_turn_tokens=8), **options
    )


def test_a_run_goes_on_and_counts_and_logs_what_failed(
    toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer, made = toy.trainer(tmp_path, config()), iter(range(100))
    trainer.env_factory = lambda: replaced(4, None)(toy.env(3)) if next(made) == 2 else toy.env(3)
    with caplog.at_level(logging.WARNING):
        (row,) = trainer.run()
    assert row["rollout/ending_env_error"] == 1 and row["reward/outcome_missing"] >= 1
    assert any("task 'copy" in text and "CopyEnv.step: info: found None" in text for text in caplog.messages)


def test_a_run_of_which_nothing_is_left_stops(toy: Any, tmp_path: Path) -> None:
    trainer = toy.trainer(tmp_path, config(max_failed_rollouts=1.0))
    trainer.env_factory = lambda: answering("reset", lambda _: None)(toy.env(3))
    with pytest.raises(JudgeError) as caught:
        trainer.run()
    message = str(caught.value)
    assert (
        "12 of 12 rollouts failed: CopyEnv.reset: found None (NoneType), expected (observation, info)"
        in message
    )
    assert "(12 times, first on task 'copy" in message


def test_what_json_cannot_hold_is_kept_in_words(toy: Any, tmp_path: Path) -> None:
    class Key:
        def __repr__(self) -> str:
            return "Key(1)"

    odd = told(state_key=(1, np.int64(3)), parts={1: 0.5}, metrics={"calls": np.array([1, 2]), "key": Key()})
    trainer = toy.trainer(tmp_path, config(algorithm=ProcessReplayConfig(rescore_turns=9)))
    trainer.env_factory = lambda: odd(toy.env(3))
    trainer.run()
    assert '"state_key":[1,3]' in trainer.algorithm.buffer.records[0].transcript
    assert '"parts":{"1":0.5}' in trainer.algorithm.buffer.records[0].transcript
    assert '"calls":[1,2],"key":"Key(1)"' in trainer.algorithm.buffer.records[0].transcript


def silent(env: Any) -> Any:
    """It ends without a word on the outcome."""
    return answering("step", lambda a: (a[0], None, *a[2:4], {}))(env)


def test_an_end_without_an_outcome_asks_the_verifier(toy: Any) -> None:
    spoilt, plain = roll(toy, silent), roll(toy)
    assert spoilt[2].record.terminated and spoilt[2].record.outcome == plain[2].record.outcome
    broken = alone(toy, lambda env: answering("outcome", raising)(silent(env)))
    assert "CopyEnv.outcome: RuntimeError" in broken.trajectory.metadata["turns"][-1]["detail"]


def test_an_iteration_with_nothing_to_learn_from_is_told_once(
    toy: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def without(env: Any) -> Any:
        env.outcome = lambda: None
        return silent(env)

    for name, factory in (("none", lambda: without(toy.env(3))), ("some", lambda: silent(toy.env(3)))):
        trainer = toy.trainer(tmp_path / name, config())
        trainer.env_factory = factory
        with caplog.at_level(logging.WARNING):
            trainer.run()
        told = [text for text in caplog.messages if "nothing can be learnt" in text]
        assert len(told) == 1 and "iteration 0: none of 12 episodes" in told[0]  # the second run adds none
