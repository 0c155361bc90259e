"""What the stages share: the base model, the desk, its agents and its splits."""

import random
from importlib import resources
from pathlib import Path
from typing import Any

import torch

from axiomrm.data.environment import Agent
from axiomrm.data.trajectory import Task
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.envs.service_desk import Expert, Flawed, Style, sample_task
from axiomrm.policy_opt.envs.service_desk.style import random_style
from axiomrm.policy_opt.envs.service_desk.tasks import Split

FIRST_SEED = {"demos": 0, "judge": 100_000, "policy": 200_000, "eval": 300_000, "on_policy": 400_000}
"""First task seed of each use, so that no two uses share a task."""


def base_folder(name: str) -> Path:
    """Folder of the base model: ``nano`` is the one that ships.

    Raises:
        ConfigError: it is not there.
    """
    folder = (
        Path(str(resources.files("axiomrm.data") / "bundled" / "nano"))
        if name == "nano"
        else Path(name).expanduser()
    )
    if not (folder / "config.json").exists():
        raise ConfigError(
            f"base {name!r}: no model in {folder}; give 'nano' or the folder of a causal language model"
        )
    return folder


def load_model(folder: Path) -> tuple[Any, Any]:
    """Model in fp32 and tokenizer.

    Raises:
        ConfigError: there is no such folder; a name would be looked for on a hub.
    """
    if not Path(folder).is_dir():
        raise ConfigError(f"{folder}: there is no such folder; a model folder is expected")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model, AutoTokenizer.from_pretrained(folder)


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Model and tokenizer."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def tasks(split: Split, use: str, count: int, seed: int) -> list[Task]:
    """``count`` tasks of a split for one use; disjoint between uses and between run seeds."""
    first = FIRST_SEED[use] + 1_000_000 * (seed + 1)
    return [sample_task(split, first + i) for i in range(count)]


def expert_for(task: Task, info: dict[str, Any], style: Style | None = None) -> Agent:
    """The expert in a style drawn from the task."""
    rng = random.Random(f"expert/{task.id}")
    return Expert(rng, style or random_style(rng))


def flawed_for(rate: float, salt: int = 0, extra: float = 0.0) -> Any:
    """Builder of flawed agents with a random style; ``extra`` as in ``Flawed``."""

    def build(task: Task, info: dict[str, Any]) -> Agent:
        rng = random.Random(f"flawed/{salt}/{task.id}")
        return Flawed(rng, random_style(rng), rate=rate, extra=extra)

    return build
