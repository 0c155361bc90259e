"""One policy update, three ways, on the same tokens: packed trajectories, one row a turn, TRL's GRPOTrainer.

    taskset -c 0 env OMP_NUM_THREADS=1 python benchmarks/policy_update.py     # goes on where it was stopped

A model of SmolLM2-135M's shape with random weights (``--layers`` of its 30) in fp32 on one thread. One trajectory
of T turns, each ``--prompt`` new prompt tokens and ``--action`` sampled ones; GRPO's clipped loss; time is forward
and backward in CPU seconds of this process, so that a busy machine does not matter. Arms take turns within a
repeat; ratios are medians over repeats with a 95 % bootstrap interval.

- ``packed``: ours, the trajectory is one row.
- ``per_turn``: ours, a row a turn (its whole past as prompt), padded to one batch, or row by row
  (``per_turn_unpadded``), whose gradients are accumulated.
- ``trl_per_turn``: TRL 1.16's ``_compute_loss`` on the padded batch of rows a turn.
- ``trl_packed``: the same on one row with a ``tool_mask``, what TRL does in its own tool loop.

Saved bytes: what autograd keeps of the section from the last hidden states to the loss
(``torch.autograd.graph.saved_tensors_hooks``, storages once), for a minibatch of ``--trajectories`` trajectories.
"""

import argparse
import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from axiomrm.data.writing import atomic_file
from axiomrm.policy_opt.algorithms.base import Minibatch
from axiomrm.policy_opt.algorithms.grpo import GRPO
from axiomrm.policy_opt.config import GRPOConfig
from axiomrm.policy_opt.logprobs import chunk_rows, logprobs_of_hidden
from axiomrm.policy_opt.losses import clipped_surrogate
from axiomrm.policy_opt.packing import DrawnStep
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.update import accumulate_gradient

RESULT = Path(__file__).parent / "results" / "policy_update.json"
VOCABULARY, HIDDEN = 49_152, 576
Arm = Callable[[], None]


