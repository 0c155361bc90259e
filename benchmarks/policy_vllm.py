"""Policy training of SmolLM2-135M with rollouts through vLLM: does it learn from the right numbers, at what speed?

    make smollm2 .venv/.axiomrm-vllm
    python benchmarks/policy_vllm.py                # goes on where it was stopped

A short cold start on dialogues of a scripted agent, then three iterations in ``service_desk`` at tiny sizes with
fresh adapters, turn rewards from the environment's oracle. Each iteration: the merged weights are published to vLLM, it plays the rollouts that are trained on, and the
transformers sampler plays the same tasks from the same weights for comparison. The mismatch of both engines is
measured on every fresh token and gated. At the end the same for vLLM in bf16, beside a trainer in fp32 and in bf16.

Seconds are CPU seconds of this process (one thread), so other work on the machine counts little; wall seconds
stand beside them. The engine's start is apart.
"""

import argparse
import functools
import json
import os
import platform
import random
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # at this size the compiler costs more than it saves
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from policy_headline.desk_tasks import desk_tasks

from axiomrm.data.synthesis.rollouts import roll_many, successful
from axiomrm.data.trajectory import Task
from axiomrm.data.writing import atomic_file
from axiomrm.errors import DataError
from axiomrm.policy_opt.admission import admission_check, mismatch
from axiomrm.policy_opt.cold_start import ColdStartSettings, dialogue_row, fine_tune
from axiomrm.policy_opt.config import PolicyConfig, ProcessReplayConfig, RolloutConfig
from axiomrm.policy_opt.engines.config import VllmEngine
from axiomrm.policy_opt.engines.transformers import Sampler, TransformersSampler
from axiomrm.policy_opt.engines.vllm import VllmSampler
from axiomrm.policy_opt.envs.service_desk import ServiceDesk, Style
from axiomrm.policy_opt.envs.service_desk.judges import desk_oracle
from axiomrm.policy_opt.records import TrajectoryRecord
from axiomrm.policy_opt.rewards.base import Episode
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.policy_opt.trainer import PolicyTrainer
from axiomrm.policy_opt.update import attach_reference
from axiomrm.rm.training.config import LoraSettings
from axiomrm.rm.training.lora import with_lora
from axiomrm.stages.world import expert_for, load_model, save_model

ROOT = Path(__file__).resolve().parents[1]
HORIZON, TURN_LIMIT = 4, 6
DEMOS, DEV_DEMOS = 48, 8
LORA = LoraSettings(rank=16, alpha=32, last_layers=12)
COLD_START = ColdStartSettings(learning_rate=1e-3, max_epochs=1, tokens_per_step=768, warmup_steps=4)
Desk = functools.partial(ServiceDesk, TURN_LIMIT)
SHOWN = ("mismatch/", "reward/local_mean", "reward/outcome_mean", "policy/updates", "policy/grad_norm",
         "kl/k3_fresh", "rollout/turns", "rollout/action_tokens", "offpolicy/rho_max", "time/")  # fmt: skip


def settings(args: argparse.Namespace) -> PolicyConfig:
    return PolicyConfig(
        algorithm=ProcessReplayConfig(reuse=1),
        iterations=args.iterations,
        tasks_per_iteration=2,
        group_size=4,
        learning_rate=1e-4,
        tokens_per_forward=4096,
        seed=args.seed,
        rollout=RolloutConfig(
            engine=VllmEngine(), max_turns=TURN_LIMIT, max_turn_tokens=48, max_episode_tokens=1024
        ),
    )


def cold_start(args: argparse.Namespace) -> Path:
    """Folder of the fine-tuned base with its adapters merged; made once."""
    folder: Path = args.work / "start"
    if folder.exists():
        return folder
    torch.manual_seed(args.seed)
    base, tokenizer = load_model(args.model)
    chat, model = TemplateChat(tokenizer), with_lora(base, LORA)

    def agent(task: Task, info: dict[str, Any]) -> Any:
        return expert_for(
            task, info, Style(verbosity=1, tone=random.Random(task.id).choice(("formal", "casual")))
        )

    drawn = desk_tasks("train", DEMOS + DEV_DEMOS, HORIZON, args.work)
    rows = [dialogue_row(chat, t) for t in successful(roll_many(Desk, agent, drawn, "terse"))]
    partial = args.work / "start.partial"
    fine_tune(
        model, rows[DEV_DEMOS:], rows[:DEV_DEMOS], COLD_START, partial, pad_id=tokenizer.pad_token_id,
        on_epoch=lambda epoch, loss: print(f"cold start, epoch {epoch}: dev loss {loss:.3f}", flush=True),
    )  # fmt: skip
    save_model(model.merge_and_unload(), tokenizer, partial / "policy")
    os.replace(partial / "policy", folder)
    shutil.rmtree(partial)
    return folder


