"""The demo's numbers over seeds: ``python benchmarks/demo.py [--seeds 3 4 5] [--jobs 2]``.

Each seed is a full pipeline run (resumable, in ``runs/``); intervals draw seeds, then items. The first seed also
chooses: of each algorithm that has arms at several learning rates it keeps the one that needs the fewest rollouts to
50 % *dev* success (ties: the greater area under the dev curve), and the other seeds run that one alone. The settings
were chosen while looking at seeds 0, 1 and 2, so others measure them.
"""

import argparse
import json
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from axiomrm.cli_run import PIPELINE, load_stages
from axiomrm.config import COOL, START, RunConfig, load_config
from axiomrm.eval.curves import Point, best_rate, rollouts_to
from axiomrm.eval.report import write_report
from axiomrm.manifest import build_manifest, read_manifest, write_manifest
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.progress import Lines
from axiomrm.runner import run_pipeline
from axiomrm.stages.policy import arms
from axiomrm.stages.report import LABELS, Measured, criteria, personal, report_data, worth

DRAWS = 2000
TARGETS = (0.5, 0.75)
"""Dev success to reach; a start that is above one needs 0 rollouts to it."""
NAMES = {"process_replay": "train", "grpo": "grpo", "best_of_k": "best_of_k"}
"""Algorithm -> name of its chosen arm."""


def curve_of(measured: Measured, arm: str) -> list[Point]:
    return [Point(p["rollouts"], p["success"]) for p in measured.arms[arm]["curve"]]


def chosen(tuned: Measured, config: RunConfig) -> dict[str, str]:
    """New name -> name in the tuning run of each algorithm's best arm."""
    found: dict[str, str] = {}
    for kind, name in NAMES.items():
        by_rate = {a.learning_rate: n for n, a in arms(config).items() if a.algorithm.kind == kind}
        rate = best_rate({r: [curve_of(tuned, n)] for r, n in by_rate.items()})
        if rate is not None:
            found[name] = by_rate[rate]
    return found


def narrowed(config: RunConfig, names: dict[str, str]) -> RunConfig:
    """The same run with the chosen arms alone."""
    kept: dict[str, PolicyConfig] = {new: arms(config)[old] for new, old in names.items()}
    policy = config.policy.model_copy(update={"train": kept.pop("train"), "arms": kept})
    return config.model_copy(update={"policy": policy})


def renamed(tuned: Measured, names: dict[str, str]) -> Measured:
    """The tuning run with the chosen arms alone, under the names of the other runs."""
    start = {name: tuned.policies[name] for name in (START, COOL)}
    tuned.policies = start | {new: tuned.policies[old] for new, old in names.items()}
    tuned.arms = {new: tuned.arms[old] for new, old in names.items()}
    return tuned


def solved(outcomes: Iterable[float | None]) -> str:
    """``solved of those with an outcome``."""
    known = [outcome for outcome in outcomes if outcome is not None]
    return f"{sum(known):g} of {len(known)}"


def solved_by_kind(runs: list[Measured], policy: str) -> dict[str, str]:
    """By kind of task, over all seeds."""
    found: dict[str, list[float | None]] = {}
    for held in (m.policies[policy] for m in runs):
        for task, outcome in held["outcomes"].items():
            found.setdefault(held["types"][task], []).append(outcome)
    return {kind: solved(outcomes) for kind, outcomes in sorted(found.items())}


