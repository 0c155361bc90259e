"""The headline experiment, run by run; the protocol is docs/headline.md.

    python benchmarks/policy_headline/run.py tune [--jobs 2]
    python benchmarks/policy_headline/run.py fresh
    python benchmarks/policy_headline/run.py trained --judge FOLDER
    python benchmarks/policy_headline/run.py sweep horizon|noise|hack|dose
    python benchmarks/policy_headline/report.py

Every run is a process with one thread on a core of its own. A finished run is a row in
``benchmarks/results/policy_headline/<stage>.jsonl`` and is not run again; a killed one goes on from its last
checkpoint in ``--out``. ``--dry`` only says what is left. ``--quick``: three arms, two seeds, few iterations.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # PYTHONSAFEPATH keeps it out
from axiomrm.errors import ConfigError
from policy_headline.runs import Planner, Run, read_rows, weights_digest
from policy_headline.scale import FROZEN, QUICK, START, SWEEPS, Scale, no_folder, read_scale

ROOT = Path(__file__).resolve().parents[2]
PROTOCOL = ROOT / "docs" / "headline.md"
RESULTS = ROOT / "benchmarks" / "results"
PR_SET_PDEATHSIG = 1
"""A child whose parent was killed ends too, or the next call would find its cores taken."""


def stage_of(args: argparse.Namespace) -> str:
    return f"sweep-{args.sweep}" if args.what == "sweep" else str(args.what)


def missing(planner: Planner, args: argparse.Namespace) -> list[Run]:
    """Runs of the stage that no row has yet, each once."""
    rows = read_rows(args.results)
    done = {row["digest"] for found in rows.values() for row in found}
    needed = planner.needed(stage_of(args), rows, args.arms)
    runs = {run.digest: run for run in needed if run.digest not in done}
    return [run for run in runs.values() if not args.arms or run.arm in args.arms]


def committed(path: Path) -> bool:
    """Whether git holds the file as it is."""

    def git(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(["git", *arguments, "--", str(path)], cwd=ROOT, capture_output=True, text=True, check=False)  # fmt: skip

    return git("ls-files", "--error-unmatch").returncode == 0 and not git("status", "--porcelain").stdout


def check_protocol(args: argparse.Namespace) -> None:
    """Measuring seeds wait for the protocol."""
    if args.what == "tune" or args.dry or args.results.resolve() != (RESULTS / "policy_headline").resolve():
        return
    loose = [p for p in (PROTOCOL, args.scale) if not committed(p)]
    if loose:
        raise SystemExit(f"commit {', '.join(map(str, loose))} before any run of a fresh seed")


def all_runs(args: argparse.Namespace) -> int:
    """Run what is missing; 1 if a run failed."""
    from policy_headline.desk_tasks import desk_tasks
    from policy_headline.schedule import command, work

    scale: Scale = read_scale(args.scale)
    check_protocol(args)
    planner = Planner(scale, weights_digest(args.start), weights_digest(args.judge) if args.judge else None)
    if args.dry:
        for run in missing(planner, args):
            print(run.folder)
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    options = ["--start", str(args.start), "--out", str(args.out), "--results", str(args.results)]
    options += ["--judge", str(args.judge)] if args.judge else []
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the runs end with this process
    for run in missing(planner, args):  # once here, so that no two runs look for the same tasks
        desk_tasks("train", run.train_tasks, run.horizon, args.out / "tasks")
        desk_tasks(run.split, run.eval_tasks, run.horizon, args.out / "tasks")
    failed = work(
        lambda: missing(planner, args),
        lambda run, core: command(run, core, args.out, options),
        args.cores[: args.jobs],
        args.out,
    )
    for name in failed:
        print(f"not finished: {name}")
    return int(bool(failed))


def one(args: argparse.Namespace) -> int:
    """What a child does: the run in a folder, pinned to its core, for as long as its parent lives."""
    import torch

    from policy_headline.one_run import alone, finish

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if args.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {args.core})
    torch.set_num_threads(1)
    folder: Path = args.folder
    run = Run.model_validate_json((folder / "run.json").read_text(encoding="utf-8"))
    if weights_digest(args.start) != run.start:
        raise SystemExit(f"{args.start}: not the weights that {folder.name} starts from")
    with alone(folder):
        finish(run, folder, args.results, start=args.start, judge=args.judge, tasks=args.out / "tasks")
    return 0


def arguments() -> argparse.Namespace:
    parser = build_parser()
    args = parser.parse_args()
    name = "policy_headline_quick" if args.quick else "policy_headline"
    args.scale = args.scale or (QUICK if args.quick else FROZEN)
    args.out = args.out or ROOT / "runs" / name
    args.results = args.results or RESULTS / name
    args.cores = args.cores or cores_there()
    for fault in faults(args):
        parser.exit(2, f"{parser.prog}: error: {fault}\n")
    return args


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--start", type=Path, default=START, help="folder of the cold-started policy (default: start/ here)"
    )
    common.add_argument("--judge", type=Path, help="folder of a trained judge")
    common.add_argument("--out", type=Path, help="folders of the runs (default runs/policy_headline)")
    common.add_argument("--results", type=Path, help="folder of the rows")
    common.add_argument("--scale", type=Path, help="sizes (default scale.json beside this file)")
    common.add_argument("--quick", action="store_true", help="quick.json, with folders of its own")
    common.add_argument("--jobs", type=int, default=1, help="runs at a time")
    common.add_argument("--cores", type=int, nargs="+", help="their cores (default: all there are)")
    common.add_argument("--arms", nargs="+", help="only these arms")
    common.add_argument("--dry", action="store_true", help="say what is left and stop")
    what = parser.add_subparsers(dest="what", required=True)
    for name in ("tune", "fresh", "trained"):
        what.add_parser(name, parents=[common])
    what.add_parser("sweep", parents=[common]).add_argument("sweep", choices=SWEEPS)
    child = what.add_parser("one", parents=[common], help="used inside: one run from its folder")
    child.add_argument("folder", type=Path)
    child.add_argument("--core", type=int)
    return parser


def cores_there() -> list[int]:
    """Those this process may use, where the system tells."""
    return sorted(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1))


def faults(args: argparse.Namespace) -> Iterator[str]:
    """What is wrong with the arguments, the first things first."""
    there = cores_there()
    if len(set(args.cores) & set(there)) < len(args.cores):
        yield f"--cores {' '.join(map(str, args.cores))}: each once, of {' '.join(map(str, there))}"
    if args.jobs < 1:
        yield f"--jobs {args.jobs}: at least 1"
    if len(args.cores) < args.jobs:
        yield f"--jobs {args.jobs} needs as many cores; have {args.cores}"
    for option in ("start", "judge"):
        folder = getattr(args, option)
        if folder is not None and not list(folder.glob("*.safetensors")):
            yield f"--{option} {folder}: no folder with weights (*.safetensors)"
    yield from filter(None, (no_folder(args.out, "--out"), no_folder(args.results, "--results")))
    try:
        known = sorted(read_scale(args.scale).arms)
    except ConfigError as error:
        yield f"--scale {error}"
    if unknown := sorted(set(args.arms or ()) - set(known)):
        yield f"--arms {' '.join(unknown)}: not among {' '.join(known)}"


def main() -> None:
    args = arguments()
    try:
        sys.exit(one(args) if args.what == "one" else all_runs(args))
    except ConfigError as error:
        print(f"run.py: error: --scale {args.scale}: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
