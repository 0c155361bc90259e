import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from axiomrm.cli import main
from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.errors import DataError
from axiomrm.rm import Judgement, RewardModel, TurnJudgement, read_calibration
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


def row(name: str, verdict: Verdict, turn: Verdict | None = None, revision: str = "r") -> dict[str, Any]:
    turns = () if turn is None else (TurnJudgement(index=0, verdicts={"th.kind": turn}, **EMPTY),)
    judgement = Judgement(
        id=name, verdicts={"th.done": verdict}, turns=turns, judge_revision=revision, **EMPTY
    )
    return ScoreRow(file="f", line=1, id=name, judgement=judgement).model_dump(mode="json", by_alias=True)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(r) + "\n" for r in rows))
    return path


@pytest.fixture()
def rubric(tmp_path: Path) -> str:
    path = tmp_path / "one.yaml"
    path.write_text(RUBRIC)
    return str(path)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Any, tiny_tokenizer: Any) -> Path:
    folder = tmp_path_factory.mktemp("judge")
    tiny_llama.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def judge(checkpoint: Path) -> RewardModel:
    return RewardModel.from_pretrained(checkpoint)


@pytest.fixture()
def model(checkpoint: Path, tmp_path: Path) -> Path:
    """The judge's folder, for one test to write into."""
    return Path(shutil.copytree(checkpoint, tmp_path / "judge"))


