"""The demo's numbers over seeds: ``python benchmarks/demo.py [--seeds 0 1 2] [--config configs/bench_demo.yaml]``.

Each seed is a full pipeline run (resumable, in ``runs/``); intervals draw seeds, then items. The two arms that are
compared in rollouts to 50 % dev success take the best of their learning rates, chosen on the same dev curves.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from axiomrm.cli_run import load_stages
from axiomrm.config import load_config
from axiomrm.eval.curves import Point, best_rate, rollouts_to
from axiomrm.eval.report import write_report
from axiomrm.progress import reporter_for_terminal
from axiomrm.runner import run_pipeline
from axiomrm.stages.report import Measured, criteria, personal, report_data, worth

DRAWS = 2000


def arm_curves(runs: list[Measured], config: Any, kind: str) -> dict[float, list[list[Point]]]:
    """Learning rate → dev curve of each seed, for one kind of algorithm."""
    settings = {"train": config.policy.train, **config.policy.arms}
    return {
        arm.learning_rate: [[Point(p["rollouts"], p["success"]) for p in m.arms[name]["curve"]] for m in runs]
        for name, arm in settings.items()
        if arm.algorithm.kind == kind
    }


def summary(runs: list[Measured], config: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"seeds": len(runs)}
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
    for kind in ("process_replay", "grpo"):
        curves = arm_curves(runs, config, kind)
        rate = best_rate(curves)
        found[f"rollouts to 50 %, {kind}"] = (
            f"{rollouts_to(curves[rate]).text()} at lr {rate:g}" if rate is not None else "not measured"
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--config", type=Path, default=Path("configs/bench_demo.yaml"))
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/demo.json"))
    args = parser.parse_args()
    runs = []
    for seed in args.seeds:
        config = load_config(args.config, [f"seed={seed}", f"name={args.config.stem}-seed{seed}"])
        result = run_pipeline(load_stages(), config, args.runs_dir, reporter=reporter_for_terminal())
        runs.append(Measured(result.run_dir))
    found = summary(runs, load_config(args.config))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    page = write_report(report_data(runs, args.config.stem, DRAWS), args.runs_dir / "bench-demo.html")
    print(json.dumps(found, indent=1, ensure_ascii=False))
    print(f"report: {page}")


if __name__ == "__main__":
    main()
