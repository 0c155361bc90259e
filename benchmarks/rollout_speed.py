"""CPU seconds of policy rollouts in ``service_desk``: two readers of ours, and a loop over ``model.generate``.

    OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/rollout_speed.py      # goes on where it was stopped

The same tasks, environment, temperature (1) and limits on every side, all episodes in one batch:

- ``packed``: ``TransformersSampler`` through ``collect`` as it is. An episode goes on when its own turn ends, new
  ids of all episodes are read side by side.
- ``padded``: the same with the reader of models that cannot be packed. Rows share the columns of one cache and
  their turns begin together. Same random numbers as ``packed``, so the same token ids.
- ``generate``: what one writes without us, and what multi-turn loops around TRL do: for every turn
  ``model.generate`` on the whole histories of all live episodes, left-padded. Its random numbers are other ones.
  It gives no log-probs of the sampled ids, which training would have to pay for.

Sides take turns within a repeat, in another order each time; a repeat is another seed. Ratios are medians over
repeats of the paired ratios of CPU seconds, episodes' environments included, with a 95 % bootstrap interval.
"""

import argparse
import functools
import hashlib
import json
import math
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from policy_headline.desk_tasks import desk_tasks
from policy_headline.scale import turn_limit
from policy_update import interval

from axiomrm.data.trajectory import Task
from axiomrm.data.writing import atomic_file
from axiomrm.eval.bootstrap import bootstrap
from axiomrm.policy_opt.engines.transformers import Generation, Sampler, TransformersSampler
from axiomrm.policy_opt.envs.service_desk import ServiceDesk
from axiomrm.policy_opt.rewards.base import Episode
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.policy_opt.rollouts.limits import RolloutLimits
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.rm.engines.judging import evaluating
from axiomrm.stages.world import load_model

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "benchmarks" / "results" / "rollout_speed.json"
SIDES = ("packed", "padded", "generate")
MAX_TURN_TOKENS = 48


class GenerateSampler:
    """``model.generate`` on left-padded whole histories, a fresh pass over them every turn."""

    def __init__(self, model: Any, end_ids: frozenset[int], pad_id: int, temperature: float = 1.0) -> None:
        self.model, self.end_ids, self.pad_id, self.temperature = model, end_ids, pad_id, temperature

    def open(self, n: int) -> "GenerateRows":
        return GenerateRows(self, n)


class GenerateRows:
    """The histories of live episodes (a ``LiveRows``)."""

    def __init__(self, how: GenerateSampler, n: int) -> None:
        self._how = how
        self._histories: list[list[int]] = [[] for _ in range(n)]
        self._rooms: dict[int, int] = {}
        """Most tokens of the next turn, of each row that waits for one."""

    def feed(self, row: int, new_ids: Sequence[int], uniforms: NDArray[np.float64]) -> None:
        self._histories[row] += new_ids
        self._rooms[row] = len(uniforms)

    def step(self) -> list[tuple[int, Generation]]:
        if not self._rooms:
            return []
        rows, self._rooms = self._rooms, {}
        sampled = self._generate([self._histories[row] for row in rows], max(rows.values()))
        ended = [
            (row, self._turn(ids[:room])) for (row, room), ids in zip(rows.items(), sampled, strict=True)
        ]
        for row, generation in ended:
            self._histories[row] += generation.token_ids
        return ended

    def fork(self, row: int) -> None:
        self._histories[row] = []

    def drop(self, row: int) -> None:
        self._histories[row] = []

    def _generate(self, histories: list[list[int]], room: int) -> list[list[int]]:
        how, width = self._how, max(map(len, histories))
        ids = torch.full((len(histories), width), how.pad_id)
        mask = torch.zeros_like(ids)
        for place, history in enumerate(histories):
            ids[place, width - len(history) :] = torch.tensor(history)
            mask[place, width - len(history) :] = 1
        with torch.no_grad(), evaluating(how.model):
            out = how.model.generate(
                input_ids=ids, attention_mask=mask, max_new_tokens=room, do_sample=True, top_k=0, top_p=1.0,
                temperature=how.temperature, eos_token_id=sorted(how.end_ids), pad_token_id=how.pad_id,
            )  # fmt: skip
        return out[:, width:].tolist()  # type: ignore[no-any-return]  # transformers is untyped here

    def _turn(self, sampled: list[int]) -> Generation:
        ends = [place for place, token in enumerate(sampled) if token in self._how.end_ids]
        ids = sampled[: ends[0] + 1] if ends else sampled
        return Generation(ids, [math.nan] * len(ids), "stop" if ends else "length")


