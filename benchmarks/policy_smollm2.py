"""A pre-trained policy: SmolLM2-135M with LoRA in ``service_desk``, from its cold start, against verified outcomes.

    python benchmarks/policy_smollm2.py             # goes on where it was stopped

Cold start: adapters fine-tuned on dialogues of a terse scripted agent that succeeded, merged into the base. Then
fresh adapters, process + replay: the outcome is the environment's verifier, the reward of a turn comes from the
rubric ``process_shaping``: a tool that the desk names as right in its state (names alone, not values or wordings),
well-formed arguments, no repetition; no judge model, and not the oracle's verdict on the step. KL is to the merged
cold start, which is the same model with its adapters off.

Success is the share of held-out tasks (other wordings than in training) that the verifier passes, one sampled
episode each, the same tasks and random numbers at every point; the gain over the cold start is paired by task.
Intervals: 95 %, bootstrap over tasks (Wilson at 0 and 1); the spread of training seeds is not in them. Every
point is one line of ``--out`` as soon as it is measured. Sizes: ``policy_smollm2.json``; what an iteration does:
``--work``/training.
"""

import argparse
import functools
import hashlib
import json
import os
import random
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from policy_headline.desk_tasks import desk_tasks
from policy_headline.one_run import commit, solved_by_type
from policy_smollm2_points import Points, gain_over, shown, success_of
from pydantic import BaseModel, ConfigDict

from axiomrm.data.synthesis.rollouts import roll_many, successful
from axiomrm.data.trajectory import Task, canonical_json
from axiomrm.eval.estimate import finite
from axiomrm.policy_opt.cold_start import ColdStartSettings, dialogue_row, fine_tune
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.policy_opt.engines.transformers import TransformersSampler
from axiomrm.policy_opt.envs.service_desk import ServiceDesk, Style
from axiomrm.policy_opt.envs.service_desk.tasks import Split
from axiomrm.policy_opt.reward_build import build_reward
from axiomrm.policy_opt.rewards.base import Episode
from axiomrm.policy_opt.rewards.config import ProgrammaticReward
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.policy_opt.trainer import PolicyTrainer
from axiomrm.rm.training.config import LoraSettings
from axiomrm.rm.training.lora import with_lora
from axiomrm.stages.world import expert_for, load_model, save_model

ROOT = Path(__file__).resolve().parents[1]
EVAL_SEED = 0


