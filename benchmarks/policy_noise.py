"""How much of a policy gradient is signal? The cosine between gradients of independent batches of rollouts.

    python benchmarks/policy_noise.py --start runs/NAME/cold_start/policy [--tasks 16] [--batches 4] [--temperature 1]

Each batch holds ``tasks`` times 8 rollouts of ``service_desk`` by one and the same policy, with the oracle's turn
rewards; every estimator sees the same batches. With signal g and noise of variance s² / n in a batch of n rollouts
the expected cosine of two batches is c = |g|² / (|g|² + s² / n), so the batch in which half of the gradient's
squared length is signal has n (1 - c) / c rollouts (the simple noise scale of arXiv:1812.06162). The standard error takes pairs
of batches as independent, which they are not quite. A step that is not mostly signal walks at random however good its direction is on average. A
biased estimator can agree with itself in its bias: "both" pushes up whatever is likely, whatever the rewards.
"""

import argparse
import copy
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from axiomrm.data.writing import atomic_file
from axiomrm.policy_opt.algorithms.build import build_algorithm
from axiomrm.policy_opt.config import PolicyConfig, RolloutConfig
from axiomrm.policy_opt.engines.transformers import TransformersSampler
from axiomrm.policy_opt.envs.service_desk import ServiceDesk
from axiomrm.policy_opt.envs.service_desk.judges import desk_oracle
from axiomrm.policy_opt.rewards.base import Episode, apply_scores
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.policy_opt.seeds import generator
from axiomrm.policy_opt.update import accumulate_gradient
from axiomrm.stages.world import load_model, tasks

PROCESS = {"kind": "process_replay", "calibrate_beta": False, "reuse": 0}
ESTIMATORS: dict[str, dict[str, Any]] = {
    "outcome, GRPO": {"kind": "grpo"},
    "outcome, RLOO": {"kind": "rloo"},
    "turns, group baseline": PROCESS | {"alpha": 0.0, "beta": 1.0},
    "turns, state baseline": PROCESS | {"alpha": 0.0, "beta": 1.0, "anchors": True},
    "turns, return to go": PROCESS | {"alpha": 0.0, "beta": 1.0, "local_return": "rtg"},
    "turns and outcome": PROCESS | {"alpha": 1.0, "beta": 0.5},
    "turns, no baseline": PROCESS | {"alpha": 0.0, "beta": 1.0, "local_baseline": "none"},
    "turns, rare tokens damped": PROCESS | {"alpha": 0.0, "beta": 1.0, "reweight": 1.0},
    "turns, both": PROCESS | {"alpha": 0.0, "beta": 1.0, "local_baseline": "none", "reweight": 1.0},
    "successes, best of 8": {"kind": "best_of_k", "passes": 1},
}
GROUP = 8


def rollouts(model: Any, chat: TemplateChat, args: argparse.Namespace, seed: int) -> list[Episode]:
    limits = RolloutConfig(max_turns=20, max_turn_tokens=48, max_live=128).limits()
    drawn = tasks("train", "policy", args.tasks, seed)
    sampler = TransformersSampler(model, chat.end_ids, temperature=args.temperature)
    found = collect(sampler, chat, ServiceDesk, group_requests(drawn, GROUP, "0"), limits=limits, seed=seed)
    apply_scores(found, desk_oracle()([e.trajectory for e in found]))
    return found


def gradient(model: Any, settings: dict[str, Any], episodes: list[Episode]) -> torch.Tensor:
    """The first step's gradient, flat."""
    algorithm = build_algorithm(PolicyConfig.model_validate({"algorithm": settings}).algorithm)
    algorithm.ingest([copy.deepcopy(e.record) for e in episodes], 0)
    minibatch = next(iter(algorithm.plan(0, generator(0, "plan", 0))))
    model.zero_grad(set_to_none=True)
    accumulate_gradient(model, algorithm, minibatch, kl_beta=0.0, token_budget=8192)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.dot(a, b) / (a.norm() * b.norm()))


def summary(gradients: list[torch.Tensor], size: int) -> dict[str, Any]:
    pairs = [cosine(a, b) for a, b in itertools.combinations(gradients, 2)]
    mean = float(np.mean(pairs))
    spread = round(float(np.std(pairs, ddof=1) / np.sqrt(len(pairs))), 3) if len(pairs) > 1 else None
    needed = round(size * (1 - mean) / mean) if mean > 0 else None
    return {"cosine": round(mean, 3), "standard_error": spread, "rollouts_for_half_signal": needed}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--start", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/policy_noise.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = load_model(args.start)
    model.eval()
    chat = TemplateChat(tokenizer)
    found: dict[str, list[torch.Tensor]] = {name: [] for name in ESTIMATORS}
    for seed in range(args.batches):
        episodes = rollouts(model, chat, args, seed)
        for name, settings in ESTIMATORS.items():
            found[name].append(gradient(model, settings, episodes))
        print(f"batch {seed + 1} of {args.batches}", flush=True)
    size = args.tasks * GROUP
    rows = {name: summary(gradients, size) for name, gradients in found.items()}
    result = {
        "rollouts_a_batch": size,
        "batches": args.batches,
        "temperature": args.temperature,
        "estimators": rows,
    }
    with atomic_file(args.out) as handle:
        json.dump(result, handle, indent=1)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