def summary(runs: list[Measured], config: RunConfig, tuning: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"seeds": len(runs), "dev curves of the tuning seed": tuning}
    for judge in runs[0].judges["criteria"]:
        report = criteria(runs, judge, DRAWS)
        found[f"judge {judge}"] = {kind: e.percent() for kind, e in report.balanced_accuracy.items()} | {
            m.criterion: f"{m.balanced_accuracy.percent()} n={m.n} minority={m.minority_share:.2f}"
            for m in report.criteria
        }
    for name, equal in (("all pairs", False), ("equal quality", True)):
        m = personal(runs, DRAWS, equal)
        names = ("generic", "personal", "swapped", "gain", "swapped_gain", "worst_decile", "harmed")
        found[f"personal, {name}"] = {n: getattr(m, n).percent() for n in names} | {
            "users": m.users,
            "pairs": m.pairs,
        }
    table = worth(runs, DRAWS)
    found["policies, held out"] = {
        r.label: f"{r.success.percent()} gain {r.over_cold_start.percent()}" for r in table.rows
    }
    found["was RL worth it"] = f"{table.answer}: {table.reason}"
    found["held-out tasks solved, a seed each"] = {
        LABELS.get(p, p): [solved(m.policies[p]["outcomes"].values()) for m in runs] for p in runs[0].policies
    }
    found["held-out tasks solved, by kind"] = {
        LABELS.get(p, p): solved_by_kind(runs, p) for p in runs[0].policies
    }
    found["dev curves of the chosen arms, a run each"] = {
        name: [curve_of(m, name) for m in runs] for name in arms(config)
    }
    for name, arm in arms(config).items():
        for target in TARGETS:
            reached = rollouts_to([curve_of(m, name) for m in runs], target)
            found[f"rollouts to {target:.0%}, {arm.algorithm.kind}"] = (
                f"{reached.text()} at lr {arm.learning_rate:g}"
            )
    return found


def run(config: RunConfig, runs_dir: Path, until: str | None = None) -> Path:
    """What is not done yet of a run; says what happens in a log beside its folder."""
    runs_dir.mkdir(parents=True, exist_ok=True)
    with (runs_dir / f"{config.name}.log").open("a", encoding="utf-8", buffering=1) as log:
        reporter = Lines(lambda text: print(text, file=log))
        return run_pipeline(load_stages(), config, runs_dir, until=until, reporter=reporter).run_dir


def prepare(config: RunConfig, runs_dir: Path) -> None:
    """All stages before the policy's, which wait for the choice of arms."""
    before = PIPELINE[PIPELINE.index("policy") - 1]
    if not (runs_dir / config.name / before / "done.json").exists():
        run(config, runs_dir, until=before)


def finish(config: RunConfig, names: dict[str, str], runs_dir: Path) -> Path:
    """A prepared run with the chosen arms alone; the folder is theirs from here on."""
    folder, narrow = runs_dir / config.name, narrowed(config, names)
    made = {"code_history": [], **(read_manifest(folder) or {})}
    if made == {"code_history": [], **build_manifest(config)} and not (folder / "policy").exists():
        write_manifest(folder, build_manifest(narrow))
    return run(narrow, runs_dir)


def measure(
    configs: list[RunConfig], runs_dir: Path, jobs: int
) -> tuple[list[Measured], dict[str, str], dict[str, Any]]:
    """The runs of all seeds, ``jobs`` at a time, the chosen arms, and the dev curves that chose them."""
    first, *others = configs
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        tuned = pool.submit(run, first, runs_dir)
        prepared = [pool.submit(prepare, config, runs_dir) for config in others]
        folder = Measured(tuned.result())
        names = chosen(folder, first)
        tuning = {
            f"{a.algorithm.kind} lr {a.learning_rate:g}": curve_of(folder, n) for n, a in arms(first).items()
        }
        for done in prepared:
            done.result()
        rest = list(pool.map(finish, others, repeat(names), repeat(runs_dir)))
    return [renamed(folder, names), *map(Measured, rest)], names, tuning


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--config", type=Path, default=Path("configs/bench_demo.yaml"))
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/demo.json"))
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    args = parser.parse_args()
    configs = [
        load_config(args.config, [f"seed={seed}", f"name={args.config.stem}-seed{seed}"])
        for seed in args.seeds
    ]
    print(f"progress: {args.runs_dir}/{args.config.stem}-seed*.log", flush=True)
    runs, names, tuning = measure(configs, args.runs_dir, args.jobs)
    found = summary(runs, narrowed(load_config(args.config), names), tuning)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    page = write_report(report_data(runs, args.config.stem, DRAWS), args.runs_dir / "bench-demo.html")
    print(json.dumps(found, indent=1, ensure_ascii=False))
    print(f"report: {page}")


if __name__ == "__main__":
    main()
