import json
import random
from pathlib import Path
from typing import Any

import pytest

from axiomrm.cli import main
from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.errors import DataError
from axiomrm.rm import Judgement, TurnJudgement, read_calibration
from axiomrm.rm.judgement import ScoreRow
from axiomrm.rm.labelled import gate_pairs, join, label_sets, read_labels, read_verdicts
from axiomrm.rubrics import Rubric

RUBRIC = """
schema: atr/1
rubric: {id: one, version: 1.0.0}
defaults: {judge: {kind: llm}}
axioms:
  - {id: ax.help, statement: The user came with a purpose., type: premise}
  - {id: ax.calm, statement: Stays calm., type: soft, caps: {minor: 0.8, major: 0.5}, detector: {kind: llm}}
theorems:
  - {id: th.done, derived_from: [ax.help], derivation: purpose, statement: The request is settled.}
  - id: th.kind
    derived_from: [ax.help]
    derivation: manners
    statement: Kindness.
    scale: {kind: ordinal, anchors: [{value: 0, text: cold}, {value: 1, text: warm}]}
    evidence: {level: turn, reduce: mean}
"""
EMPTY: dict[str, Any] = {"reward": None, "interval": (0, 1), "coverage": 0, "gate": None}


def yes(p: float, mode: Any = "direct") -> Scored:
    label = "Y" if p >= 0.5 else "N"
    return Scored(value=p, label=label, distribution={"Y": p, "N": 1 - p}, mode=mode)


def row(name: str, verdict: Verdict, turn: Verdict | None = None) -> dict[str, Any]:
    turns = () if turn is None else (TurnJudgement(index=0, verdicts={"th.kind": turn}, **EMPTY),)
    judgement = Judgement(id=name, verdicts={"th.done": verdict}, turns=turns, judge_revision="r", **EMPTY)
    return ScoreRow(file="f", line=1, id=name, judgement=judgement).model_dump(mode="json", by_alias=True)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


@pytest.fixture()
def rubric(tmp_path: Path) -> str:
    path = tmp_path / "one.yaml"
    path.write_text(RUBRIC)
    return str(path)


