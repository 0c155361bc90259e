"""Pre-train the nano base model that the quickstart fine-tunes (``make nano``).

    python scripts/pretrain_nano.py --minutes 75 --out .cache/nano/base

A Llama of 1.9 M parameters, next-token loss on the corpus of ``nano_corpus.py``: answers and agent turns
count in full, the rest a quarter. Resumable: a checkpoint every two minutes, documents are keyed by their
number, the learning rate follows the share of the time budget that is spent.
"""

import argparse
import hashlib
import json
import math
import os
import random
import time
from pathlib import Path
from typing import Any

import torch
from nano_corpus import document
from nano_tokenizer import train_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from axiomrm.data.trajectory import Message
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.rm.training.optimizer import make_optimizer

CARD = """# nano: the base model of the quickstart

A Llama of {parameters} parameters (160 wide, 5 layers) with its own byte-level BPE of 2,048 tokens and a chat template.
Made by `make nano` (`scripts/sample_smollm2.py`, `scripts/pretrain_nano.py`); weights in float16, SHA-256 of
`model.safetensors`: `{sha256}`.

**Data.** Service-desk dialogues of the train split by erring scripted agents, recordings of random words, copy, recall and
compare tasks on them, lists said again, and {general} short conversations sampled from SmolLM2-135M-Instruct (Apache-2.0).
No verdict line, no criterion, no label, no held-out wording.

**Training.** {steps} steps, {tokens} tokens, {minutes} minutes of the last schedule; Muon for hidden matrices, AdamW for the rest.

| task (whole answer right, unseen documents) | share |
|---|---|
{accuracy}

**Use.** A starting point for fine-tuning a judge or an agent of the service desk on a CPU. It knows nothing of the world and is no use
outside that desk. Licence: Apache-2.0.
"""
QUIET = 0.25
"""Loss weight of tokens that are neither an answer nor an agent's turn."""
MAX_TOKENS = 640
SHAPE = {
    "hidden_size": 160,
    "num_hidden_layers": 5,
    "num_attention_heads": 5,
    "num_key_value_heads": 5,
    "intermediate_size": 448,
}


def read_general(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def make_tokenizer(out: Path, general: list[dict[str, str]]) -> PreTrainedTokenizerFast:
    if (out / "tokenizer.json").exists():
        return PreTrainedTokenizerFast.from_pretrained(out)
    texts = [m.content for i in range(6000) for m in document(random.Random(f"tok{i}"), [])]
    tokenizer = train_tokenizer(texts + [t for g in general for t in g.values()])
    tokenizer.save_pretrained(out)
    return tokenizer


def encode(chat: TemplateChat, messages: list[Message]) -> tuple[list[int], list[float]]:
    ids: list[int] = []
    weights: list[float] = []
    for message in messages:
        own = chat.message_ids(message)
        ids += own
        weights += [QUIET] + [1.0 if message.role == "assistant" else QUIET] * (len(own) - 1)
    return ids[:MAX_TOKENS], weights[:MAX_TOKENS]


def batches(chat: TemplateChat, general_path: Path, start: int, tokens: int) -> Any:
    """Endless length-sorted batches; document ``i`` depends on ``i`` alone."""
    number = start
    while True:
        general = read_general(general_path)
        docs = sorted(
            (encode(chat, document(random.Random(number + i), general, number + i)) for i in range(800)),
            key=lambda d: len(d[0]),
        )
        number += 800
        groups: list[list[tuple[list[int], list[float]]]] = [[]]
        for doc in docs:
            if (len(groups[-1]) + 1) * len(doc[0]) > tokens:
                groups.append([])
            groups[-1].append(doc)
        random.Random(number).shuffle(groups)
        for group in groups:
            yield number, group


def tensors(group: list[tuple[list[int], list[float]]]) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(ids) for ids, _ in group)
    ids = torch.tensor([i + [0] * (width - len(i)) for i, _ in group])
    weights = torch.tensor([w + [0.0] * (width - len(w)) for _, w in group])
    return ids, weights


def loss_of(model: LlamaForCausalLM, ids: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    logits = model(input_ids=ids).logits[:, :-1]
    nll = torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1), reduction="none"
    )
    w = weights[:, 1:].reshape(-1)
    return (nll * w).sum() / w.sum()


