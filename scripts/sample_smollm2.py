"""Sample short everyday conversations from SmolLM2-135M-Instruct: general text for the nano base model.

Resumable: batches are appended to the output as they finish, seeds count on from what is there.

    python scripts/sample_smollm2.py --model .cache/smollm2-135m --out .cache/nano/smollm2_text.jsonl --batches 40
"""

import argparse
import json
import random
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

TOPICS = (
    "a late parcel",
    "a broken kettle",
    "a hotel room",
    "a train ticket",
    "a lost wallet",
    "a garden",
    "a birthday party",
    "a new phone",
    "a recipe for soup",
    "a walk by the sea",
    "a library book",
    "a bicycle repair",
    "a bank card",
    "a dentist visit",
    "a school trip",
    "a rainy day",
    "a job interview",
    "a moving van",
    "a coffee machine",
    "a pet cat",
)
FORMS = (
    "Write two short sentences about {x}.",
    "A customer asks about {x}. Answer in one or two short sentences.",
    "Write a short polite reply to a friend about {x}.",
    "Tell me in plain words one useful thing about {x}.",
    "Write a short dialogue of four lines about {x}.",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--max-new-tokens", type=int, default=48)
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done = len(args.out.read_text().splitlines()) // args.batch_size if args.out.exists() else 0
    for batch in range(done, args.batches):
        rng = random.Random(batch)
        torch.manual_seed(batch)
        asks = [rng.choice(FORMS).format(x=rng.choice(TOPICS)) for _ in range(args.batch_size)]
        chats = [[{"role": "user", "content": ask}] for ask in asks]
        texts = [tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c in chats]
        inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.inference_mode():
            out = model.generate(
                **inputs, do_sample=True, temperature=0.9, max_new_tokens=args.max_new_tokens
            )
        replies = tokenizer.batch_decode(out[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        with args.out.open("a") as file:
            for ask, reply in zip(asks, replies, strict=True):
                file.write(json.dumps({"user": ask, "assistant": reply.strip()}) + "\n")
        print(f"batch {batch + 1}/{args.batches}", flush=True)


if __name__ == "__main__":
    main()
