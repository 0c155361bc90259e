"""General stage of SmolLM2-135M on hh_harmless, judged on a held-out quarter beside its baselines.

    python benchmarks/smollm2_general.py            # goes on where it was stopped

Split by ``group``, 3/4 train, 1/4 held out. Each pair makes two pointwise direct rows (chosen Y, rejected N).
A pair is right when P(Y) of the preferred answer, X left out, is the larger one. Beside it: the untrained
base with the same prompts, shorter wins, longer wins, and TF-IDF + logistic regression fitted on the same
split. Intervals: 95 %, bootstrap over groups. Oldest messages of long contexts are left out, visibly.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from axiomrm.data.human.files import load_pairs
from axiomrm.data.splits import split_by_group
from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.trajectory import Message, PreferencePair, Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.data.writing import atomic_file
from axiomrm.rm.engines.transformers import TransformersEngine
from axiomrm.rm.prompt import Criterion, JudgePrompter
from axiomrm.rm.training.config import LoraSettings, StageConfig
from axiomrm.rm.training.stages import train_stage

ASK = "Is the last reply helpful, honest and harmless?"
LEFT_OUT = "(earlier messages left out)"
ROOT = Path(__file__).resolve().parents[1]
Margins = dict[str, list[float | None]]
CONFIG = StageConfig(
    stage="rm.general",
    template="compact",
    direct_share=1,
    max_tokens=1024,
    row_tokens=1024,
    batch_tokens=2048,
    epochs=1,
    learning_rate=2e-4,
    warmup_share=0.05,
    lora=LoraSettings(rank=16, alpha=32, last_layers=12),
    save_steps=4,
    log_steps=4,
)


def shortened(context: tuple[Message, ...], count: Callable[[str], int], limit: int) -> tuple[Message, ...]:
    """The last messages that fit in ``limit`` tokens (at least one), with a mark where others stood."""
    kept: list[Message] = []
    used = 0
    for message in reversed(context):
        used += count(message.content) + 8
        if kept and used > limit:
            return (Message(role="system", content=LEFT_OUT), *reversed(kept))
        kept.append(message)
    return context


def conversations(pair: PreferencePair, context: tuple[Message, ...]) -> Iterator[tuple[str, Trajectory]]:
    for side, answer in (("a", pair.a), ("b", pair.b)):
        messages = (*context, Message(role="assistant", content=answer))
        yield side, Trajectory(messages=messages, id=f"{pair.id}/{side}", group_id=pair.group)


def examples(pairs: list[PreferencePair], count: Callable[[str], int], limit: int) -> list[JudgeExample]:
    made = []
    for pair in pairs:
        if pair.label == "tie":
            continue
        for side, trajectory in conversations(pair, shortened(pair.context, count, limit)):
            label = "Y" if side == pair.label else "N"
            turn = len(trajectory.turns) - 1
            made.append(JudgeExample(trajectory, turn, "hh_harmless", ASK, label, source="pair"))
    return made


def scores(
    model_folder: Path, pairs: list[PreferencePair], limit: int, path: Path, tokenizer: Any
) -> list[float | None]:
    """Log-odds Y over N, preferred minus other, one a pair; written line by line, so a killed run goes on."""
    done = (
        {r["id"]: r["margin"] for r in map(json.loads, path.read_text().splitlines())}
        if path.exists()
        else {}
    )
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    engine, prompter = (
        TransformersEngine(model, tokenizer),
        JudgePrompter(tokenizer, template=CONFIG.template),
    )
    criterion = Criterion("hh_harmless", ASK)
    count = counter(tokenizer)
    with path.open("a") as out:
        for pair in pairs:
            if pair.id in done:
                continue
            prompts = [
                prompter.render(t, criterion, len(t.turns) - 1)
                for _, t in conversations(pair, shortened(pair.context, count, limit))
            ]
            tables = [prompter.table(criterion.labels, p.nonce) for p in prompts if not isinstance(p, Failed)]
            read = engine.label_logprobs([p for p in prompts if not isinstance(p, Failed)], tables)
            odds = [r.logprobs["Y"] - r.logprobs["N"] for r in read if not isinstance(r, Failed)]
            sign = 1 if pair.label == "a" else -1
            margin = sign * (odds[0] - odds[1]) if len(odds) == 2 else None
            done[pair.id] = margin
            print(json.dumps({"id": pair.id, "margin": margin}), file=out, flush=True)
    return [done[pair.id] for pair in pairs]


def counter(tokenizer: Any) -> Callable[[str], int]:
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def tfidf(train: list[PreferencePair], test: list[PreferencePair]) -> list[float]:
    """Logistic regression on differences of TF-IDF features of the answers, both orders, no intercept."""
    from scipy.sparse import vstack
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    words = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    words.fit([text for pair in train for text in (pair.a, pair.b)])

    def differences(pairs: list[PreferencePair]) -> Any:
        return words.transform([p.a for p in pairs]) - words.transform([p.b for p in pairs])

    x = differences(train)
    y = np.array([pair.label == "a" for pair in train])
    fit = LogisticRegression(C=1.0, fit_intercept=False, max_iter=1000).fit(vstack([x, -x]), np.r_[y, ~y])
    signs = np.array([1 if pair.label == "a" else -1 for pair in test])
    return list(map(float, fit.decision_function(differences(test)) * signs))


def summary(margins: list[float | None], groups: list[str]) -> dict[str, Any]:
    """Pair accuracy (a tie counts half; failures counted apart), 95 % over groups."""
    right = [None if m is None else 0.5 if m == 0 else float(m > 0) for m in margins]
    known = [r for r in right if r is not None]
    by_group: dict[str, list[float]] = {}
    for r, group in zip(right, groups, strict=True):
        if r is not None:
            by_group.setdefault(group, []).append(r)
    cells = [(sum(v), len(v)) for v in by_group.values()]
    rng = random.Random(0)
    means = []
    for _ in range(4000):
        drawn = rng.choices(cells, k=len(cells))
        means.append(sum(s for s, _ in drawn) / sum(n for _, n in drawn))
    means.sort()
    return {
        "accuracy": sum(known) / len(known),
        "interval_95": [means[99], means[3899]],
        "n": len(known),
        "failed": len(right) - len(known),
        "accuracy_failures_wrong": sum(known) / len(right),
    }


def paired_gain(ours: list[float | None], other: list[float | None], groups: list[str]) -> dict[str, Any]:
    """Accuracy difference on the pairs that both scored."""

    def right(m: float) -> float:
        return 0.5 if m == 0 else float(m > 0)

    both = [
        (right(a) - right(b), g)
        for a, b, g in zip(ours, other, groups, strict=True)
        if a is not None and b is not None
    ]
    by_group: dict[str, list[float]] = {}
    for gain, group in both:
        by_group.setdefault(group, []).append(gain)
    cells = [(sum(v), len(v)) for v in by_group.values()]
    rng = random.Random(0)
    means = sorted(
        sum(s for s, _ in d) / sum(n for _, n in d)
        for d in (rng.choices(cells, k=len(cells)) for _ in range(4000))
    )
    return {"gain": sum(g for g, _ in both) / len(both), "interval_95": [means[99], means[3899]]}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / ".cache/smollm2-135m")
    parser.add_argument("--work", type=Path, default=ROOT / ".cache/smollm2_general")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/smollm2_general.json")
    parser.add_argument("--context-tokens", type=int, default=120)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--pairs", type=int, default=None, help="only so many pairs of each side (a smoke test)"
    )
    return parser.parse_args()


def margins_of(args: argparse.Namespace, folder: Path, train: Any, held: Any, tokenizer: Any) -> Margins:
    """How far each judge prefers the right answer of each held-out pair; ``None``: it failed."""
    tokens = args.context_tokens
    return {
        "rm.general": scores(folder, held, tokens, args.work / "trained.jsonl", tokenizer),
        "untrained base": scores(args.model, held, tokens, args.work / "base.jsonl", tokenizer),
        "TF-IDF + logistic": list(tfidf(train, held)),
        "shorter wins": [(len(p.b) - len(p.a)) * (1.0 if p.label == "a" else -1.0) for p in held],
        "longer wins": [(len(p.a) - len(p.b)) * (1.0 if p.label == "a" else -1.0) for p in held],
    }


def results(margins: Margins, groups: list[str]) -> dict[str, Any]:
    """Accuracy of each judge, and the trained one's gain over the others."""
    others = {name: values for name, values in margins.items() if name != "rm.general"}
    return {
        "accuracy": {name: summary(values, groups) for name, values in margins.items()},
        "gain over": {n: paired_gain(margins["rm.general"], values, groups) for n, values in others.items()},
    }


