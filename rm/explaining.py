"""Judgements in words, for people and notebooks."""

import html
from collections.abc import Mapping

from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.rm.judgement import Judgement, TurnJudgement


def in_words(judgement: Judgement) -> str:
    """One criterion a line."""
    lines = [f"{judgement.id or 'trajectory'}: {_headline(judgement)}"]
    lines += [f"  {name}: {_sentence(verdict)}" for name, verdict in judgement.verdicts.items()]
    for turn in judgement.turns:
        lines.append(f"  t{turn.index + 1}: {_headline(turn)}")
        lines += [f"    {name}: {_sentence(verdict)}" for name, verdict in turn.verdicts.items()]
    flags = _flags(judgement)
    return "\n".join([*lines, *([f"  flags: {', '.join(flags)}"] if flags else [])])


def as_html(judgement: Judgement) -> str:
    """A table; whatever comes from a judge, a rubric or a recording is escaped."""
    rows = "".join(
        f"<tr><td>{'' if turn is None else f't{turn + 1}'}</td><td>{html.escape(name)}</td>"
        f"<td>{html.escape(_sentence(verdict))}</td></tr>"
        for turn, name, verdict in judgement.all_verdicts()
    )
    turns = "".join(
        f"<li>t{turn.index + 1}: {html.escape(_headline(turn))}</li>"
        for turn in judgement.turns
        if turn.verdicts
    )
    flags = ", ".join(_flags(judgement))
    return (
        f"<div><b>{html.escape(judgement.id)}</b> {html.escape(_headline(judgement))}"
        f"{f'<ul>{turns}</ul>' if turns else ''}"
        f"<table><tr><th>turn</th><th>criterion</th><th>verdict</th></tr>{rows}</table>"
        f"{f'<p>flags: {html.escape(flags)}</p>' if flags else ''}</div>"
    )


def _flags(judgement: Judgement) -> list[str]:
    return sorted({f for _, _, verdict in judgement.all_verdicts() for f in getattr(verdict, "flags", ())})


def _headline(unit: Judgement | TurnJudgement) -> str:
    low, high = unit.interval
    reward = "abstains" if unit.reward is None else f"{unit.reward:.3f}"
    parts = [f"reward {reward} in [{low:.2f}, {high:.2f}]", f"coverage {unit.coverage:.2f}"]
    parts.append("gate unknown" if unit.gate is None else f"gate {unit.gate:g}")
    parts += [f"violated: {', '.join(unit.violated_axioms)}"] if unit.violated_axioms else []
    return "; ".join([*parts, *([unit.reason] if unit.reason else [])])


def _sentence(verdict: Verdict) -> str:
    if isinstance(verdict, Failed):
        return f"failed ({verdict.kind}): {verdict.detail}"
    if isinstance(verdict, CannotAssess):
        return f"cannot assess: {verdict.reason}"
    return _scored(verdict)


def _scored(verdict: Scored) -> str:
    shares = _shares(verdict.distribution)
    samples = f" ±{verdict.spread:.2f} over {verdict.n}" if verdict.spread is not None else ""
    band = "" if verdict.interval is None else " in [{:.2f}, {:.2f}]".format(*verdict.interval)
    quotes = "".join(f' [t{e.turn + 1} {e.status}: "{e.quote}"]' for e in verdict.evidence)
    notes = f" — {verdict.critique}" if verdict.critique else ""
    return f"{verdict.value:.3f}{band}{samples} {verdict.label}{shares}{notes}{quotes}"


def _shares(distribution: Mapping[str, float]) -> str:
    if not distribution:
        return ""
    return " (" + ", ".join(f"{label} {p:.2f}" for label, p in distribution.items()) + ")"