def overconfident(n: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rng = random.Random(0)
    scored, labels = [], []
    for i in range(n):
        gold, right = rng.random() < 0.5, rng.random() < 0.7
        scored.append(row(f"c{i}", yes(0.9 if gold == right else 0.1)))
        labels.append({"id": f"c{i}", "criterion": "th.done", "label": "Y" if gold else "N"})
    return scored, labels


def test_fit_stores_a_calibrator_and_says_what_it_left_out(
    tmp_path: Path, rubric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scored, labels = overconfident(240)
    labels += [{"id": "c999", "criterion": "th.done", "label": "Y"}]
    labels += [{"id": "lost", "criterion": "th.done", "label": "X"}]
    files = [str(write(tmp_path / "s.jsonl", scored)), "--labels", str(write(tmp_path / "l.jsonl", labels))]
    assert main(["calibrate", "fit", *files, "-r", rubric, "--model", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "1 labels left out: no verdict" in said and "1 labels left out: the person" in said
    assert "Y=1 N=0 (direct, expected): 240 labels; temperature" in said
    made = read_calibration(tmp_path)
    assert made is not None and made.entries[0].judge_revision == "r" and made.source == "l.jsonl"
    after = made.apply(yes(0.9), label_sets(Rubric.load(rubric))["th.done"])
    assert isinstance(after, Scored) and 0.6 < after.value < 0.8


def test_too_few_labels_store_nothing_and_exit_one(
    tmp_path: Path, rubric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    scored, labels = overconfident(50)
    files = [str(write(tmp_path / "s.jsonl", scored)), "--labels", str(write(tmp_path / "l.jsonl", labels))]
    assert main(["calibrate", "fit", *files, "-r", rubric, "--model", str(tmp_path)]) == 1
    assert "50 labels, at least 200 are needed" in capsys.readouterr().out
    assert read_calibration(tmp_path) is None


def test_gate_names_the_cheapest(tmp_path: Path, rubric: str, capsys: pytest.CaptureFixture[str]) -> None:
    direct = [row(f"c{i}", yes(0.6 + 0.1 * i)) for i in range(4)]
    critique = [row(f"c{i}", yes(p, "critique")) for i, p in enumerate((0.1, 0.1, 0.9, 0.4))]
    golds = [{"id": f"c{i}", "criterion": "th.done", "label": g} for i, g in enumerate("NNYY")]
    files = [str(write(tmp_path / f"{n}.jsonl", rows)) for n, rows in (("d", direct), ("c", critique))]
    labels = str(write(tmp_path / "l.jsonl", golds))
    assert main(["calibrate", "gate", *files, "--labels", labels, "-r", rubric]) == 0
    said = capsys.readouterr().out
    assert "4 labelled items" in said and "mode='gated', gate=0.4" in said
    assert "25.0%     75.0%  <- chosen" in said
    with pytest.raises(DataError, match="direct verdict, critique expected"):
        verdicts = read_verdicts(Path(files[0]))
        gate_pairs(read_labels(Path(labels)), verdicts, verdicts, label_sets(Rubric.load(rubric)))


def test_gate_says_which_labels_it_left_out(
    tmp_path: Path, rubric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    direct = [row(name, yes(0.6)) for name in ("both", "only-direct", "lost")]
    critique = [row(name, yes(0.7, "critique")) for name in ("both", "only-critique", "lost")]
    for rows in (direct, critique):
        rows.append(row("code", yes(1.0, "programmatic")))
    named = ["both", "only-direct", "only-critique", "lost", "code", "nowhere"]
    golds = [{"id": name, "criterion": "th.done", "label": "X" if name == "lost" else "Y"} for name in named]
    files = [write(tmp_path / f"{n}.jsonl", rows) for n, rows in (("d", direct), ("c", critique))]
    labels = write(tmp_path / "l.jsonl", golds)
    arguments = ["calibrate", "gate", *map(str, files), "--labels", str(labels), "-r", rubric]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "1 labelled items" in said
    for count, reason in (
        (1, "the person could not assess it"),
        (1, "no verdict in the direct rows"),
        (1, "no verdict in the critique rows"),
        (1, "no verdict in the direct and the critique rows"),
        (1, "not judged by a model"),
    ):
        assert f"{count} labels left out: {reason}\n" in said
    sets, (one, two) = label_sets(Rubric.load(rubric)), (read_verdicts(file) for file in files)
    found = gate_pairs(read_labels(labels), one, two, sets)
    assert len(found.pairs) + found.left_out.total() == len(named)


def test_a_place_that_two_rows_judge_is_an_error_that_names_both(tmp_path: Path) -> None:
    rows = [row("a", yes(0.9)), row("b", yes(0.9)), row("a", yes(0.1))]
    path = write(tmp_path / "s.jsonl", rows)
    with pytest.raises(DataError, match=r"s\.jsonl:3: 'th\.done' of 'a' is judged twice, first in line 1"):
        read_verdicts(path)
    pair = [{**row("a", yes(p)), "side": side} for side, p in (("a", 0.9), ("b", 0.1))]
    assert len(read_verdicts(write(path, pair))) == 2


def test_labels_meet_their_verdicts_by_turn_and_by_name(tmp_path: Path, rubric: str) -> None:
    sets = label_sets(Rubric.load(rubric))
    assert sets["ax.calm"].names == {"Y": "Y", "1": "minor", "2": "major", "X": "X"}
    assert set(sets) == {"ax.calm", "th.done", "th.kind"}
    warm = Scored(value=0.8, label="1", distribution={"0": 0.2, "1": 0.8})
    scored = [
        row("a", Failed(kind="timeout"), warm),
        row("b", CannotAssess()),
        row("c", yes(0.9, "programmatic")),
    ]
    labels: list[dict[str, Any]] = [
        {"id": "a", "criterion": "th.kind", "label": "1", "turn": 0, "group": "g"},
        {"id": "a", "criterion": "th.done", "label": "Y"},
        {"id": "b", "criterion": "th.done", "label": "N"},
        {"id": "c", "criterion": "th.done", "label": "N"},
    ]
    verdicts = read_verdicts(write(tmp_path / "s.jsonl", scored))
    found = join(read_labels(write(tmp_path / "l.jsonl", labels)), verdicts, sets)
    assert [(r.verdict, r.gold, r.group) for r in found.rows] == [(warm, "1", "g")]
    assert sorted(found.left_out) == [
        "not judged by a model",
        "the judge gave no value (cannot_assess)",
        "the judge gave no value (failed)",
    ]


@pytest.mark.parametrize(
    ("label", "named"),
    [
        ({"id": "c0", "criterion": "th.done", "label": "maybe"}, "'maybe' is none of"),
        ({"id": "c0", "criterion": "th.gone", "label": "Y"}, "no criterion 'th.gone'"),
        ({"id": "c0", "criterion": "th.done"}, "l.jsonl:1: expected id, criterion and label"),
    ],
)
def test_labels_that_cannot_be_used_end_in_one_line_and_exit_two(
    tmp_path: Path, rubric: str, capsys: pytest.CaptureFixture[str], label: dict[str, Any], named: str
) -> None:
    scored = str(write(tmp_path / "s.jsonl", [row("c0", yes(0.9))]))
    labels = str(write(tmp_path / "l.jsonl", [label]))
    arguments = ["calibrate", "fit", scored, "--labels", labels, "-r", rubric, "--model", str(tmp_path)]
    assert main(arguments) == 2
    assert named in capsys.readouterr().err
    twice = write(tmp_path / "t.jsonl", [{"id": "c0", "criterion": "th.done", "label": "Y"}] * 2)
    with pytest.raises(DataError, match="labelled twice"):
        read_labels(twice)
    with pytest.raises(DataError, match="not a row of axiomrm score"):
        read_verdicts(twice)
