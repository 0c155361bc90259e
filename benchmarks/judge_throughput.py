"""How fast verdicts come: many criteria on one conversation, against the usual ways of asking.

    make smollm2 && OMP_NUM_THREADS=1 taskset -c 0 .venv/bin/python benchmarks/judge_throughput.py
    … --modes direct --criteria 8 --sides ours first --conversations 3        # one cell
    … --sides vllm autorubric http --modes critique --criteria 8 32           # those that need vLLM

Sides, all on the same model and precision:
    ours        RewardModel on the transformers engine
    first       one prompt a criterion with the criterion before the conversation: same tokens, engine, buckets
    vllm        RewardModel on the offline vLLM engine
    autorubric  autorubric 1.6.1 as client of a vLLM server (critiques only; its own prompt, its own parsing)
    http        RewardModel.connect on that server

autorubric needs an environment of its own:
    python3.11 -m venv .cache/autorubric-venv && .cache/autorubric-venv/bin/pip install autorubric==1.6.1

Every conversation is one measurement and is written to the result file when it is done; a second run goes on
there. Only valid verdicts count (scored or cannot-assess; autorubric: no error). Costs are processor seconds
of all processes involved, which on one pinned core are the wall time of an idle machine and hold on a busy
one; wall time is kept beside them. Ratios: cost a valid verdict of a side over that of ours on the
conversations that both judged, 95 % bootstrap over conversations; one without a valid verdict on either side is
left out of the ratio and counted. A server that ends stops the run: its rows would be no measurement.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.data.writing import atomic_file
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rm.engines.loading import load_engine

sys.path.insert(0, str(Path(__file__).parent))  # PYTHONSAFEPATH keeps it out
from throughput_compare import compared, keep
from throughput_material import CriterionFirst, as_text, conversation, criteria
from throughput_server import Server, cpu_seconds, served

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("ours", "first", "vllm", "autorubric", "http")
TEMPERATURE = 0.7
Judged = dict[str, Any]
Side = Callable[[Trajectory, list[Criterion], str], Judged]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default=str(ROOT / ".cache" / "smollm2-135m"))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["ours", "first"])
    parser.add_argument("--modes", nargs="+", choices=("direct", "critique"), default=["direct", "critique"])
    parser.add_argument("--criteria", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--conversations", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=600, help="of a conversation")
    parser.add_argument("--budget", type=int, default=128, help="output tokens a verdict in critique mode")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument(
        "--autorubric-python", default=str(ROOT / ".cache" / "autorubric-venv" / "bin" / "python")
    )
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "judge_throughput.json")
    return parser.parse_args()


def judged_by(judge: RewardModel, budget: int) -> Side:
    """A side of ours: requests in, counts out."""

    def run(trajectory: Trajectory, asked: list[Criterion], mode: str) -> Judged:
        before = dict(judge.usage)
        one = judge.with_settings(mode=mode, max_notes_tokens=budget, temperature=TEMPERATURE)
        verdicts = one.verdicts([VerdictRequest(trajectory, criterion) for criterion in asked])
        kinds = Counter(v.kind if isinstance(v, Failed) else v.status for v in verdicts)
        flags = Counter(flag for v in verdicts if not isinstance(v, Failed) for flag in v.flags)
        valid = sum(isinstance(v, Scored | CannotAssess) for v in verdicts)
        spent = {name: count - before.get(name, 0) for name, count in judge.usage.items()}
        return {"asked": len(asked), "valid": valid, "kinds": dict(kinds), "flags": dict(flags), **spent}

    return run


class Sides:
    """Starts what a side needs when it is first asked for; all of it ends with the stack."""

    def __init__(self, args: argparse.Namespace, stack: ExitStack) -> None:
        self.args, self.stack = args, stack
        self._server: Server | None = None
        self._engine: Any = None

    def start(self, name: str) -> Side:
        if name == "autorubric":
            return self._autorubric()
        if name == "http":
            judge = RewardModel.connect(
                self._served(), model="judge", tokenizer=self.args.model, deadline_s=3600.0
            )
            return judged_by(judge, self.args.budget)
        if name == "vllm":
            engine = self.stack.enter_context(load_engine("vllm", self.args.model, dtype=self.args.dtype))
            judge = RewardModel.from_engine(engine, engine.tokenizer)
            return judged_by(judge, self.args.budget)
        if self._engine is None:
            self._engine = load_engine("transformers", self.args.model, dtype=self.args.dtype)
        judge = RewardModel.from_engine(self._engine, self._engine.tokenizer)
        if name == "first":
            judge = RewardModel(judge.engine, CriterionFirst(self._engine.tokenizer), judge.asking)
        return judged_by(judge, self.args.budget)

    def check(self) -> None:
        """Raise ``SystemExit`` where a server that was started has ended: what it left is no measurement."""
        if self._server is not None:
            self._server.check()

    def _served(self) -> str:
        if self._server is None:
            log = self.args.out.with_suffix(".server.log")
            self._server = self.stack.enter_context(served(self.args.model, self.args.dtype, log, 4096))
        return self._server.url

    def _autorubric(self) -> Side:
        script = str(Path(__file__).with_name("throughput_autorubric.py"))
        settings = [self._served(), str(self.args.budget), str(TEMPERATURE)]
        command = [self.args.autorubric_python, script, *settings]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        environment["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would ask the network for prices
        client = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.stack.callback(client.terminate)

        def run(trajectory: Trajectory, asked: list[Criterion], mode: str) -> Judged:
            if client.stdin is None or client.stdout is None:
                raise SystemExit("the autorubric client has no pipes")
            line = {"text": as_text(trajectory), "asks": [criterion.ask for criterion in asked]}
            print(json.dumps(line), file=client.stdin, flush=True)
            reply = client.stdout.readline()
            if not reply:
                raise SystemExit(f"the autorubric client ended with {client.poll()}")
            return dict(json.loads(reply))

        return run


def cells(args: argparse.Namespace) -> Iterator[tuple[str, int, str]]:
    """Mode, criteria and side, the cheap ones first."""
    for count in sorted(args.criteria):
        for mode in args.modes:
            for side in args.sides:
                if side != "autorubric" or mode == "critique":
                    yield mode, count, side


def measured(args: argparse.Namespace, rows: list[Judged], save: Callable[[], None]) -> None:
    """Fill ``rows`` with what is missing, conversation by conversation."""
    done = {(r["side"], r["mode"], r["criteria"], r["conversation"]) for r in rows}
    started: dict[str, Side] = {}
    with ExitStack() as stack:
        sides = Sides(args, stack)
        for mode, count, name in cells(args):
            for number in range(args.conversations):
                if (name, mode, count, number) in done:
                    continue
                if name not in started:
                    started[name] = sides.start(name)
                    warm = conversation(tokenizer_of(args.model), 10**6, 40)
                    started[name](warm, criteria(1), mode if name != "autorubric" else "critique")
                dialogue = conversation(tokenizer_of(args.model), number, args.tokens)
                cpu, wall = _spent(), time.perf_counter()
                found = started[name](dialogue, criteria(count), mode)
                sides.check()
                found["cpu_s"] = round(_spent() - cpu, 2)
                found["wall_s"] = round(time.perf_counter() - wall, 2)
                row = {"side": name, "mode": mode, "criteria": count, "conversation": number, **found}
                print(json.dumps(row), flush=True)
                keep(row, rows)
                save()


def _spent() -> float:
    return cpu_seconds(os.getpid())  # servers and clients are children of this process


_TOKENIZERS: dict[str, Any] = {}


def tokenizer_of(model: str) -> Any:
    if model not in _TOKENIZERS:
        from transformers import AutoTokenizer

        _TOKENIZERS[model] = AutoTokenizer.from_pretrained(model)
    return _TOKENIZERS[model]


def main() -> int:
    args = arguments()
    sizes = {name: getattr(args, name) for name in ("tokens", "budget", "dtype")}
    setup = {"model": Path(args.model).name, **sizes, "threads": torch.get_num_threads()}
    result: dict[str, Any] = {"setup": setup, "rows": []}
    if args.out.exists():
        result = json.loads(args.out.read_text(encoding="utf-8"))
        if result["setup"] != setup:
            raise SystemExit(f"{args.out} holds {result['setup']}, this is {setup}: choose another --out")

    def save() -> None:
        result["compared"] = compared(result["rows"], SIDES)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(args.out) as handle:
            handle.write(json.dumps(result, indent=1) + "\n")

    measured(args, result["rows"], save)
    save()
    for table in result["compared"]:
        print(json.dumps(table))
        if table["left_out"]:
            print(f"  left out: {table['left_out']} conversations without a valid verdict on either side")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