def training(stage: Any, context_tokens: int) -> dict[str, Any]:
    """What the stage did."""
    losses = [stage.history[0]["loss"], stage.history[-1]["loss"]] if stage.history else []
    return {
        "config": CONFIG.model_dump(mode="json"),
        "context_tokens": context_tokens,
        "steps": stage.steps,
        "tokens": stage.tokens,
        "data_hash": stage.data_hash,
        "counts": stage.counts,
        "loss_first_last": losses,
    }


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    pairs = [pair for pair in load_pairs("hh_harmless").records if pair.label != "tie"]
    sides = split_by_group(pairs, {"train": 0.75, "held_out": 0.25}, seed=0)
    train, held = sides["train"][: args.pairs], sides["held_out"][: args.pairs]
    print(f"{len(train)} train pairs, {len(held)} held out", flush=True)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    started = time.monotonic()
    rows = examples(train, counter(tokenizer), args.context_tokens)
    stage = train_stage(
        args.model, tokenizer, rows, [], args.work / "stage", CONFIG, base="SmolLM2-135M-Instruct"
    )
    print(f"trained: {stage.steps} steps, {stage.tokens} tokens, {stage.seconds:.0f} s", flush=True)
    groups = [pair.group for pair in held]
    found = results(margins_of(args, stage.folder, train, held, tokenizer), groups)
    result = {
        "what": "pair accuracy on the held-out quarter of hh_harmless, split by group",
        "protocol": "pointwise, direct mode, log-odds Y over N, micro average",
        "pairs": {"train": len(train), "held_out": len(held), "held_out_groups": len(set(groups))},
        "training": training(stage, args.context_tokens),
        **found,
        "seconds_this_run": round(time.monotonic() - started),
    }
    with atomic_file(args.out) as handle:
        handle.write(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["accuracy"], indent=1))


if __name__ == "__main__":
    main()
