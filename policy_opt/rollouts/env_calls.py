"""What an environment answers, checked where it comes in: a fault ends its own episode, not the run.

Each function calls one method. What the method raises, and an answer of another shape than `TurnEnv` says,
is an ``EnvFault``. A number may be of any kind that ``float`` takes but text; NaN is a missing one, infinity
and what is larger than any reward a fault.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

from axiomrm.data.environment import Action, Observation, TurnEnv
from axiomrm.data.jsonl import found_instead
from axiomrm.data.trajectory import Message, Task
from axiomrm.errors import DataError
from axiomrm.policy_opt.records import LARGEST, NAN, too_large
from axiomrm.policy_opt.rollouts.state_keys import PLAIN, anchor

EnvFactory = Callable[[], TurnEnv]
METHODS = ("reset", "step", "close")
BROKEN = (Exception, SystemExit, GeneratorExit)
"""What an environment may raise without ending the run; an interrupt still does."""


class EnvFault(DataError):
    """An environment raised or answered wrongly; names the method, what was found and what was expected."""


@runtime_checkable
class Verifiable(Protocol):
    """An environment whose verifier can read the state at any time."""

    def outcome(self) -> float | None:
        """The outcome of the state as it is; ``None`` = the verifier gave no result."""
        ...


class Answer(NamedTuple):
    """A checked answer of ``step``."""

    observation: Observation
    reward: float
    """NaN = ask the judge."""
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]


def make(factory: EnvFactory) -> TurnEnv:
    """A fresh environment.

    Raises:
        EnvFault: none came.
    """
    place = f"{getattr(factory, '__name__', type(factory).__name__)}()"
    with _told(place):
        env = factory()
        missing = [name for name in METHODS if not callable(getattr(env, name, None))]
    if missing:
        raise _wrong(place, env, f"an environment with the methods {', '.join(METHODS)}")
    return env


def version(env: TurnEnv) -> str:
    """Its ``version``, if it has one.

    Raises:
        EnvFault: it raised.
    """
    with _told(_place(env, "version")):
        return str(getattr(env, "version", "")).encode(errors="backslashreplace").decode()


def reset(env: TurnEnv, seed: int, task: Task) -> tuple[Observation, Mapping[str, Any]]:
    """The first observation and info.

    Raises:
        EnvFault: it raised, or answered otherwise.
    """
    place = _place(env, "reset")
    with _told(place):
        # A copy: what the environment writes into it must not reach the next rollout.
        found: Any = env.reset(seed=seed, task=task.model_copy(deep=True))
    if not isinstance(found, Sequence) or len(found) != 2:
        raise _wrong(place, found, "(observation, info)")
    return _observation(found[0], place), _info(found[1], place)


def step(env: TurnEnv, action: Action) -> Answer:
    """What follows an action.

    Raises:
        EnvFault: it raised, or answered otherwise.
    """
    place = _place(env, "step")
    with _told(place):
        found: Any = env.step(action)
    if not isinstance(found, Sequence) or len(found) != 5:
        raise _wrong(place, found, "(observation, reward, terminated, truncated, info)")
    return Answer(
        _observation(found[0], place),
        _number(found[1], place, "reward"),
        _flag(found[2], place, "terminated"),
        _flag(found[3], place, "truncated"),
        _info(found[4], place),
    )


def outcome(env: TurnEnv) -> float:
    """The outcome of the state as it is; NaN = the verifier gave no result, or there is none.

    Raises:
        EnvFault: it raised, or answered otherwise.
    """
    place = _place(env, "outcome")
    with _told(place):
        found = env.outcome() if isinstance(env, Verifiable) else None
    return _number(found, place, "outcome")


def close(env: TurnEnv) -> None:
    """Release what the episode held.

    Raises:
        EnvFault: it raised.
    """
    with _told(_place(env, "close")):
        env.close()


def number(info: Mapping[str, Any], key: str) -> float:
    """A number of a checked info; NaN = none."""
    value = info.get(key)
    return NAN if value is None else float(value)


def _place(env: TurnEnv, method: str) -> str:
    return f"{type(env).__name__}.{method}"


@contextmanager
def _told(place: str) -> Iterator[None]:
    try:
        yield
    except BROKEN as error:  # boundary: one broken episode is recorded, the others go on
        raise EnvFault(f"{place}: {said(error)}") from error


def said(error: BaseException) -> str:
    """An error's kind and text, which UTF-8 can hold; of one that cannot be told, the kind alone."""
    try:
        text = error.args[0] if isinstance(error, EnvFault) else f"{type(error).__name__}: {error}"
    except BROKEN:
        text = f"{type(error).__name__} (its text cannot be read)"
    return text.encode(errors="backslashreplace").decode()


def _wrong(place: str, found: object, expected: str) -> EnvFault:
    return EnvFault(f"{place}: {found_instead(found, expected)}")


def _observation(found: Any, place: str) -> Observation:
    if not isinstance(found, Observation):
        raise _wrong(f"{place}: observation", found, "an Observation")
    for name, kind in (("messages", Message), ("tools", dict)):
        items: Any = getattr(found, name)
        if not isinstance(items, tuple | list):
            raise _wrong(f"{place}: observation.{name}", items, f"a tuple of {kind.__name__}")
        for index, item in enumerate(items):
            if not isinstance(item, kind):
                raise _wrong(f"{place}: observation.{name}[{index}]", item, f"a {kind.__name__}")
    _flag(found.full_prompt, place, "observation.full_prompt")
    return found


def _info(found: Any, place: str) -> Mapping[str, Any]:
    """Keys that mean nothing here may hold anything."""
    if not isinstance(found, Mapping):
        raise _wrong(f"{place}: info", found, "a dict")
    for key in ("outcome", "progress", "oracle_turn"):
        _number(found.get(key), place, f"info[{key!r}]")
    try:
        anchor(found.get("state_key"))
    except Exception as error:  # a circular value, or an object whose tolist raises
        raise _wrong(f"{place}: info['state_key']", found["state_key"], PLAIN) from error
    for key in ("parts", "metrics", "labels"):
        if found.get(key) is not None and not isinstance(found[key], Mapping):
            raise _wrong(f"{place}: info[{key!r}]", found[key], "a dict")
    for name, part in (found.get("parts") or {}).items():
        _number(part, place, f"info['parts'][{name!r}]")
    for name, label in (found.get("labels") or {}).items():
        if not all(hasattr(label, field) for field in ("value", "note", "quote")):
            raise _wrong(f"{place}: info['labels'][{name!r}]", label, "a label with value, note and quote")
    return found


def _number(found: Any, place: str, name: str) -> float:
    if found is None:
        return NAN
    try:
        value = math.inf if isinstance(found, str | bytes) else float(found)
    except Exception:  # whatever its own ``__float__`` raises
        value = math.inf
    if too_large(value):
        raise _wrong(
            f"{place}: {name}",
            found,
            f"a finite number, or None for a missing one; at most {LARGEST:g} in size",
        )
    return value


def _flag(found: Any, place: str, name: str) -> bool:
    try:
        return {False: False, True: True}[found]  # as NumPy's and 0 and 1 too
    except (KeyError, TypeError):
        raise _wrong(f"{place}: {name}", found, "True or False") from None
