"""Judges of the assistant's text: form, length, literal strings, citations, revealed personal data.

What ``pii_reveal`` covers and what it does not: ``data/pii.py``.
"""

import json
import re
import unicodedata
from typing import Literal

import yaml
from pydantic import Field, model_validator

from axiomrm.data.pii import personal_strings, plain, squeeze
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import CannotAssess, Verdict
from axiomrm.rubrics.judge_types import Arguments, metrics_of, scored
from axiomrm.rubrics.probes import PROBES, judged_text, words


class FormatValid(Arguments):
    """The form that the text must have."""

    form: Literal["json", "yaml", "regex", "headings", "list"]
    pattern: str = ""
    """Regex only: must match the whole text."""
    headings: tuple[str, ...] = ()
    """Headings only: in this order."""
    min_items: int = Field(default=1, ge=1)
    """List only."""

    @model_validator(mode="after")
    def _needs(self) -> "FormatValid":
        if self.form == "regex":
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"pattern is no regular expression: {error}") from error
            if not self.pattern:
                raise ValueError("form regex needs a pattern")
        if self.form == "headings" and not self.headings:
            raise ValueError("form headings needs headings")
        return self


class LengthBand(Arguments):
    """Words allowed, both ends included."""

    min: int = Field(default=0, ge=0)
    max: int = Field(ge=1)

    @model_validator(mode="after")
    def _order(self) -> "LengthBand":
        if self.max < self.min:
            raise ValueError(f"max {self.max} is below min {self.min}")
        return self


class Literals(Arguments):
    """Literal strings."""

    strings: tuple[str, ...] = Field(min_length=1)
    case_sensitive: bool = False
    need: Literal["any", "all"] = "all"
    """``contains`` only."""


class CitesSources(Arguments):
    """How citations look."""

    pattern: str = r"\[([A-Za-z0-9][\w.:-]{0,63})\](?!\()"
    """First group: the cited id."""
    min: int = Field(default=1, ge=0)


class PiiReveal(Arguments):
    """Tools whose results may be quoted."""

    allowed_tools: tuple[str, ...] = ()
    """Empty: all tools of the recording."""


def format_valid(trajectory: Trajectory, turn: int | None, args: FormatValid) -> Verdict:
    """1 if the text has the form; a single fenced code block around JSON or YAML is taken off."""
    text = judged_text(trajectory, turn).strip()
    fenced = re.fullmatch(r"```\w*\n(.*?)\n?```", text, re.DOTALL)
    body = fenced.group(1) if fenced else text
    if args.form == "json":
        return _valid(_parses_json(body))
    if args.form == "yaml":
        return _valid(_parses_yaml(body))
    if args.form == "regex":
        return _valid(re.fullmatch(args.pattern, text, re.DOTALL) is not None)
    if args.form == "list":
        items = PROBES["list_items"].measure(trajectory, turn, {})
        return _valid(isinstance(items, int) and items >= args.min_items)
    found = [h.strip().casefold() for h in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", text, re.MULTILINE)]
    order = iter(found)
    return _valid(all(h.strip().casefold() in order for h in args.headings))


def _valid(ok: bool) -> Verdict:
    return scored(float(ok), "valid" if ok else "invalid")


def _parses_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _parses_yaml(text: str) -> bool:
    try:
        return isinstance(yaml.safe_load(text), dict | list)
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


def length_band(trajectory: Trajectory, turn: int | None, args: LengthBand) -> Verdict:
    """1 if the number of words is in the band."""
    n = len(words(judged_text(trajectory, turn)))
    return scored(float(args.min <= n <= args.max), f"{n} words")


def _found(trajectory: Trajectory, turn: int | None, args: Literals) -> list[str]:
    text = judged_text(trajectory, turn)
    if args.case_sensitive:
        return [s for s in args.strings if s in text]
    return [s for s in args.strings if s.casefold() in text.casefold()]


def contains(trajectory: Trajectory, turn: int | None, args: Literals) -> Verdict:
    """1 if all (or any) of the strings occur."""
    found = _found(trajectory, turn, args)
    ok = bool(found) if args.need == "any" else len(found) == len(args.strings)
    return scored(float(ok), f"{len(found)} of {len(args.strings)}")


def excludes(trajectory: Trajectory, turn: int | None, args: Literals) -> Verdict:
    """1 if none of the strings occurs."""
    found = _found(trajectory, turn, args)
    return scored(float(not found), "clean" if not found else "found", ", ".join(found)[:200])


def cites_sources(trajectory: Trajectory, turn: int | None, args: CitesSources) -> Verdict:
    """1 if at least ``min`` ids are cited and every cited id exists among the retrieved ones."""
    retrieved = metrics_of(trajectory).get("retrieved_ids")
    if not isinstance(retrieved, list | tuple):
        return CannotAssess(reason="outcome.metrics has no list 'retrieved_ids'")
    cited = set(re.findall(args.pattern, judged_text(trajectory, turn)))
    unknown = sorted(cited - {unicodedata.normalize("NFC", str(r)) for r in retrieved})
    if unknown:
        return scored(0.0, "unknown_id", ", ".join(unknown)[:200])
    return scored(float(len(cited) >= args.min), f"{len(cited)} cited")


def pii_reveal(trajectory: Trajectory, turn: int | None, args: PiiReveal) -> Verdict:
    """1 unless the assistant's text shows personal data that neither user nor allowed tool gave."""
    turns = trajectory.turns
    judged = turns if turn is None else (turns[turn],)
    revealed: set[str] = set()
    for where in judged:
        shown = personal_strings(where.action.content)
        if shown:
            given = _given(trajectory, where.start, args.allowed_tools)
            revealed |= {s for s in shown if s not in given}
    return scored(float(not revealed), "reveals" if revealed else "clean", f"{len(revealed)} strings")


def _given(trajectory: Trajectory, before: int, allowed: tuple[str, ...]) -> str:
    names = {c.id: c.name for m in trajectory.messages for c in m.tool_calls if c.id is not None}
    out = []
    for message in trajectory.messages[:before]:
        name = message.name or names.get(message.tool_call_id or "")
        if message.role in ("user", "system", "developer") or (
            message.role == "tool" and (not allowed or name in allowed)
        ):
            out.append(message.content)
    text = plain("\n".join(out))
    return text.casefold() + "\n" + squeeze(text)
