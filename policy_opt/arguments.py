"""What a caller in Python hands over, checked before anything is made of it."""

import inspect
from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from axiomrm.data.jsonl import found_instead
from axiomrm.data.trajectory import Task
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.policy_opt.rollouts.writable import fault
from axiomrm.rm.engines.model_facts import longest_context


def check_tasks(tasks: Sequence[Task], what: str = "rollouts") -> None:
    """Whether all of them are tasks.

    Raises:
        ConfigError: names the first that is not, or that files cannot hold.
    """
    for index, task in enumerate(tasks):
        place = f"{what}: tasks[{index}]"
        if not isinstance(task, Task):
            raise _wrong(place, task, "a Task")
        if (why := fault(task)) is not None:
            raise ConfigError(f"{place} ({task.id!r}): cannot be written as JSON: {why}")


def check_source(judge: Any, place: str) -> None:
    """Whether it can be a reward source: it is called with a list of trajectories and nothing else.

    Raises:
        ConfigError: it is no function, or takes other arguments (a reward function of trl).
    """
    if not _takes(judge, 1):
        expected = "a function from a list of trajectories to TurnScores, one each"
        raise _wrong(place, judge, f"{expected}{_wanted(judge)}")


def check_training(
    tasks: Any,
    config: Any,
    *,
    model: Any,
    chat: Any,
    env_factory: Any,
    folder: Any,
    turn_judge: Any = None,
    heldout: Any = None,
    tracker: Any = None,
    on_iteration: Any = None,
) -> list[Task]:
    """What a trainer is made of; the tasks as a list.

    Raises:
        ConfigError: no task, or something of another kind; names the argument, what was found and what was
            expected. Also a limit of rollouts beyond the model's positions, or a turn judge that is held out.
    """
    if not isinstance(config, PolicyConfig):
        raise _wrong("policy training: config", config, "a PolicyConfig")
    _check_model(model, config)
    _check_chat(chat)
    if not callable(env_factory):
        raise _wrong(
            "policy training: env_factory", env_factory, "a function or class that makes an environment"
        )
    if turn_judge is not None:
        check_source(turn_judge, "policy training: turn_judge")
        if getattr(heldout, "judge", None) is turn_judge:
            raise ConfigError(
                "policy training: heldout: asks the turn judge, which the policy is rewarded by, so nothing "
                "is held out; give it another source"
            )
    _check_folder(folder)
    _check_watchers(heldout, tracker, on_iteration)
    return _listed(tasks)


def _listed(tasks: Any) -> list[Task]:
    try:
        listed = list(tasks)
    except TypeError:
        raise _wrong("policy training: tasks", tasks, "a list of Task") from None
    if not listed:
        raise ConfigError("policy training: no tasks given; pass at least one")
    check_tasks(listed, "policy training")
    return listed


def _check_model(model: Any, config: PolicyConfig) -> None:
    if not isinstance(model, nn.Module):
        name = repr(model) if isinstance(model, str) else "folder"
        loads = f"transformers.AutoModelForCausalLM.from_pretrained({name}) loads one"
        raise _wrong("policy training: model", model, f"a causal language model; {loads}")
    longest, wanted = fixed_positions(model), config.rollout.max_episode_tokens
    if longest is not None and wanted > longest:
        raise ConfigError(
            f"policy training: rollout.max_episode_tokens={wanted}: the model has {longest} positions; "
            f"set at most {longest}"
        )


def fixed_positions(model: Any) -> int | None:
    """Positions that the model was built for; ``None``: not said, or positions are scaled or have no end."""
    config: Any = getattr(model, "config", None)
    if not hasattr(config, "get_text_config"):
        return None
    text = config.get_text_config()
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    layers = [rope, *(value for value in rope.values() if isinstance(value, dict))]
    scaled = any((kind := s.get("rope_type", s.get("type"))) and kind != "default" for s in layers)
    return None if scaled or getattr(text, "alibi", False) else longest_context(model)


def _check_chat(chat: Any) -> None:
    methods = callable(getattr(chat, "prompt_ids", None)) and callable(getattr(chat, "parse", None))
    if not methods or not isinstance(getattr(chat, "end_ids", None), Collection):
        expected = (
            "a ChatFormat; axiomrm.policy_opt.rollouts.chat.TemplateChat(tokenizer) makes one of a tokenizer"
        )
        raise _wrong("policy training: chat", chat, expected)


def _check_folder(folder: Any) -> None:
    if not isinstance(folder, str | PathLike):
        raise _wrong("policy training: folder", folder, "the path of a folder")
    path = Path(folder)
    there = next((p for p in (path, *path.parents) if p.exists()), None)
    if there is not None and not there.is_dir():
        raise ConfigError(f"policy training: folder {str(path)!r}: {str(there)!r} is a file; name a folder")


def _check_watchers(heldout: Any, tracker: Any, on_iteration: Any) -> None:
    if heldout is not None and not _takes(heldout, 2):
        expected = "a function from episodes and iteration to a number; HeldOutCriteria(judge) makes one"
        raise _wrong("policy training: heldout", heldout, f"{expected} of a reward source")
    if tracker is not None and not callable(getattr(tracker, "log", None)):
        name = repr(tracker) if isinstance(tracker, str) else "name"
        opens = f"axiomrm.policy_opt.monitoring.trackers.open_tracker({name}, folder, run) opens one"
        raise _wrong("policy training: tracker", tracker, f"an object with log(iteration, metrics); {opens}")
    if on_iteration is not None and not _takes(on_iteration, 3):
        expected = "a function of iteration, metrics and episodes"
        raise _wrong("policy training: on_iteration", on_iteration, expected)


def _wanted(function: Any) -> str:
    if not callable(function):
        return ""
    return f"; this one takes ({', '.join(map(_plain, inspect.signature(function).parameters.values()))})"


def _plain(parameter: inspect.Parameter) -> str:
    return str(parameter.replace(annotation=parameter.empty))


def _takes(function: Any, given: int) -> bool:
    """Whether it can be called with so many arguments; of what does not tell (built in), whether at all."""
    if not callable(function):
        return False
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(given))
    except TypeError:
        return False
    return True


def _wrong(place: str, found: object, expected: str) -> ConfigError:
    return ConfigError(f"{place}: {found_instead(found, expected)}")
