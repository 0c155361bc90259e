"""Tables and figures of the headline experiment from the rows that exist.

    python benchmarks/policy_headline/report.py [--quick] [--scale FILE] [--results FOLDER]

Writes ``report.md``, ``summary.json`` and figures beside the rows. Rows of other settings than the scale's are
counted and left out; a part without rows says so.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # PYTHONSAFEPATH keeps it out
from axiomrm.data.writing import atomic_file
from axiomrm.errors import ConfigError
from policy_headline.figures import write_curves
from policy_headline.runs import Planner, Row, read_rows
from policy_headline.scale import FROZEN, OURS, QUICK, SWEEPS, no_folder, read_scale
from policy_headline.tables import Arms, arm_table, commit_table, headline, losing, sweep_table, tuning_table

RESULTS = Path(__file__).resolve().parents[1] / "results"


class Rows:
    """The rows of the scale's runs, by digest."""

    def __init__(self, planner: Planner, rows: dict[str, list[Row]]) -> None:
        self.planner, self.rows = planner, rows
        self.by_digest = {row["digest"]: row for found in rows.values() for row in found}
        self.used: set[str] = set()

    def of(self, stage: str) -> dict[tuple[str, str], list[Row]]:
        """``(arm, variant)`` to rows in order of seeds; ``{}`` while the stage cannot be planned."""
        try:
            runs = self.planner.needed(stage, self.rows, self.planner.tuned(self.rows.get("tune", ())))
        except (SystemExit, ConfigError):
            return {}
        found: dict[tuple[str, str], list[Row]] = {}
        for run in runs:
            rows = found.setdefault((run.arm, run.variant), [])
            if run.digest in self.by_digest:
                rows.append(self.by_digest[run.digest])
                self.used.add(run.digest)
        return {key: rows for key, rows in found.items() if rows}

    def counted(self) -> list[Row]:
        """The rows that any part of the report stands on."""
        return [row for digest, row in self.by_digest.items() if digest in self.used]


def start_of(rows: dict[str, list[Row]]) -> str:
    """The starting weights that the rows have in common.

    Raises:
        SystemExit: no rows, or several starts.
    """
    starts = {row["run"]["start"] for found in rows.values() for row in found}
    if len(starts) != 1:
        raise SystemExit(f"rows of {len(starts)} starts; one is needed")
    return str(starts.pop())


def judge_of_rows(rows: dict[str, list[Row]]) -> str | None:
    """Hash of the trained judge, if there are its rows."""
    names = {row["run"]["judge"]["judge"] for row in rows.get("trained", [])}
    return str(names.pop()).removeprefix("trained-") if len(names) == 1 else None


def report(scale_path: Path, results: Path) -> tuple[list[str], dict[str, Any]]:
    """Markdown lines and the numbers."""
    scale, everything = read_scale(scale_path), read_rows(results)
    rows = Rows(Planner(scale, start_of(everything), judge_of_rows(everything)), everything)
    numbers: dict[str, Any] = {}
    lines = [f"# Headline, {scale_path.stem}", ""]
    lines += tuning_table(scale, rows.planner, everything.get("tune", []))
    rows.of("tune")
    fresh: Arms = {arm: found for (arm, _), found in rows.of("fresh").items()}
    trained = (
        {f"{OURS}, trained judge": found for found in rows.of("trained").values()}
        if rows.planner.judge
        else {}
    )
    lines += arm_table(scale, fresh | trained, numbers)
    lines += headline(scale, fresh, numbers)
    for path in write_curves(results / "curves.svg", fresh | trained, scale.target):
        lines += [f"![success over rollouts]({path.name})", ""]
    losses = losing(scale, "headline", fresh, numbers)
    for sweep in SWEEPS:
        found = with_reference(rows, sweep, rows.of(f"sweep-{sweep}"), fresh)
        lines += sweep_table(scale, sweep, found, numbers)
        losses += sweep_losses(scale, sweep, found, numbers)
    lines += ["## Losing regions", "", *(losses or ["None among the settings that were run."]), ""]
    lines += commit_table(rows.counted(), numbers)
    lines += _left_out(rows)
    return lines, numbers


def with_reference(
    rows: Rows, sweep: str, found: dict[tuple[str, str], list[Row]], fresh: Arms
) -> dict[tuple[str, str], list[Row]]:
    """Sweeps of the judge also show outcome-GRPO, which never asks it: its fresh runs hold at every value."""
    if sweep not in ("noise", "hack") or not found:
        return found
    rival, seeds = rows.planner.rival(rows.rows.get("tune", [])), rows.planner.scale.sweep_seeds
    reference = [row for row in fresh.get(rival, []) if row["seed"] in seeds]
    return found | {(rival, variant): reference for _, variant in found if reference}


def sweep_losses(
    scale: Any, sweep: str, found: dict[tuple[str, str], list[Row]], numbers: dict[str, Any]
) -> list[str]:
    """Where our arm needs more rollouts than the other arm of a sweep, value by value."""
    lines: list[str] = []
    for variant in dict.fromkeys(v for _, v in found):
        arms: Arms = {arm: rows for (arm, v), rows in found.items() if v == variant}
        lines += losing(scale, f"{sweep}, {variant}", arms, numbers, len(scale.sweep_seeds))
    return lines


def _left_out(rows: Rows) -> list[str]:
    others = len(set(rows.by_digest) - rows.used)
    return [f"{others} rows of other settings are left out.", ""] if others else []


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--scale", type=Path)
    parser.add_argument("--results", type=Path)
    args = parser.parse_args(arguments)
    results = args.results or RESULTS / ("policy_headline_quick" if args.quick else "policy_headline")
    if fault := no_folder(results, "--results"):
        parser.exit(2, f"{parser.prog}: error: {fault}\n")
    try:
        lines, numbers = report(args.scale or (QUICK if args.quick else FROZEN), results)
    except ConfigError as error:
        parser.exit(2, f"{parser.prog}: error: --scale {error}\n")
    with atomic_file(results / "report.md") as handle:
        handle.write("\n".join(lines).rstrip() + "\n")
    with atomic_file(results / "summary.json") as handle:
        json.dump(numbers, handle, indent=1)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
