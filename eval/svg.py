"""Small charts as inline SVG: learning curves with bands, dots with intervals; the page's CSS colours them.

Classes ``s0`` … ``s5`` give a series its colour. A missing number leaves a gap; it is never drawn at 0.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

from axiomrm.eval.estimate import Estimate

Place = Callable[[float, float], tuple[float, float]]
"""Data to picture coordinates."""
Scale = Callable[[float], float]
WIDTH = 760.0
COLOURS = 6


class Series(NamedTuple):
    """One line: points of x and estimate."""

    label: str
    points: Sequence[tuple[float, Estimate]]


class Row(NamedTuple):
    """One line of a dot chart: a label and an estimate a series; an empty list makes it a heading."""

    label: str
    estimates: Sequence[Estimate]


def line_chart(
    series: Sequence[Series], *, x_label: str, y_label: str, target: float | None = None
) -> Markup:
    """Rates between 0 and 1 over x, each line with its interval as a band and its name at the end."""
    known = [(s, [(x, e) for x, e in s.points if e.value is not None]) for s in series]
    xs = [x for _, points in known for x, _ in points]
    if not xs:
        return Markup("")
    height, left, right, top, bottom = 330.0, 52.0, 150.0, 14.0, 46.0
    span = (max(xs) - min(xs)) or 1.0

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            left + (x - min(xs)) / span * (WIDTH - left - right),
            top + (1 - y) * (height - top - bottom),
        )

    parts = [_grid_line(at(min(xs), y), at(max(xs), y), f"{100 * y:.0f} %") for y in (0, 0.25, 0.5, 0.75, 1)]
    parts += [_x_tick(at(x, 0), f"{x:g}") for x in _ticks(min(xs), max(xs))]
    if target is not None:
        parts.append(_target(at(min(xs), target), at(max(xs), target)))
    parts += [_band(i, points, at) for i, (_, points) in enumerate(known)]
    parts += [_line(i, s.points, at) for i, s in enumerate(series)]
    parts += _end_labels(
        [(i, s.label, at(*_last(p))) for i, (s, p) in enumerate(known) if p], WIDTH - right + 12
    )
    parts.append(_text((left + WIDTH - right) / 2, height - 6, x_label, "axis", "middle"))
    return _svg(height, parts, f"{y_label} over {x_label}")


def dot_chart(
    rows: Sequence[Row],
    names: Sequence[str],
    *,
    low: float = 0.0,
    high: float = 1.0,
    reference: float | None = None,
) -> Markup:
    """Dots with intervals, a row a line and a colour a series; ``reference`` is drawn as a dashed line."""
    if not any(e.value is not None for row in rows for e in row.estimates):
        return Markup("")
    left, right, step = 230.0, 28.0, 15.0
    top = 34.0 if names else 14.0
    heights = [max(26.0, step * len(row.estimates) + 12) for row in rows]
    height = top + sum(heights) + 34

    def at(value: float) -> float:
        return left + (min(max(value, low), high) - low) / (high - low) * (WIDTH - left - right)

    base = height - 30
    parts = [_column(at(v), top - 6, base, f"{100 * v:.0f} %") for v in _ticks(low, high, 5)]
    if reference is not None:
        parts.append(_target((at(reference), top - 6), (at(reference), base)))
    parts += _legend(names, left)
    y = top
    for row, tall in zip(rows, heights, strict=True):
        parts += _dot_row(row, y + tall / 2, step, left, at)
        y += tall
    return _svg(height, parts, "Estimates with intervals")


def _dot_row(row: Row, middle: float, step: float, left: float, at: Scale) -> list[Markup]:
    if not row.estimates:
        return [_text(0, middle + 4, row.label, "heading", "start")]
    first = middle - step * (len(row.estimates) - 1) / 2
    dots = [_dot(i, e, first + i * step, at) for i, e in enumerate(row.estimates)]
    return [_text(left - 14, middle + 4, row.label, "label", "end"), *dots]


def _target(start: tuple[float, float], end: tuple[float, float]) -> Markup:
    return Markup('<line class="target" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(
        *start, *end
    )


def _svg(height: float, parts: Sequence[Markup], title: str) -> Markup:
    head = Markup('<svg class="chart" viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">').format(
        WIDTH, height, title
    )
    return head + Markup("").join(parts) + Markup("</svg>")


def _text(x: float, y: float, text: str, kind: str, anchor: str) -> Markup:
    return Markup('<text class="{}" x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>').format(
        kind, x, y, anchor, text
    )


def _grid_line(start: tuple[float, float], end: tuple[float, float], label: str) -> Markup:
    line = Markup('<line class="grid" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>').format(*start, *end)
    return line + _text(start[0] - 8, start[1] + 4, label, "tick", "end")


def _column(x: float, top: float, base: float, label: str) -> Markup:
    line = Markup('<line class="grid" x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}"/>').format(
        x, top, base
    )
    return line + _text(x, base + 16, label, "tick", "middle")


def _x_tick(at: tuple[float, float], label: str) -> Markup:
    return _text(at[0], at[1] + 18, label, "tick", "middle")


def _ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round values inside [low, high]."""
    span = high - low
    if span <= 0:
        return [low]
    unit = 10.0 ** len(str(int(span))) / 1000 if span >= 1 else 0.001
    step = next(
        u * m
        for u in (unit, unit * 10, unit * 100, unit * 1000)
        for m in (1, 2, 2.5, 5)
        if span / (u * m) <= most
    )
    first = -(-low // step) * step
    return [round(first + i * step, 6) for i in range(int((high - first) / step + 1e-9) + 1)]


def _band(index: int, points: Sequence[tuple[float, Estimate]], at: Place) -> Markup:
    ends = [(x, e.low, e.high) for x, e in points if e.low is not None and e.high is not None]
    if len(ends) < 2:
        return Markup("")
    outline = [at(x, high) for x, _, high in ends] + [at(x, low) for x, low, _ in reversed(ends)]
    shape = " ".join(f"{x:.1f},{y:.1f}" for x, y in outline)
    return Markup('<polygon class="band s{}" points="{}"/>').format(index % COLOURS, shape)


def _line(index: int, points: Sequence[tuple[float, Estimate]], at: Place) -> Markup:
    """A line that is broken where a value is missing, with a dot and its numbers at each value."""
    steps, dots, pen_up = [], [], True
    for x, estimate in points:
        if estimate.value is None:
            pen_up = True
            continue
        px, py = at(x, estimate.value)
        steps.append(f"{'M' if pen_up else 'L'}{px:.1f} {py:.1f}")
        tip = escape(f"{x:g}: {estimate.percent()}")
        dots.append(
            Markup('<circle class="dot s{}" cx="{:.1f}" cy="{:.1f}" r="3"><title>{}</title></circle>').format(
                index % COLOURS, px, py, tip
            )
        )
        pen_up = False
    path = Markup('<path class="line s{}" d="{}"/>').format(index % COLOURS, " ".join(steps))
    return path + Markup("").join(dots)


def _last(points: Sequence[tuple[float, Estimate]]) -> tuple[float, float]:
    x, estimate = points[-1]
    return x, estimate.value or 0.0  # points without a value were left out before


def _end_labels(ends: Sequence[tuple[int, str, tuple[float, float]]], x: float) -> list[Markup]:
    """Names beside the last points, pushed apart where they would overlap."""
    parts, previous = [], -1e9
    for index, label, (_, y) in sorted(ends, key=lambda end: end[2][1]):
        place = max(y, previous + 16)
        previous = place
        parts.append(_text(x, place + 4, label, f"end s{index % COLOURS}", "start"))
    return parts


def _legend(names: Sequence[str], left: float) -> list[Markup]:
    parts, x = [], left
    for index, name in enumerate(names):
        parts.append(
            Markup('<circle class="dot s{}" cx="{:.1f}" cy="10" r="4.5"/>').format(index % COLOURS, x + 5)
        )
        parts.append(_text(x + 15, 14, name, "label", "start"))
        x += 30 + 7.2 * len(name)
    return parts


def _dot(index: int, estimate: Estimate, y: float, at: Scale) -> Markup:
    colour = index % COLOURS
    if estimate.value is None:
        return Markup("")
    whisker = Markup("")
    if estimate.low is not None and estimate.high is not None:
        whisker = Markup(
            '<line class="whisker s{}" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>'
        ).format(colour, at(estimate.low), y, at(estimate.high), y)
    return whisker + Markup(
        '<circle class="dot s{}" cx="{:.1f}" cy="{:.1f}" r="4.5"><title>{}</title></circle>'
    ).format(colour, at(estimate.value), y, estimate.percent())