def overconfident(
    n: int, revision: str = "r", mode: Any = "direct"
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rng = random.Random(0)
    scored, labels = [], []
    for i in range(n):
        gold, right = rng.random() < 0.5, rng.random() < 0.7
        scored.append(row(f"c{i}", yes(0.9 if gold == right else 0.1, mode), revision=revision))
        labels.append({"id": f"c{i}", "criterion": "th.done", "label": "Y" if gold else "N"})
    return scored, labels


def test_fit_stores_a_calibrator_and_says_what_it_left_out(
    tmp_path: Path, rubric: str, capsys: pytest.CaptureFixture[str], model: Path, judge: RewardModel
) -> None:
    scored, labels = overconfident(240, judge.judge_revision)
    labels += [{"id": "c999", "criterion": "th.done", "label": "Y"}]
    labels += [{"id": "lost", "criterion": "th.done", "label": "X"}]
    files = [str(write(tmp_path / "s.jsonl", scored)), "--labels", str(write(tmp_path / "l.jsonl", labels))]
    assert main(["calibrate", "fit", *files, "-r", rubric, "--model", str(model)]) == 0
    said = capsys.readouterr().out
    assert "1 labels left out: no verdict" in said and "1 labels left out: the person" in said
    assert "Y=1 N=0 (direct, expected): 240 labels; temperature" in said
    made = read_calibration(model)
    assert made is not None and made.source == "l.jsonl"
    assert made.entries[0].judge_revision == judge.judge_revision
    after = made.apply(yes(0.9), label_sets(Rubric.load(rubric))["th.done"])
    assert isinstance(after, Scored) and 0.6 < after.value < 0.8


def test_rows_that_the_folder_s_judge_did_not_score_are_refused_before_they_spoil_it(
    tmp_path: Path, rubric: str, capsys: pytest.CaptureFixture[str], model: Path, judge: RewardModel
) -> None:
    gated = judge.with_settings(mode="gated", gate=0.0001)
    joint = judge.with_settings(joint=2)
    words = ["-r", rubric, "--model", str(model)]
    for other in ("r", gated.judge_revision, joint.judge_revision):
        scored, labels = overconfident(240, other)
        files = [
            str(write(tmp_path / "s.jsonl", scored)),
            "--labels",
            str(write(tmp_path / "l.jsonl", labels)),
        ]
        assert main(["calibrate", "fit", *files, *words]) == 2
        said = capsys.readouterr().err
        assert f"scored by {other[:12]}" in said and "score in direct and critique mode" in said
        assert read_calibration(model) is None
    assert main(["calibrate", "fit", *files, *words, "--joint", "2"]) == 0
    assert RewardModel.from_pretrained(model, joint=2).modes.calibration == read_calibration(model)


def test_both_modes_are_fitted_from_two_files_and_a_gated_judge_loads_them(
    tmp_path: Path, rubric: str, capsys: pytest.CaptureFixture[str], model: Path, judge: RewardModel
) -> None:
    files = []
    for mode in ("direct", "critique"):
        asked = judge.with_settings(mode=mode)
        scored, labels = overconfident(240, asked.judge_revision, mode)
        files.append(str(write(tmp_path / f"{mode}.jsonl", scored)))
    words = ["--labels", str(write(tmp_path / "l.jsonl", labels)), "-r", rubric, "--model", str(model)]
    assert main(["calibrate", "fit", *files, files[0], *words]) == 2
    assert "direct.jsonl already; a label of it would count twice" in capsys.readouterr().err
    assert main(["calibrate", "fit", *files, *words]) == 0
    found = RewardModel.from_pretrained(model, mode="gated", gate=0.5).modes.calibration
    assert found is not None and [e.mode for e in found.entries] == ["direct", "critique"]


def test_a_criterion_s_own_mode_is_calibrated_as_that_mode(
    tmp_path: Path, rubric: str, model: Path, judge: RewardModel
) -> None:
    """Without a mode the rows of a criterion that asks for notes carry the judge's plain revision."""
    scored, labels = overconfident(240, judge.judge_revision, "critique")
    files = [str(write(tmp_path / "s.jsonl", scored)), "--labels", str(write(tmp_path / "l.jsonl", labels))]
    assert main(["calibrate", "fit", *files, "-r", rubric, "--model", str(model)]) == 0
    assert RewardModel.from_pretrained(model).modes.calibration == read_calibration(model)


def test_parts_of_a_log_are_fitted_together_and_a_label_is_left_out_once(
    tmp_path: Path, rubric: str, capsys: pytest.CaptureFixture[str], model: Path, judge: RewardModel
) -> None:
    scored, labels = overconfident(240, judge.judge_revision)
    labels.append({"id": "gone", "criterion": "th.done", "label": "Y"})
    parts = [str(write(tmp_path / f"{i}.jsonl", scored[i::2])) for i in (0, 1)]
    words = ["--labels", str(write(tmp_path / "l.jsonl", labels)), "-r", rubric, "--model", str(model)]
    assert main(["calibrate", "fit", *parts, *words]) == 0
    said = capsys.readouterr().out
    assert "1 labels left out: no verdict" in said and "240 labels; temperature" in said


def test_verdicts_of_a_server_are_fitted_into_the_folder_of_its_tokenizer(
    tmp_path: Path, rubric: str, model: Path, http: Any, server: Any, tiny_tokenizer: Any
) -> None:
    server.answers = [http.completing(tiny_tokenizer)]
    served = RewardModel.connect(server.url, model="m", tokenizer=model, deadline_s=5.0)
    scored, labels = overconfident(240, served.judge_revision)
    files = [str(write(tmp_path / "s.jsonl", scored)), "--labels", str(write(tmp_path / "l.jsonl", labels))]
    words = ["calibrate", "fit", *files, "-r", rubric, "--model", str(model)]
    assert main(words) == 2  # not the judge that runs here
    assert main([*words, "--url", server.url, "--served-model", "m"]) == 0
    again = RewardModel.connect(server.url, model="m", tokenizer=model, deadline_s=5.0)
    assert again.modes.calibration == read_calibration(model)


@pytest.mark.parametrize(
    "words", [("--served-model", "m"), ("--url", "http://h/v1"), ("--url", "http://h/v1", "--dtype", "auto")]
)
def test_options_of_a_judge_elsewhere_and_here_are_not_mixed(
    tmp_path: Path, rubric: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    asked = ["calibrate", "fit", "s", "--labels", "l", "-r", rubric, "--model", str(tmp_path), *words]
    assert main(asked) == 2
    assert "a --url and a --served-model" in " ".join(capsys.readouterr().err.replace("│", " ").split())


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
    assert "4 labelled items" in said and "mode='gated', gate=0.3\n" in said
    assert "0.3     25.0%     75.0%  <- chosen" in said
    with pytest.raises(DataError, match="direct verdict, critique expected"):
        verdicts = read_verdicts(Path(files[0]))
        gate_pairs(read_labels(Path(labels)), verdicts, verdicts, label_sets(Rubric.load(rubric)))


def test_the_printed_gate_writes_as_many_critiques_as_the_chosen_one(
    tmp_path: Path, rubric: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # a sharp judge: confidences of .99996 to .9999998, where two decimals are all 1.00
    sure = [1 - 2e-5 * 0.9**i for i in range(40)]
    direct = [row(f"c{i}", yes(p if i >= 3 else 1 - p)) for i, p in enumerate(sure)]
    critique = [row(f"c{i}", yes(0.9, "critique")) for i in range(40)]
    golds = [{"id": f"c{i}", "criterion": "th.done", "label": "Y"} for i in range(40)]
    files = [str(write(tmp_path / f"{n}.jsonl", rows)) for n, rows in (("d", direct), ("c", critique))]
    labels = str(write(tmp_path / "l.jsonl", golds))
    assert main(["calibrate", "gate", *files, "--labels", labels, "-r", rubric]) == 0
    said = capsys.readouterr().out
    gate = said.strip().rpartition("gate=")[2]
    assert len(gate) <= 8 and f"{gate}      7.5%    100.0%  <- chosen" in said
    assert sum(2 * p - 1 < float(gate) for p in sure) == 3


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
