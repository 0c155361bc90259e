"""The points of ``policy_smollm2.py`` as the table of docs/RESULTS.md, one block for each set of sizes.

python benchmarks/policy_smollm2_table.py [benchmarks/results/policy_smollm2.jsonl]
"""

import sys
from pathlib import Path
from typing import Any

from policy_smollm2_points import Point, Points, success_of

FILE = Path(__file__).parent / "results" / "policy_smollm2.jsonl"
HEAD = (
    "| split, temperature | rollouts | success | over the cold start | KL a token, nats | entropy, nats |\n"
    "| --- | --- | --- | --- | --- | --- |"
)


def percent(estimate: dict[str, Any] | None) -> str:
    """``37.5 [25.0, 50.0]``; a dash if there is none."""
    if estimate is None or estimate["value"] is None:
        return "–"
    ends = "" if estimate["low"] is None else f" [{100 * estimate['low']:.1f}, {100 * estimate['high']:.1f}]"
    return f"{100 * estimate['value']:.1f}{ends}"


def row(point: Point) -> str:
    """One point."""
    told = point["training"] or {}
    names = ("kl/k3_fresh_nats_per_token", "policy/entropy_nats")
    numbers = ["–" if told.get(name) is None else f"{told[name]:.3f}" for name in names]
    success = percent(success_of(point["outcomes"].values()))
    gain = percent(point["gain"]) if point["iteration"] else "–"
    where = f"{point['split']}, {point['temperature']:g}"
    return f"| {' | '.join([where, str(point['rollouts']), success, gain, *numbers])} |"


def table(path: Path) -> str:
    """Points in the order of split, temperature and iteration."""
    blocks = []
    for digest in sorted(Points(path, "").digests()):
        points = Points(path, digest).all()
        points.sort(key=lambda p: (p["split"], -p["temperature"], p["iteration"]))
        first = points[0]
        about = f"Sizes {digest}, seed {first['seed']}, commit {first['commit'][:7]}:"
        blocks.append("\n".join([about, "", HEAD, *map(row, points)]))
    return "\n\n".join(blocks)


if __name__ == "__main__":
    print(table(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE))
