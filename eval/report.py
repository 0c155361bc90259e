"""The report of a run: one HTML file that needs nothing from outside, escapes all text and runs no script."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.data.writing import atomic_file
from axiomrm.eval.criterion import CriterionReport
from axiomrm.eval.estimate import NOT_MEASURED, Estimate
from axiomrm.eval.report_data import Curve, ReportData, TurnVerdict
from axiomrm.eval.svg import Row, Series, dot_chart, line_chart

TEMPLATES = Path(__file__).with_name("templates")
COUNTS = {"turns", "tokens", "steps", "action tokens", "tool calls"}
"""Behavioural metrics that are numbers of things, even where they lie between 0 and 1."""
SMALL_N = 20
"""Items below which a number is marked as resting on few."""


def render_report(data: ReportData) -> str:
    """The page as text."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "est": show,
        "signed": show_signed,
        "number": number,
        "points": points,
        "share": share,
    }
    environment.globals |= {"verdict_view": verdict_view, "dash": DASH}
    return environment.get_template("report.html.j2").render(
        data=data,
        criteria_rows=criteria_rows(data.criteria),
        criteria_chart=criteria_chart(data.criteria),
        policy_chart=policy_chart(data.curves, data.target),
        behaviour_rows=behaviour_rows(data.behaviour),
        worth_chart=worth_chart(data),
    )


def write_report(data: ReportData, path: Path) -> Path:
    """Write the page, atomically; returns ``path``."""
    with atomic_file(path) as handle:
        handle.write(render_report(data))
    return path


DASH = Markup('<span class="absent">not measured</span>')
NOT_RECORDED = Markup('<span class="absent" title="not recorded">–</span>')


def show(estimate: Estimate, scale: str = "percent") -> Markup:
    """A value with its interval and, where some are missing, how many."""
    if estimate.value is None:
        return DASH
    text = {"percent": _percent, "plain": _plain}[scale]
    return _with_interval(estimate, text, " %" if scale == "percent" else "")


def show_signed(estimate: Estimate) -> Markup:
    """A difference in points, with its sign."""
    if estimate.value is None:
        return DASH
    return _with_interval(estimate, points, " points")


def _with_interval(estimate: Estimate, text: Any, unit: str) -> Markup:
    ends = "no interval"
    if estimate.low is not None and estimate.high is not None:
        ends = f"[{text(estimate.low)}, {text(estimate.high)}]"
    tip = f"n = {estimate.n}" + (f", {estimate.missing} missing" if estimate.missing else "")
    tip += f"; {100 * estimate.confidence:g} % interval: {estimate.method}" if estimate.method else ""
    few = (
        Markup('<span class="few">n = {}</span>').format(estimate.n)
        if 0 < estimate.n < SMALL_N
        else Markup("")
    )
    holes = (
        Markup('<span class="few">{} missing</span>').format(estimate.missing)
        if estimate.missing
        else Markup("")
    )
    return Markup('<span class="est" title="{}"><b>{}{}</b> <span class="ci">{}</span>{}{}</span>').format(
        tip, text(estimate.value), unit, ends, few, holes
    )


def points(value: float) -> str:
    """A difference in percentage points, with a true minus sign and without a negative zero."""
    return f"{round(100 * value, 1) + 0.0:+.1f}".replace("-", "−")


def number(value: float | None, digits: int = 2) -> Markup | str:
    """A plain number with thousands separated."""
    if value is None:
        return NOT_RECORDED
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.{digits}f}"


def share(value: float | None) -> Markup | str:
    """A share without an interval, in percent."""
    return DASH if value is None else f"{100 * value:.0f} %"


def verdict_view(item: TurnVerdict) -> dict[str, str]:
    """Class, mark, text and critique of one verdict; agreement with the oracle where it says something."""
    verdict = item.verdict
    if isinstance(verdict, Scored):
        met = verdict.value >= 0.5
        good = met != item.penalty
        view = {"kind": "good" if good else "bad", "mark": "✓" if good else "✗"}
        view |= {"text": f"{'yes' if met else 'no'} {verdict.value:.2f}", "note": verdict.critique}
        wrong = item.oracle is not None and item.oracle != met
        return view | {"oracle": f"oracle: {'yes' if item.oracle else 'no'}" if wrong else ""}
    if isinstance(verdict, CannotAssess):
        return {"kind": "unsure", "mark": "?", "text": "cannot assess", "note": verdict.reason, "oracle": ""}
    if isinstance(verdict, Failed):
        return {
            "kind": "failed",
            "mark": "!",
            "text": f"failed: {verdict.kind}",
            "note": verdict.detail,
            "oracle": "",
        }
    raise TypeError(f"not a verdict: {verdict!r}")


def criteria_rows(reports: dict[str, CriterionReport]) -> list[dict[str, Any]]:
    """One row a criterion, surface first: balanced accuracy by judge, and the details of the last judge."""
    last = next(reversed(reports.values()), None)
    if last is None:
        return []
    order = {"surface": 0, "relational": 1, "other": 2}
    return [
        {
            "metrics": metrics,
            "by_judge": [_of(report, metrics.criterion) for report in reports.values()],
        }
        for metrics in sorted(last.criteria, key=lambda m: order[m.kind])
    ]


def criteria_chart(reports: dict[str, CriterionReport]) -> Markup:
    """Balanced accuracy of each criterion by judge, surface and relational apart."""
    rows: list[Row] = []
    kind = ""
    for row in criteria_rows(reports):
        if row["metrics"].kind != kind:
            kind = row["metrics"].kind
            rows.append(Row(kind.capitalize(), ()))
        rows.append(Row(row["metrics"].criterion, row["by_judge"]))
    values = [v for row in rows for e in row.estimates for v in (e.value, e.low) if v is not None]
    low = max(0.0, min([0.4, *(int(10 * v) / 10 for v in values)]))
    return dot_chart(rows, list(reports), low=low, reference=0.5)


def policy_chart(curves: Sequence[Curve], target: float) -> Markup:
    """Success over training rollouts."""
    series = [Series(c.label, [(p.rollouts, p.success) for p in c.points]) for c in curves]
    return line_chart(series, x_label="training rollouts", y_label="success", target=target)


def behaviour_rows(behaviour: dict[str, dict[str, Estimate]]) -> list[tuple[str, list[tuple[Estimate, str]]]]:
    """One row a metric, one cell a policy; shares are shown in percent, counts as they are."""
    names = dict.fromkeys(name for metrics in behaviour.values() for name in metrics)
    rows = []
    for name in names:
        cells = [metrics.get(name, NOT_MEASURED) for metrics in behaviour.values()]
        known = [cell.value for cell in cells if cell.value is not None]
        scale = "percent" if name not in COUNTS and all(0 <= value <= 1 for value in known) else "plain"
        rows.append((name, [(cell, scale) for cell in cells]))
    return rows


def worth_chart(data: ReportData) -> Markup:
    """Held-out success of each arm."""
    if data.worth is None:
        return Markup("")
    return dot_chart([Row(row.label, (row.success,)) for row in data.worth.rows], ())


def _of(report: CriterionReport, criterion: str) -> Estimate:
    found = [m.balanced_accuracy for m in report.criteria if m.criterion == criterion]
    return found[0] if found else NOT_MEASURED


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"


def _plain(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"
