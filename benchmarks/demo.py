"""The demo's numbers over seeds: ``python benchmarks/demo.py [--seeds 0 1 2] [--config configs/bench_demo.yaml]``.

Each seed is a full pipeline run (resumable, in ``runs/``); intervals draw seeds, then items. The first seed also
chooses: of each algorithm that has arms at several learning rates it keeps the one that needs the fewest rollouts to
50 % *dev* success (ties: the greater area under the dev curve), and the other seeds run that one alone.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from axiomrm.cli_run import load_stages
from axiomrm.config import RunConfig, load_config
from axiomrm.eval.curves import Point, best_rate, rollouts_to
from axiomrm.eval.report import write_report
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.progress import reporter_for_terminal
from axiomrm.runner import run_pipeline
from axiomrm.stages.evaluate import COOL, START
from axiomrm.stages.policy import arms
from axiomrm.stages.report import Measured, criteria, personal, report_data, worth

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--config", type=Path, default=Path("configs/bench_demo.yaml"))
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/demo.json"))
    args = parser.parse_args()
    runs: list[Measured] = []
    names: dict[str, str] = {}
    for seed in args.seeds:
        config = load_config(args.config, [f"seed={seed}", f"name={args.config.stem}-seed{seed}"])
        if names:
            config = narrowed(config, names)
        result = run_pipeline(load_stages(), config, args.runs_dir, reporter=reporter_for_terminal())
        measured = Measured(result.run_dir)
        if not names:
            names = chosen(measured, config)
            tuning = {
                f"{a.algorithm.kind} lr {a.learning_rate:g}": curve_of(measured, n)
                for n, a in arms(config).items()
            }
            measured = renamed(measured, names)
        runs.append(measured)
    found = summary(runs, narrowed(load_config(args.config), names), tuning)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    page = write_report(report_data(runs, args.config.stem, DRAWS), args.runs_dir / "bench-demo.html")
    print(json.dumps(found, indent=1, ensure_ascii=False))
    print(f"report: {page}")


if __name__ == "__main__":
    main()