class Sizes(BaseModel):
    """Everything that decides the numbers; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int
    horizons: list[int]
    """Turns that a perfect agent needs; as many tasks of each."""
    turn_limit: int
    """Turns after which the desk closes."""
    demos: int
    dev_demos: int
    cold_lora: LoraSettings
    cold_start: ColdStartSettings
    lora: LoraSettings
    reward: ProgrammaticReward
    policy: dict[str, Any]
    """Fields of ``PolicyConfig``."""
    train_tasks: int
    dev_tasks: int
    heldout_tasks: int
    eval_every: int
    """Iterations between measurements; the start and the end are measured too."""
    cool_temperature: float
    """The start and the end are also sampled at this temperature: cooling costs no training."""

    def training(self) -> PolicyConfig:
        return PolicyConfig.model_validate(self.policy | {"seed": self.seed})

    def digest(self, base: Path) -> str:
        """Of what a point depends on; more iterations or a base elsewhere make no other run."""
        fields = self.model_dump(mode="json")
        fields["policy"] = {k: v for k, v in fields["policy"].items() if k != "iterations"}
        weights = hashlib.sha256((base / "model.safetensors").read_bytes()).hexdigest()
        return hashlib.sha256(canonical_json([fields, weights]).encode()).hexdigest()[:16]


class Desk:
    """Tasks of the run's horizons, found once and kept in a folder."""

    def __init__(self, sizes: Sizes, folder: Path) -> None:
        self.sizes, self.folder = sizes, folder
        self.env = functools.partial(ServiceDesk, sizes.turn_limit)

    def tasks(self, split: Split, count: int, skip: int = 0) -> list[Task]:
        """``count`` tasks after the first ``skip``, horizons in turn."""
        lengths = self.sizes.horizons
        each = -(-(count + skip) // len(lengths))
        found = [desk_tasks(split, each, length, self.folder) for length in lengths]
        return [task for row in zip(*found, strict=True) for task in row][skip : skip + count]

    def demos(self, split: Split, count: int) -> list[Any]:
        """Successful dialogues of the terse agent; training tasks for RL come after these."""

        def agent(task: Task, info: dict[str, Any]) -> Any:
            tone = random.Random(f"tone/{task.id}").choice(("formal", "casual"))
            return expert_for(task, info, Style(verbosity=1, tone=tone))

        return successful(roll_many(self.env, agent, self.tasks(split, count), "terse"))


def cold_start(sizes: Sizes, desk: Desk, base: Path, folder: Path) -> None:
    """Write the merged cold start to ``folder``; a killed one goes on after its last epoch."""
    if folder.exists():
        return
    torch.manual_seed(sizes.seed)
    model, tokenizer = load_model(base)
    model = with_lora(model, sizes.cold_lora)
    chat = TemplateChat(tokenizer)
    rows = {
        split: [dialogue_row(chat, t) for t in desk.demos(split, count)]
        for split, count in (("train", sizes.demos), ("dev", sizes.dev_demos))
    }
    started, partial = time.perf_counter(), folder.with_suffix(".partial")

    def tell(epoch: int, loss: float) -> None:
        print(f"cold start, epoch {epoch}: dev loss {loss:.4f} after {since(started):.0f} s", flush=True)

    result = fine_tune(
        model, rows["train"], rows["dev"], sizes.cold_start, partial,
        pad_id=tokenizer.pad_token_id, on_epoch=tell,
    )  # fmt: skip
    save_model(model.merge_and_unload(), tokenizer, partial / "policy")
    losses = {"dialogues": len(rows["train"]), "dev_losses": result.dev_losses, "seconds": since(started)}
    (partial / "policy" / "cold_start.json").write_text(json.dumps(losses))
    os.replace(partial / "policy", folder)
    shutil.rmtree(partial)


class Run:
    """The policy in training and what is measured of it."""

    def __init__(self, sizes: Sizes, desk: Desk, start: Path, work: Path, points: Points) -> None:
        self.sizes, self.desk, self.work, self.points = sizes, desk, work, points
        self.settings = sizes.training()
        torch.manual_seed(sizes.seed)
        model, tokenizer = load_model(start)
        self.model = with_lora(model, sizes.lora).eval()
        self.chat = TemplateChat(tokenizer)
        self.held = desk.tasks("heldout", sizes.heldout_tasks)
        self.dev = desk.tasks("dev", sizes.dev_tasks, skip=sizes.dev_demos)

    def train(self) -> None:
        """Measure the start, train, measure on the way."""
        warm = self.settings.rollout.temperature
        self.measure("dev", 0, warm)
        self.measure("heldout", 0, warm)
        self.measure("heldout", 0, self.sizes.cool_temperature)
        trainer = PolicyTrainer(
            self.model, self.chat, self.desk.env,
            self.desk.tasks("train", self.sizes.train_tasks, skip=self.sizes.demos),
            self.settings, self.work / "training",
            turn_judge=build_reward(self.sizes.reward, _no_judge), on_iteration=self._after,
        )  # fmt: skip
        trainer.run()
        self.measure("heldout", self.settings.iterations, self.sizes.cool_temperature)

    def _after(self, iteration: int, row: dict[str, float], episodes: list[Episode]) -> None:
        done = iteration + 1
        told = {k: round(row[k], 3) for k in TOLD if k in row}
        print(f"{done}/{self.settings.iterations}: {json.dumps(told)}", flush=True)
        if done % self.sizes.eval_every == 0 or done == self.settings.iterations:
            self.measure("heldout", done, self.settings.rollout.temperature, row)

    def measure(self, split: str, done: int, temperature: float, row: dict[str, float] | None = None) -> None:
        """Write a point unless it is there."""
        if self.points.at(split, done, temperature) is not None:
            return
        started = time.perf_counter()
        episodes = self._episodes(self.held if split == "heldout" else self.dev, temperature)
        outcomes = {e.record.task_id: e.record.outcome for e in episodes}
        first = self.points.at(split, 0, temperature)
        point = {
            "split": split,
            "iteration": done,
            "rollouts": done * self.settings.tasks_per_iteration * self.settings.group_size,
            "temperature": temperature,
            "success": success_of(outcomes.values()),
            "gain": gain_over(first, outcomes) if first else None,
            "solved": solved_by_type(episodes),
            "outcomes": {task: finite(value) for task, value in outcomes.items()},
            "turns": sum(len(e.record.steps) for e in episodes) / len(episodes),
            "training": {k: finite(row[k]) for k in TOLD if k in row} if row else None,
            "seconds": since(started),
            "seed": self.sizes.seed,
            "commit": commit(),
        }
        self.points.add(point)
        print(f"{split} after {done} at temperature {temperature}: {shown(point)}", flush=True)

    def _episodes(self, tasks: Sequence[Task], temperature: float) -> list[Episode]:
        sampler = TransformersSampler(self.model, self.chat.end_ids, temperature=temperature)
        limits = self.settings.rollout.model_copy(update={"max_live": len(tasks)}).limits()
        requests = group_requests(tasks, 1, "eval")
        return collect(sampler, self.chat, self.desk.env, requests, limits=limits, seed=EVAL_SEED)


TOLD = (
    "reward/success", "reward/local_mean", "advantage/disc", "advantage/beta_eff", "policy/entropy_nats",
    "policy/grad_norm", "kl/k3_fresh_nats_per_token", "kl/beta", "offpolicy/ess_frac", "offpolicy/admission_max",
    "offpolicy/masked_share", "policy/updates", "time/rollout_s", "time/update_s",
)  # fmt: skip
"""What is printed an iteration and kept beside a point."""


def since(started: float) -> float:
    return round(time.perf_counter() - started, 1)


def _no_judge(name: str) -> Any:
    raise AssertionError(f"a programmatic rubric asks no judge, but {name!r} was asked for")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--base", type=Path, default=ROOT / ".cache/smollm2-135m")
    parser.add_argument("--work", type=Path, default=ROOT / ".cache/policy_smollm2")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/policy_smollm2.jsonl")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    sizes = Sizes.model_validate_json(args.sizes.read_text(encoding="utf-8"))
    desk = Desk(sizes, args.work / "tasks")
    cold_start(sizes, desk, args.base, args.work / "cold_start")
    Run(sizes, desk, args.work / "cold_start", args.work, Points(args.out, sizes.digest(args.base))).train()


if __name__ == "__main__":
    main()