def measured(play: Callable[[], list[Episode]]) -> tuple[list[Episode], dict[str, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    episodes = play()
    spent = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    tokens = sum(e.record.n_action_tokens for e in episodes)
    prompt = sum(len(segment) for e in episodes for segment in e.record.segments) - tokens
    turns = sum(len(e.record.steps) for e in episodes)
    counts = {"action_tokens": tokens, "prompt_tokens": prompt, "turns": turns}
    return episodes, spent | counts | {"action_tokens_per_cpu_s": tokens / spent["cpu_s"]}


class Comparison:
    """Plays an iteration's tasks on both samplers; one line of ``compare.jsonl`` an iteration."""

    def __init__(self, trainer: PolicyTrainer, path: Path) -> None:
        self.trainer, self.path, self._play = trainer, path, trainer.rollout
        trainer.rollout = self.rollout  # type: ignore[method-assign]  # the trainer asks here

    def rollout(self, tasks: Sequence[Task]) -> list[Episode]:
        trainer, vllm = self.trainer, self.trainer.sampler
        assert isinstance(vllm, VllmSampler)
        before = vllm.prompt_tokens, vllm.reused_tokens
        episodes, ours = measured(lambda: self._play(tasks))
        ours |= {
            "fed_tokens": vllm.prompt_tokens - before[0],
            "reused_tokens": vllm.reused_tokens - before[1],
        }
        plain = TransformersSampler(trainer.model, trainer.chat.end_ids, temperature=vllm.temperature)
        _, theirs = measured(lambda: play(trainer, plain, tasks))
        with self.path.open("a", encoding="utf-8") as file:
            row = {"iteration": trainer.iteration, "vllm": ours, "transformers": theirs}
            file.write(json.dumps(row) + "\n")
        return episodes


def play(trainer: PolicyTrainer, sampler: Sampler, drawn: Sequence[Task]) -> list[Episode]:
    config = trainer.config
    requests = group_requests(drawn, config.group_size, f"it{trainer.iteration}")
    return collect(sampler, trainer.chat, Desk, requests, limits=config.rollout.limits(), seed=config.seed)


def in_bf16(trainer: PolicyTrainer) -> dict[str, Any]:
    """One batch of rollouts from a bf16 engine with the final weights, beside a trainer in fp32 and in bf16."""
    rollout = trainer.config.rollout
    sampler = VllmSampler(
        trainer.chat.end_ids, VllmEngine(dtype="bfloat16"), max_tokens=rollout.max_episode_tokens
    )
    sampler.publish(trainer.model, trainer.iteration)
    episodes, spent = measured(lambda: play(trainer, sampler, trainer.draw_tasks(0)))
    sampler.close()
    records = [e.record for e in episodes]
    in_fp32 = against(trainer, records)
    trainer.model.to(torch.bfloat16)
    return {"rollouts": spent, "fp32 trainer": in_fp32, "bf16 trainer": against(trainer, records)}


def against(trainer: PolicyTrainer, records: Sequence[TrajectoryRecord]) -> dict[str, Any]:
    """Mismatch of sampled log-probs and the trainer's now, and what the gate says with its defaults."""
    attach_reference(trainer.model, records, token_budget=trainer.config.tokens_per_forward)
    steps = [step for record in records for step in record.steps]
    mine = np.concatenate([step.ref_logprobs for step in steps if step.ref_logprobs is not None])
    sampled = np.concatenate([step.behaviour_logprobs for step in steps])
    seen = mismatch(mine, sampled) | {"tokens": len(mine)}
    try:
        admission_check(mine, sampled, same_engine=False)
    except DataError as error:
        return seen | {"gate": f"refused: {error}"}
    return seen | {"gate": "accepted"}


def train(args: argparse.Namespace) -> dict[str, Any]:
    base, tokenizer = load_model(cold_start(args))
    torch.manual_seed(args.seed)  # fresh adapters, the same ones after a stop
    config, drawn = settings(args), desk_tasks("train", DEMOS + DEV_DEMOS + 16, HORIZON, args.work)
    trainer = PolicyTrainer(
        with_lora(base, LORA), TemplateChat(tokenizer), Desk, drawn[DEMOS + DEV_DEMOS :], config,
        args.work / "training",
        turn_judge=desk_oracle(noise=0.0, filler_pay=0.0, seed=args.seed),
        on_iteration=lambda i, row, _: print(f"iteration {i}: {shown(row)}", flush=True),
    )  # fmt: skip
    compare = args.work / "compare.jsonl"
    Comparison(trainer, compare)
    rows = trainer.run()
    lines = [json.loads(line) for line in compare.read_text(encoding="utf-8").splitlines()]
    by_iteration = {line["iteration"]: line for line in lines}  # the last attempt of each
    return {
        "machine": {"cpu": platform.processor() or platform.machine(), "threads": torch.get_num_threads()},
        "settings": config.model_dump(mode="json"),
        "iterations": [
            by_iteration[i] | {"metrics": shown(row)} for i, row in enumerate(rows) if i in by_iteration
        ],
        "speed": speed(list(by_iteration.values())),
        "bf16": in_bf16(trainer),
    }


def speed(lines: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Action tokens a CPU second over all iterations, and how often vLLM's holds transformers'."""
    rates = {
        name: sum(line[name]["action_tokens"] for line in lines) / sum(line[name]["cpu_s"] for line in lines)
        for name in ("vllm", "transformers")
    }
    return rates | {"ratio": rates["vllm"] / rates["transformers"]}


def shown(row: dict[str, float]) -> dict[str, float | None]:
    return {k: None if v != v else v for k, v in row.items() if k.startswith(SHOWN)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / ".cache" / "smollm2-135m")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "policy_vllm")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "policy_vllm.json")
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    args.work.mkdir(parents=True, exist_ok=True)
    found = train(args)
    with atomic_file(args.out) as handle:
        json.dump(found, handle, indent=1)
    print(json.dumps({"speed": found["speed"], "bf16": found["bf16"]}, indent=1))


if __name__ == "__main__":
    main()