class Bench:
    """A policy, its tasks and the sides that play them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.model, self.tokenizer = load_model(args.model)
        self.chat = TemplateChat(self.tokenizer)
        self.tasks: list[Task] = desk_tasks("dev", args.episodes, args.horizon, args.work)
        self.env = functools.partial(ServiceDesk, turn_limit(args.horizon))
        self.limits = RolloutLimits(
            max_turns=args.max_turns, max_turn_tokens=MAX_TURN_TOKENS, max_live=args.episodes
        )

    def sampler(self, side: str) -> Sampler:
        ends = self.chat.end_ids
        if side == "generate":
            return GenerateSampler(self.model, ends, self.tokenizer.pad_token_id)
        sampler = TransformersSampler(self.model, ends)
        if side == "padded":
            sampler._packed = False
        return sampler

    def play(self, sampler: Sampler, seed: int, count: int | None = None) -> list[Episode]:
        """An episode of each of the first ``count`` tasks."""
        torch.manual_seed(seed)
        requests = group_requests(self.tasks[:count], 1, "speed")
        return collect(sampler, self.chat, self.env, requests, limits=self.limits, seed=seed)

    def repeat(self, seed: int) -> dict[str, dict[str, Any]]:
        """Every side once, from another one on each time."""
        first = seed % len(SIDES)
        played = {side: self._measured(self.sampler(side), seed) for side in SIDES[first:] + SIDES[:first]}
        packed = [sampled_ids(e) for e in played["packed"][0]]
        for episodes, row in played.values():
            same = [ours == sampled_ids(e) for ours, e in zip(packed, episodes, strict=True)]
            row["episodes_like_packed"] = sum(same)
        return {side: played[side][1] for side in SIDES}

    def _measured(self, sampler: Sampler, seed: int) -> tuple[list[Episode], dict[str, Any]]:
        started = time.process_time()
        episodes = self.play(sampler, seed)
        spent = time.process_time() - started
        records = [episode.record for episode in episodes]
        return episodes, {
            "cpu_s": spent,
            "sampled_tokens": sum(r.n_action_tokens for r in records),
            "turns": sum(len(r.steps) for r in records),
            "episode_tokens": sum(len(s) for r in records for s in r.segments),
            "outcomes": "".join("-" if math.isnan(r.outcome) else str(int(r.outcome >= 1)) for r in records),
        }  # fmt: skip


def sampled_ids(episode: Episode) -> list[list[int]]:
    """The ids of each turn."""
    record = episode.record
    return [record.segments[s.segment][s.start : s.end].tolist() for s in record.steps]


def summary(repeats: list[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Of each side over all repeats; ``time`` and ``success`` against ``packed``."""
    found: dict[str, dict[str, Any]] = {}
    for side in SIDES:
        rows = [repeat[side] for repeat in repeats]
        seconds = [row["cpu_s"] for row in rows]
        tokens = sum(row["sampled_tokens"] for row in rows)
        packed = [repeat["packed"] for repeat in repeats]
        found[side] = {
            "time_over_packed": interval(seconds, [row["cpu_s"] for row in packed]),
            "time_per_token_over_packed": interval(per_token(rows), per_token(packed)),
            "cpu_s": float(np.median(seconds)),
            "sampled_tokens_per_cpu_s": tokens / sum(seconds),
            "turns": sum(row["turns"] for row in rows) / sum(len(row["outcomes"]) for row in rows),
            "tokens_per_turn": tokens / sum(row["turns"] for row in rows),
            "success": success(rows),
            "success_minus_packed": success(rows, packed),
            "episodes_like_packed": sum(row["episodes_like_packed"] for row in rows),
        }
    return found


def per_token(rows: list[dict[str, Any]]) -> list[float]:
    """CPU seconds a sampled token; other random numbers give turns of other lengths."""
    return [row["cpu_s"] / row["sampled_tokens"] for row in rows]


def success(rows: list[dict[str, Any]], less: list[dict[str, Any]] | None = None) -> dict[str, float | None]:
    """Share of solved episodes (less that of other rows), of a task first; the interval draws tasks."""
    shares = solved(rows) if less is None else solved(rows) - solved(less)
    drawn = bootstrap(shares, unit="tasks")
    return {"value": drawn.value, "low": drawn.low, "high": drawn.high}


def solved(rows: list[dict[str, Any]]) -> NDArray[np.float64]:
    """Of each task, the share of its episodes with a known outcome that were solved; NaN: none is known."""
    known = [
        [o for o in outcomes if o != "-"] for outcomes in zip(*(r["outcomes"] for r in rows), strict=True)
    ]
    return np.array([o.count("1") / len(o) if o else math.nan for o in known])


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, default=ROOT / "benchmarks" / "policy_headline" / "start")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--horizon", type=int, default=8, help="turns that a perfect agent needs")
    parser.add_argument("--max-turns", type=int, default=32)
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "rollout_speed")
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args(argv)
    for name in ("episodes", "repeats", "horizon", "max_turns"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(args, name)}: at least 1")
    if not list(args.model.glob("*.safetensors")):
        parser.error(f"--model {args.model}: no folder with weights (*.safetensors)")
    return args


def weights(folder: Path) -> str:
    """Hash of a model's weights."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """What the numbers depend on; other settings of a model begin anew."""
    own = {name: getattr(args, name) for name in ("episodes", "horizon", "max_turns")}
    return own | {
        "turn_limit": turn_limit(args.horizon), "max_turn_tokens": MAX_TURN_TOKENS, "weights": weights(args.model),
        "torch": torch.__version__, "transformers": transformers.__version__,
        "machine": platform.processor() or platform.machine(),
    }  # fmt: skip


def key(args: argparse.Namespace) -> str:
    """What a model's rows stand under: its folder's name, and its weights, for other folders have that name."""
    return f"{args.model.resolve().name}-{weights(args.model)[:8]}"


def main(argv: Sequence[str] | None = None) -> None:
    args = arguments(argv)
    torch.set_num_threads(1)
    args.work.mkdir(parents=True, exist_ok=True)
    results = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {}
    name, wanted = key(args), settings(args)
    if results.get(name, {}).get("settings") != wanted:
        results[name] = {"settings": wanted, "repeats": []}
    repeats = results[name]["repeats"]
    bench = Bench(args)
    for side in SIDES:
        bench.play(bench.sampler(side), seed=0, count=1)  # what is loaded and set up at the first use
    while len(repeats) < args.repeats:
        repeats.append(bench.repeat(len(repeats)))
        results[name]["summary"] = summary(repeats)
        write(args.out, results)
        print(json.dumps(repeats[-1]), flush=True)
    print(json.dumps(results[name]["summary"], indent=1))


def write(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    with atomic_file(path) as handle:
        json.dump(results, handle, indent=1)


if __name__ == "__main__":
    main()
