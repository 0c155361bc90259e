"""Labels given by people, beside the scored rows (``axiomrm/score-1``) that they belong to.

A label file holds one JSON object a line: ``id`` (of the recording), ``criterion``, ``label`` (a label token
like ``Y`` or ``3``, the name that verdicts show for it, or ``X`` where it cannot be told); and where needed
``turn`` (0-based, for turn criteria), ``side`` (``a`` or ``b`` of a pair record) and ``group`` (what several
recordings share, such as a prompt; by default the recording itself).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from axiomrm.data.jsonl import Rejected
from axiomrm.data.reading import stream_records
from axiomrm.data.verdict import Scored, Verdict
from axiomrm.errors import DataError
from axiomrm.rm.calibration_fit import Labelled
from axiomrm.rm.criteria import labels_for
from axiomrm.rm.gating import GatePair
from axiomrm.rm.judgement import ScoreRow
from axiomrm.rm.labels import NOT_ASSESSABLE, LabelSet
from axiomrm.rubrics import Rubric

MODES = ("direct", "critique")
UNTOLD = "the person could not assess it"
NO_MODEL = "not judged by a model"


class Place(NamedTuple):
    """What one label or verdict is about."""

    id: str
    side: str | None
    turn: int | None
    criterion: str


class Label(NamedTuple):
    """What a person said."""

    label: str
    group: str


class Found(NamedTuple):
    """A verdict of a scored row."""

    verdict: Verdict
    judge_revision: str


class Join(NamedTuple):
    """Labels with their verdicts."""

    rows: list[Labelled]
    left_out: Counter[str]
    """Labels without a use, by reason."""


class GateJoin(NamedTuple):
    """Labels with their verdicts in both modes."""

    pairs: list[GatePair]
    left_out: Counter[str]
    """Labels without a use, by reason."""


def read_labels(path: Path) -> dict[Place, Label]:
    """The labels of a file.

    Raises:
        DataError: there is no such file, a line that is no label, or one place labelled twice.
    """
    found: dict[Place, Label] = {}
    for line, record in _records(path):
        texts = [record.get(key) for key in ("id", "criterion", "label")]
        turn, side = record.get("turn"), record.get("side")
        if not all(isinstance(text, str) and text for text in texts) or not isinstance(turn, int | None):
            raise DataError(
                f"{path}:{line}: expected id, criterion and label as text (and turn as a number), "
                f"found {sorted(record)}"
            )
        place = Place(str(texts[0]), side if isinstance(side, str) else None, turn, str(texts[1]))
        if place in found:
            raise DataError(f"{path}:{line}: {place.criterion!r} of {place.id!r} is labelled twice")
        found[place] = Label(str(texts[2]), str(record.get("group") or place.id))
    return found


def read_verdicts(path: Path) -> dict[Place, Found]:
    """Every verdict of a file of ``axiomrm score``.

    Raises:
        DataError: there is no such file, a line that is no scored row, or one place judged twice.
    """
    found: dict[Place, Found] = {}
    lines: dict[Place, int] = {}
    for line, record in _records(path):
        try:
            row = ScoreRow.model_validate(record)
        except ValidationError as error:
            raise DataError(
                f"{path}:{line}: not a row of axiomrm score: {error.errors()[0]['msg']}"
            ) from error
        for turn, criterion, verdict in row.judgement.all_verdicts():
            place = Place(row.id, row.side, turn, criterion)
            if place in found:
                raise DataError(
                    f"{path}:{line}: {criterion!r} of {row.id!r} is judged twice, first in line "
                    f"{lines[place]}; a label of it would meet either: give the recordings ids of their own"
                )
            found[place], lines[place] = Found(verdict, row.judgement.judge_revision), line
    return found


def read_scored(paths: Sequence[Path]) -> list[dict[Place, Found]]:
    """Every verdict of each of several files: parts of one log, or the modes of one judge.

    Raises:
        DataError: as ``read_verdicts``; or two files hold one judge's verdict of one place.
    """
    files = [read_verdicts(path) for path in paths]
    seen: dict[tuple[Place, str], Path] = {}
    for path, found in zip(paths, files, strict=True):
        for place, held in found.items():
            first = seen.setdefault((place, held.judge_revision), path)
            if first is not path:
                raise DataError(
                    f"{path}: {place.criterion!r} of {place.id!r} was judged by the same judge in {first} "
                    "already; a label of it would count twice"
                )
    return files


def label_sets(rubric: Rubric) -> dict[str, LabelSet]:
    """The legal labels of every criterion and axiom that a judge model may be asked."""
    sets = {t.id: labels_for((), t.scale) for t in rubric.theorems}
    return sets | {a.id: labels_for(tuple(a.caps or ())) for a in rubric.axioms if a.type != "premise"}


def join(
    labels: Mapping[Place, Label], verdicts: Mapping[Place, Found], sets: Mapping[str, LabelSet]
) -> Join:
    """Labelled verdicts to calibrate on; what cannot be used is counted.

    Raises:
        DataError: a label that its criterion does not have, or a criterion that the rubric does not have.
    """
    rows: list[Labelled] = []
    left_out: Counter[str] = Counter()
    for place, label in labels.items():
        token = _token(place, label.label, sets)
        found = verdicts.get(place)
        if token == NOT_ASSESSABLE:
            left_out[UNTOLD] += 1
        elif found is None:
            left_out["no verdict in the scored rows"] += 1
        elif not isinstance(found.verdict, Scored):
            left_out[f"the judge gave no value ({found.verdict.status})"] += 1
        elif found.verdict.mode not in MODES:
            left_out[NO_MODEL] += 1
        else:
            labelled = Labelled(
                found.verdict, sets[place.criterion], token, found.judge_revision, label.group
            )
            rows.append(labelled)
    return Join(rows, left_out)


def join_files(
    labels: Mapping[Place, Label], files: Sequence[Mapping[Place, Found]], sets: Mapping[str, LabelSet]
) -> Join:
    """``join`` with each file that holds a label's verdict: one row for each.

    Raises:
        DataError: as ``join``.
    """
    held = [{place: label for place, label in labels.items() if place in found} for found in files]
    nowhere = {place: label for place, label in labels.items() if not any(place in found for found in files)}
    joins = [join(*part, sets) for part in zip([*held, nowhere], [*files, {}], strict=True)]
    left_out = sum((one.left_out for one in joins), Counter[str]())
    return Join([row for one in joins for row in one.rows], left_out)


def gate_pairs(
    labels: Mapping[Place, Label],
    direct: Mapping[Place, Found],
    critique: Mapping[Place, Found],
    sets: Mapping[str, LabelSet],
) -> GateJoin:
    """The labelled items that both files hold; a failure stays in, what cannot be used is counted.

    Raises:
        DataError: as ``join``; or the files were not scored in direct and in critique mode.
    """
    pairs: list[GatePair] = []
    left_out: Counter[str] = Counter()
    for place, label in labels.items():
        token = _token(place, label.label, sets)
        found = [(mode, rows.get(place)) for mode, rows in zip(MODES, (direct, critique), strict=True)]
        absent = [mode for mode, row in found if row is None]
        verdicts = [(mode, row.verdict) for mode, row in found if row is not None]
        if token == NOT_ASSESSABLE:
            left_out[UNTOLD] += 1
        elif absent:
            left_out[f"no verdict in the {' and the '.join(absent)} rows"] += 1
        elif all(isinstance(v, Scored) and v.mode not in MODES for _, v in verdicts):
            left_out[NO_MODEL] += 1
        else:
            _check_modes(place, verdicts)
            pairs.append(GatePair(verdicts[0][1], verdicts[1][1], sets[place.criterion].names[token]))
    return GateJoin(pairs, left_out)


def _check_modes(place: Place, verdicts: Sequence[tuple[str, Verdict]]) -> None:
    for mode, verdict in verdicts:
        if isinstance(verdict, Scored) and verdict.mode != mode:
            raise DataError(f"{place.id!r}, {place.criterion!r}: a {verdict.mode} verdict, {mode} expected")


def _token(place: Place, label: str, sets: Mapping[str, LabelSet]) -> str:
    legal = sets.get(place.criterion)
    if legal is None:
        raise DataError(f"label of {place.id!r}: the rubric has no criterion {place.criterion!r}")
    tokens = [token for token, name in legal.names.items() if label in (token, name)]
    if not tokens:
        raise DataError(
            f"label of {place.id!r}, {place.criterion!r}: {label!r} is none of {list(legal.names.values())}"
        )
    return tokens[0]


def _records(path: Path) -> Iterator[tuple[int, Mapping[str, object]]]:
    rejected: list[Rejected] = []
    yield from stream_records(path, dict, rejected)
    if rejected:
        raise DataError(str(rejected[0]))


def described(left_out: Counter[str]) -> Sequence[str]:
    """One line a reason, the most frequent first."""
    return [f"{count} labels left out: {reason}" for reason, count in left_out.most_common()]