def answer_accuracy(model: LlamaForCausalLM, chat: TemplateChat, n: int = 400) -> dict[str, float]:
    """Share of unseen tasks whose whole answer is predicted greedily (teacher forced), by task."""
    right: dict[str, list[bool]] = {}
    model.eval()
    with torch.inference_mode():
        for i in range(n):
            messages = document(random.Random(f"held{i}"), [])
            if messages[0].content != "Examine the record.":
                continue
            ids: list[int] = []
            spans, task = [], ""
            for m in messages:
                own = chat.message_ids(m)
                if m.role == "assistant":
                    spans.append((len(ids) + 1, len(ids) + len(own), task))
                task = m.content.rstrip("\n").rsplit("\n", 1)[-1].split(" ")[0]
                ids += own
            best = model(input_ids=torch.tensor([ids])).logits[0].argmax(-1)
            for a, b, name in spans:
                right.setdefault(name, []).append(best[a - 1 : b - 1].tolist() == ids[a:b])
    model.train()
    return {k: round(sum(v) / len(v), 3) for k, v in sorted(right.items())}


def save(out: Path, model: LlamaForCausalLM, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    held = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "state": state}
    torch.save(held, out / "train.tmp")
    os.replace(out / "train.tmp", out / "train.pt")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(".cache/nano/base"))
    parser.add_argument("--general", type=Path, default=Path(".cache/nano/smollm2_text.jsonl"))
    parser.add_argument("--ship", type=Path, default=Path("data/bundled/nano"))
    parser.add_argument("--minutes", type=float, default=75)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(args.out, read_general(args.general))
    chat = TemplateChat(tokenizer)
    torch.manual_seed(0)
    config = LlamaConfig(
        **SHAPE,
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
        max_position_embeddings=2048,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    optimizer = make_optimizer(model, "muon", learning_rate=args.lr, weight_decay=0.05)
    state: dict[str, Any] = {"step": 0, "next_document": 0, "seconds": 0.0, "tokens": 0}
    if (args.out / "train.pt").exists():
        saved = torch.load(args.out / "train.pt", weights_only=False)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        state = saved["state"]
    train(args, model, optimizer, chat, state)
    publish(args, model, tokenizer, chat, state)


def publish(
    args: argparse.Namespace,
    model: LlamaForCausalLM,
    tokenizer: Any,
    chat: TemplateChat,
    state: dict[str, Any],
) -> None:
    """Half-precision weights, tokenizer and a card with the hash, into the folder that ships."""
    accuracy = answer_accuracy(model, chat, 1000)
    model.to(torch.float16).save_pretrained(args.ship)
    tokenizer.save_pretrained(args.ship)
    weights = hashlib.sha256((args.ship / "model.safetensors").read_bytes()).hexdigest()
    parameters = sum(p.numel() for p in model.parameters())
    (args.ship / "README.md").write_text(CARD.format(
        parameters=f"{parameters:,}", sha256=weights, general=len(read_general(args.general)), steps=state["step"],
        tokens=f"{state['tokens']:,}", minutes=f"{state['seconds'] / 60:.0f}",
        accuracy="\n".join(f"| {task} | {share:.3f} |" for task, share in accuracy.items()),
    ))  # fmt: skip


def warmed(step: int) -> float:
    """Linear over the first 100 steps."""
    return min(1, (step + 1) / 100)


def decayed(share: float) -> float:
    """Cosine over the share of the time that is used up, to a twentieth."""
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * share))


def train(
    args: argparse.Namespace,
    model: LlamaForCausalLM,
    optimizer: torch.optim.Optimizer,
    chat: TemplateChat,
    state: dict[str, Any],
) -> None:
    budget = args.minutes * 60
    mark, saved_at, mean = time.monotonic(), time.monotonic(), 0.0
    for number, group in batches(chat, args.general, state["next_document"], args.tokens):
        share = state["seconds"] / budget
        if share >= 1:
            break
        lr = args.lr * warmed(state["step"]) * decayed(share)
        for group_ in optimizer.param_groups:
            group_["lr"] = lr
        ids, weights = tensors(group)
        loss = loss_of(model, ids, weights)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        now = time.monotonic()
        state |= {
            "step": state["step"] + 1,
            "next_document": number,
            "seconds": state["seconds"] + now - mark,
            "tokens": state["tokens"] + ids.numel(),
        }
        mark = now
        mean = loss.item() if not mean else 0.95 * mean + 0.05 * loss.item()
        if state["step"] % 50 == 0:
            done = f"{state['tokens'] / 1e6:.1f}M tokens {state['seconds'] / 60:.1f} min"
            print(f"step {state['step']} loss {mean:.3f} lr {lr:.2e} {done}", flush=True)
        if state["step"] % 200 == 0:
            print(answer_accuracy(model, chat, 150), flush=True)
        if now - saved_at > 120:
            save(args.out, model, optimizer, state)
            saved_at = now
    save(args.out, model, optimizer, state)


if __name__ == "__main__":
    main()
