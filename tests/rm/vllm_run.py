"""What test_vllm_engine asks of a real vLLM, in a process of its own: vLLM leaves traces in the one it runs in.

Usage: vllm_run.py MODEL ADAPTER LOGS OUT, all paths; OUT gets JSON.
"""

import json
import sys
from dataclasses import replace
from typing import Any

from axiomrm import cli
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rm.engines.base import Prompt, Sampling
from axiomrm.rm.engines.loading import load_engine

ASKS = ("Is the agent polite?", "Did the agent say yes to the refund?", "Was the order number asked for?")


def requests(logs: str) -> list[VerdictRequest]:
    return [VerdictRequest(t, Criterion(ask, ask)) for t in Trajectory.read(logs) for ask in ASKS]


def main() -> None:
    model, adapter, logs, out = sys.argv[1:]
    found: dict[str, Any] = {"asks": ASKS}
    judge = RewardModel.from_pretrained(model, engine="vllm")
    engine: Any = judge.engine
    asked = requests(logs)
    found["direct"] = [v.model_dump(mode="json") for v in judge.verdicts(asked)]
    found["usage"], found["identity"] = dict(judge.usage), dict(engine.identity)
    found["capabilities"] = {**vars(engine.capabilities)}
    notes = judge.with_settings(mode="critique", max_notes_tokens=12)
    found["critique"] = [[v.model_dump(mode="json") for v in notes.verdicts(asked[:3])] for _ in range(2)]
    prompt = Prompt(tuple(range(40, 140)), (7, 9), (), "gamu")
    other = replace(prompt, prefix_ids=prompt.prefix_ids[:50])
    sampling = Sampling(max_new_tokens=8, temperature=1.0, seed=3)
    for name, prompts, how in (
        ("twice", [prompt, prompt, other], sampling),
        ("again", [other, prompt], sampling),
        ("other seed", [prompt], replace(sampling, seed=4)),
        ("greedy", [prompt], replace(sampling, temperature=0.0)),
    ):
        found[name] = [list(row.token_ids) for row in engine.generate(prompts, how)]
    long = Prompt((5,) * engine.max_tokens, (7,), (), "gamu")
    (refused, fine) = engine.generate([long, prompt], sampling)
    found["too long"] = [refused.kind, isinstance(fine, Failed)]
    crowd = [
        Prompt((9 + i, *range(40, 140)) * 15, (7,), (), "gamu") for i in range(8)
    ]  # more than a step reads
    found["crowd"] = [
        len(getattr(row, "token_ids", ())) or str(row)
        for row in engine.generate(crowd, replace(sampling, max_new_tokens=2))
    ]
    engine.close()
    with load_engine("vllm", adapter) as adapted:  # type: ignore[union-attr]  # vLLM's engine is one
        tuned = RewardModel.from_engine(adapted, adapted.tokenizer)
        found["adapter"] = [v.model_dump(mode="json") for v in tuned.verdicts(asked)]
        found["adapter identity"] = dict(adapted.identity)
    arguments = ["score", logs, "--rubric", "general_quality", "--model", model, "--engine", "vllm"]
    found["exit"] = cli.main([*arguments, "--cache", "off", "--out", f"{out}.scored.jsonl"])
    with open(out, "w", encoding="utf-8") as handle:
        json.dump(found, handle)


if __name__ == "__main__":
    main()