def smollm2(layers: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=1536, num_hidden_layers=layers,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2, pad_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def packed(turns: int, prompt: int, action: int) -> TrajectoryRecord:
    """One trajectory, one segment; behaviour log-probs near those of a uniform policy."""
    rng = np.random.default_rng(0)
    width = prompt + action
    ids = rng.integers(3, VOCABULARY, size=turns * width).astype(np.int32)
    steps = [
        StepRecord("a", t, 0, t * width + prompt, (t + 1) * width, 0, behaviour(rng, action))
        for t in range(turns)
    ]
    return TrajectoryRecord("a", "", "g", [ids], steps, 0)


def behaviour(rng: np.random.Generator, n: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return (-np.log(VOCABULARY) + 0.05 * rng.normal(size=n)).astype(np.float32)


def unpacked(record: TrajectoryRecord) -> TrajectoryRecord:
    """The same steps, a segment each: the turn's whole past, then its action."""
    segments = [record.segments[0][: step.end] for step in record.steps]
    steps = [StepRecord("a", s.turn, s.turn, s.start, s.end, 0, s.behaviour_logprobs) for s in record.steps]
    return TrajectoryRecord("a", "", "g", segments, steps, 0)


def advantages(turns: int) -> list[float]:
    return [1.0 if t % 2 else -0.5 for t in range(turns)]


def ours(model: Any, record: TrajectoryRecord, budget: int) -> Arm:
    values = advantages(len(record.steps))
    steps = [DrawnStep(record, s, a) for s, a in zip(record.steps, values, strict=True)]
    minibatch = Minibatch(steps, False, "token")

    def run() -> None:
        accumulate_gradient(model, GRPO(GRPOConfig()), minibatch, kl_beta=0.0, token_budget=budget)

    return run


def trl_trainer(model: Any, rows: int, length: int, folder: str) -> Any:
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast
    from trl import GRPOConfig as Config
    from trl import GRPOTrainer

    words = Tokenizer(models.WordLevel({"<pad>": 0, "<unk>": 1, "</s>": 2}, unk_token="<unk>"))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    config = Config(
        output_dir=folder, per_device_train_batch_size=max(rows, 2), num_generations=max(rows, 2), beta=0.0,
        loss_type="bnpo", max_completion_length=length, report_to="none", use_cpu=True, bf16=False,
    )  # fmt: skip
    return GRPOTrainer(
        model=model, args=config, reward_funcs=lambda completions, **_: [0.0] * len(completions),
        processing_class=tokenizer, train_dataset=Dataset.from_dict({"prompt": ["x"]}),
    )  # fmt: skip


def trl_batch(rows: list[tuple[Tensor, Tensor, Tensor, Tensor]], prompts: list[int]) -> dict[str, Tensor]:
    """Left-padded prompts and right-padded completions of ``(ids, trained, old, advantage)`` rows."""
    left, right = max(prompts), max(len(row[0]) - n for row, n in zip(rows, prompts, strict=True))

    def pad(parts: list[Tensor], size: int, side: str) -> Tensor:
        out = torch.zeros((len(parts), size), dtype=parts[0].dtype)
        for i, part in enumerate(parts):
            where = slice(size - len(part), size) if side == "left" else slice(0, len(part))
            out[i, where] = part
        return out

    split = list(zip(rows, prompts, strict=True))
    return {
        "prompt_ids": pad([r[0][:n] for r, n in split], left, "left"),
        "prompt_mask": pad([torch.ones(n, dtype=torch.long) for n in prompts], left, "left"),
        "completion_ids": pad([r[0][n:] for r, n in split], right, "right"),
        "completion_mask": pad([torch.ones_like(r[0][n:]) for r, n in split], right, "right"),
        "tool_mask": pad([r[1][n:] for r, n in split], right, "right"),
        "old_per_token_logps": pad([r[2][n:] for r, n in split], right, "right"),
        "advantages": pad([r[3][n:] for r, n in split], right, "right"),
    }


def trl_rows(record: TrajectoryRecord) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Each segment's ids, and on them what is trained, old log-probs and advantages."""
    values, rows = advantages(len(record.steps)), []
    for number, segment in enumerate(record.segments):
        ids = torch.from_numpy(segment.astype(np.int64))
        trained, old, advantage = torch.zeros_like(ids), torch.zeros(len(ids)), torch.zeros(len(ids))
        for step in record.steps:
            if step.segment == number:
                trained[step.start : step.end] = 1
                old[step.start : step.end] = torch.from_numpy(step.behaviour_logprobs)
                advantage[step.start : step.end] = values[step.turn]
        rows.append((ids, trained, old, advantage))
    return rows


def theirs(model: Any, record: TrajectoryRecord, prompts: list[int], folder: str) -> Arm:
    batch = trl_batch(trl_rows(record), prompts)
    trainer = trl_trainer(model, len(prompts), batch["completion_ids"].shape[1], folder)

    def run() -> None:
        model.eval()
        trainer._compute_loss(model, batch).backward()

    return run


def gradient(model: Any) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def arms(model: Any, args: argparse.Namespace, folder: str) -> dict[str, Arm]:
    whole = packed(args.turns, args.prompt, args.action)
    rows = unpacked(whole)
    starts = [step.start for step in rows.steps]
    return {
        "packed": ours(model, whole, 1 << 30),
        "per_turn": ours(model, rows, 1 << 30),
        "per_turn_unpadded": ours(model, rows, 1),
        "trl_per_turn": theirs(model, rows, starts, folder),
        "trl_packed": theirs(model, whole, [args.prompt], folder),
    }


def saved_bytes(section: Callable[[], Tensor], weights: Tensor) -> int:
    """Bytes of distinct storages that autograd keeps for the backward of ``section``, the weights' own apart."""
    seen: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = section()
        loss.backward()  # type: ignore[no-untyped-call]  # torch
    seen.pop(weights.untyped_storage().data_ptr(), None)
    return sum(seen.values())


def head_section(positions: int, actions: int) -> dict[str, Any]:
    """Head and loss over ``positions`` states of which ``actions`` are trained."""
    torch.manual_seed(0)
    head = torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)
    hidden = torch.randn(positions, HIDDEN).requires_grad_()
    where = torch.arange(0, positions, positions // actions)[:actions]
    ids = torch.randint(VOCABULARY, (positions,))
    old, advantage = torch.full((actions,), -float(np.log(VOCABULARY))), torch.ones(actions)

    def selected() -> Tensor:
        logp = logprobs_of_hidden(hidden[where], head, ids[where], 1.0).logp_N
        return clipped_surrogate(logp, old, advantage).sum()

    def full() -> Tensor:
        logp = head(hidden).float().log_softmax(-1)[where, ids[where]]
        return clipped_surrogate(logp, old, advantage).sum()

    ours_b, full_b = saved_bytes(selected, head.weight), saved_bytes(full, head.weight)
    return {
        "positions": positions, "trained": actions, "chunk_rows": chunk_rows(head),
        "selected_bytes": ours_b, "full_bytes": full_b, "full_over_selected": full_b / ours_b,
    }  # fmt: skip


def seconds(model: Any, run: Arm) -> float:
    model.zero_grad()
    started = time.process_time()
    run()
    return time.process_time() - started


def interval(a: list[float], b: list[float]) -> dict[str, float]:
    """Median of the paired ratios ``a / b`` and its bootstrap interval."""
    ratios = np.array(a) / np.array(b)
    rng = np.random.default_rng(0)
    draws = np.median(ratios[rng.integers(len(ratios), size=(2000, len(ratios)))], axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    return {"median": float(np.median(ratios)), "low": float(low), "high": float(high)}


def agreement(model: Any, table: dict[str, Arm]) -> dict[str, float]:
    """Greatest difference of each arm's gradient to the packed one's, relative to its norm and its maximum."""
    found: dict[str, float] = {}
    expected = torch.empty(0)
    for name, run in table.items():
        model.zero_grad()
        run()
        got = gradient(model)
        if name == "packed":
            expected = got.clone()
        else:
            found[name] = float((got - expected).norm() / expected.norm())
    return found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    defaults = {"turns": 8, "prompt": 64, "action": 32, "layers": 30, "repeats": 5, "trajectories": 4}
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    settings = {k: v for k, v in vars(args).items() if k != "repeats"}
    settings |= {"torch": torch.__version__, "machine": platform.processor() or platform.machine()}
    rows = json.loads(RESULT.read_text(encoding="utf-8")) if RESULT.exists() else {}
    if rows.get("settings") != settings:
        rows = {"settings": settings, "seconds": {}}
    model = smollm2(args.layers)
    with tempfile.TemporaryDirectory() as folder:
        table = arms(model, args, folder)
        if "head_and_loss" not in rows:
            sizes = [n * args.turns for n in (1, args.trajectories)]
            sections = [head_section(n * (args.prompt + args.action), n * args.action) for n in sizes]
            rows["head_and_loss"] = sections
            write(rows)
        if "gradient_relative_difference" not in rows:
            rows["gradient_relative_difference"] = agreement(model, table)
            write(rows)
        done = rows["seconds"]
        while len(done.get("trl_packed", [])) < args.repeats:
            for name, value in {name: seconds(model, run) for name, run in table.items()}.items():
                done.setdefault(name, []).append(value)
            others = {name: values for name, values in done.items() if name != "packed"}
            rows["time_over_packed"] = {n: interval(v, done["packed"]) for n, v in others.items()}
            write(rows)
    print(json.dumps(rows, indent=1))


def write(rows: dict[str, Any]) -> None:
    RESULT.parent.mkdir(exist_ok=True)
    with atomic_file(RESULT) as handle:
        json.dump(rows, handle, indent=1)


if __name__ == "__main__":
    main()
