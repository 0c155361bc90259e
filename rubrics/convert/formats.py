"""The formats by name, and the two directions with their reports."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from axiomrm.errors import ConfigError, DataError
from axiomrm.rubrics.convert import (
    auraone,
    autorubric,
    geval,
    healthbench,
    prometheus,
    promptfoo,
    rubrichub,
    verifiers,
)
from axiomrm.rubrics.convert.build import activated
from axiomrm.rubrics.convert.difference import difference
from axiomrm.rubrics.convert.loss import LossReport
from axiomrm.rubrics.convert.written import Read, Written
from axiomrm.rubrics.rubric import Rubric


class Format(NamedTuple):
    """One foreign format."""

    read: Callable[[str, str, str], Read]
    """(text, file name for messages, rubric id where the text has none) → rubrics and losses."""
    write: Callable[[Rubric], Written]
    lines: bool = False
    """A file may hold several rubrics, one JSON object a line."""


FORMATS: dict[str, Format] = {
    "autorubric": Format(autorubric.read, autorubric.write),
    "healthbench": Format(healthbench.read, healthbench.write, lines=True),
    "promptfoo": Format(promptfoo.read, promptfoo.write),
    "verifiers": Format(verifiers.read, verifiers.write),
    "auraone": Format(auraone.read, auraone.write),
    "prometheus": Format(prometheus.read, prometheus.write, lines=True),
    "rubrichub": Format(rubrichub.read, rubrichub.write, lines=True),
    "rar": Format(rubrichub.read, rubrichub.write_rar, lines=True),
    "geval": Format(geval.read, geval.write),
}


def format_of(name: str) -> Format:
    """The format of a name.

    Raises:
        ConfigError: there is none.
    """
    if name not in FORMATS:
        raise ConfigError(f"no rubric format {name!r}; accepted: atr, {', '.join(FORMATS)}")
    return FORMATS[name]


def import_rubrics(
    text: str, source: str, *, name: str = "imported", file: str = "<text>", activate: bool = False
) -> Read:
    """Read rubrics of a foreign format.

    Args:
        text: content of the file.
        source: a key of ``FORMATS``.
        name: rubric id, for formats that have none.
        file: name for messages.
        activate: let the items score; otherwise they are drafts.

    Returns:
        The rubrics, each under the premise ``ax.imported``, and what was lost.

    Raises:
        ConfigError: unknown format.
        DataError: the text does not have the format.
    """
    result = format_of(source).read(text, file, name)
    if not activate:
        return result
    rubrics = tuple(replace(r, model=activated(r.model)) for r in result.rubrics)
    return Read(rubrics, result.report)


def export_rubric(rubric: Rubric, target: str, *, criterion: str | None = None) -> tuple[str, LossReport]:
    """Write a rubric in a foreign format.

    Args:
        rubric: its active items are written.
        target: a key of ``FORMATS``.
        criterion: write this theorem only.

    Returns:
        The text, and what reading it back does not give.

    Raises:
        ConfigError: unknown format or criterion.
        DataError: nothing to write, or something that the format cannot say at all.
    """
    form = format_of(target)
    chosen = rubric if criterion is None else _only(rubric, criterion)
    if not chosen.theorems:
        raise DataError(f"{rubric.id}: no active theorem to write; drafts score after 'convert --activate'")
    written = form.write(chosen)
    name = rubric.id
    back = form.read(written.text, f"{name} as {target}", name).rubrics[0]
    more = difference(chosen, activated(back.model), written.order, written.losses)
    return written.text, LossReport((*written.losses, *more))


def _only(rubric: Rubric, criterion: str) -> Rubric:
    names = [t.id for t in rubric.theorems]
    if criterion not in names:
        raise ConfigError(f"{rubric.id}: no active theorem {criterion!r}; accepted: {', '.join(names)}")
    return _kept(rubric, criterion)


def _kept(rubric: Rubric, criterion: str) -> Rubric:
    theorems = tuple(t for t in rubric.file.theorems if t.id == criterion)
    file = rubric.file.model_copy(update={"theorems": theorems, "personal_templates": ()})
    return replace(rubric, file=file, imported=tuple(_kept(p, criterion) for p in rubric.imported))
