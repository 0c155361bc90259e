"""Learning curves as standalone SVG, with the project's own charts and colours of their own."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from axiomrm.data.writing import atomic_file
from axiomrm.eval.bootstrap import bootstrap, iqm
from axiomrm.eval.svg import Series, line_chart
from policy_headline.curves import filled

STYLE = """<style>
svg { background: #fff } text { font: 12px system-ui, sans-serif; fill: #5c6673 } .grid { stroke: #dfe3e8 }
.target { stroke: #5c6673; stroke-dasharray: 5 4 } .line { fill: none; stroke-width: 2.4; stroke: var(--c) }
.band { opacity: .15; stroke: none } .band, .dot, text.end { fill: var(--c) } text.end { font-weight: 600 }
.s0 { --c: #2356c7 } .s1 { --c: #c2570c } .s2 { --c: #0f766e } .s3 { --c: #8b2fb0 } .s4 { --c: #6b7280 }
.s5 { --c: #b4235a }
</style>"""
DRAWS = 500
COLOURS = 6


def curve_series(label: str, rows: Sequence[Mapping[str, Any]]) -> Series:
    """Interquartile mean over runs at each evaluation, with a bootstrap interval over runs."""
    points = [filled(dict(row)) for row in rows]
    at = sorted({p.rollouts for run in points for p in run})
    known = [[(p.rollouts, p.success) for p in run if p.success is not None] for run in points]
    lines = [np.interp(at, [x for x, _ in run], [y for _, y in run]) for run in known if run]
    return Series(
        label,
        [
            (float(x), bootstrap([line[i] for line in lines], iqm, draws=DRAWS, unit="runs"))
            for i, x in enumerate(at)
        ],
    )


def write_curves(
    path: Path, rows_by_arm: Mapping[str, Sequence[Mapping[str, Any]]], target: float
) -> list[Path]:
    """One picture for each six arms; the paths that were written."""
    names = [arm for arm, rows in rows_by_arm.items() if rows]
    written = []
    for first in range(0, len(names), COLOURS):
        some = names[first : first + COLOURS]
        series = [curve_series(arm, rows_by_arm[arm]) for arm in some]
        chart = line_chart(series, x_label="training rollouts", y_label="held-out success", target=target)
        if not chart:
            continue
        text = str(chart).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
        end = text.index(">") + 1
        place = path if not first else path.with_stem(f"{path.stem}-{first // COLOURS + 1}")
        with atomic_file(place) as handle:
            handle.write(text[:end] + STYLE + text[end:] + "\n")
        written.append(place)
    return written
