"""``improve`` finds what was planted, stays silent on clean rows, and edits files that a person can read."""

import json
import math
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axiomrm.cli import main
from axiomrm.data.verdict import CannotAssess, Scored, Verdict
from axiomrm.errors import ConfigError, DataError, RubricError
from axiomrm.rubrics import Rubric
from axiomrm.rubrics.improve import (
    Row,
    Rows,
    accepted,
    improve,
    read_proposal,
    read_rows,
    score_findings,
    sort_rows,
)
from axiomrm.rubrics.improve_edit import edited_text
from axiomrm.rubrics.improve_effect import accuracy_of, halves
from axiomrm.rubrics.improve_stats import (
    alpha,
    bootstrap,
    normal_quantile,
    partial_spearman,
    ranks,
    spearman,
    wilson_lower,
)
from axiomrm.rubrics.read import read_text

NAMES = [f"th.{c}" for c in "abcdefgh"]
TEXT = (
    """# the team's rubric
schema: atr/1
rubric: {id: team, version: 1.4.0}
axioms:
  - {id: ax.goal, statement: The user has a goal., type: premise}
theorems:
"""
    + "".join(
        f"""  # why {name}
  - id: {name}
    derived_from: [ax.goal]
    derivation: a step
    statement: Statement of {name}.
    weight: {i + 1}
"""
        for i, name in enumerate(NAMES)
    )
    + """policy: {scale: net}
changelog:
  - {version: 1.4.0, note: before}
"""
)


def rubric() -> Rubric:
    return Rubric.loads(TEXT, "team.yaml")


def clean(seed: int, count: int = 400, *, repeats: bool = False) -> list[Row]:
    """Four conversations a task; each criterion a noisy sign of its own of one quality."""
    rng = random.Random(seed)
    rows = []
    for i in range(count):
        quality = rng.gauss(0, 1)
        verdicts: dict[str, Verdict] = {
            name: Scored(value=float(quality + rng.gauss(0, 1.2) > 0), label="") for name in NAMES
        }
        row = Row(
            key=("log.jsonl", i + 1, f"r{i}", ""),
            task=f"t{i // 4}",
            verdicts=verdicts,
            judge="j1",
            length=float(rng.randint(20, 200)),
            outcome=float(quality + rng.gauss(0, 0.5) > 0),
            version=float(rng.randint(0, 5)),
            text=f"reply {i}",
        )
        rows.append(row)
        if repeats:
            again: dict[str, Verdict] = {
                n: v if rng.random() < 0.9 else Scored(value=1 - v.value)
                for n, v in verdicts.items()
                if isinstance(v, Scored)
            }
            rows.append(replace(row, verdicts=again))
    return rows


def with_values(rows: list[Row], name: str, values: Mapping[int, Verdict | None]) -> list[Row]:
    out = []
    for i, row in enumerate(rows):
        verdicts = {k: v for k, v in row.verdicts.items() if k != name}
        given = values[i]
        out.append(replace(row, verdicts=verdicts if given is None else {**verdicts, name: given}))
    return out


def value(row: Row, name: str) -> float:
    verdict = row.verdicts[name]
    assert isinstance(verdict, Scored)
    return verdict.value


def found(rows: list[Row]) -> set[tuple[str, str]]:
    return {(f.kind, f.criterion) for f in improve(rubric(), sort_rows(rows)).faults}


# --- the statistics, by hand and against references -------------------------------------------------------


def test_wilson_needs_two_hundred_equal_labels() -> None:
    # n/(n + z²) with z² = 3.8415: 200/203.8415 = 0.98115, 180/183.8415 = 0.97910
    assert wilson_lower(200, 200) == pytest.approx(0.981155, abs=1e-6)
    assert wilson_lower(180, 180) == pytest.approx(0.979104, abs=1e-6)
    assert math.isnan(wilson_lower(0, 0))


def test_ranks_share_ties() -> None:
    assert ranks(np.array([10.0, 20.0, 10.0, 5.0])).tolist() == [2.5, 4.0, 2.5, 1.0]


def test_spearman_by_hand() -> None:
    # ranks 1 2 3 4 and 2 1 4 3: 1 − 6·(1+1+1+1)/(4·15) = 0.6
    assert spearman(np.array([1.0, 2, 3, 4]), np.array([2.0, 1, 4, 3])) == pytest.approx(0.6)
    assert math.isnan(spearman(np.array([1.0, 1, 1]), np.array([1.0, 2, 3])))


def test_a_correlation_that_the_control_explains_is_gone() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=4000)
    x, y = z + rng.normal(size=4000), z + rng.normal(size=4000)
    assert spearman(x, y) > 0.4
    assert abs(partial_spearman(x, y, z)) < 0.05


def test_alpha_by_hand() -> None:
    # units (0,0) (1,1) (0,1): observed Σ 2/(2−1) = 2 over 6; expected 2·(6·3 − 9)/(6·5) = 0.6 → 1 − (1/3)/0.6
    assert alpha([[0, 0], [1, 1], [0, 1]]) == pytest.approx(1 - (2 / 6) / 0.6)
    assert alpha([[0, 0], [1, 1]]) == 1
    assert math.isnan(alpha([[1, 1], [1, 1]]))
    assert alpha([[0, 0], [1, 1], [0]]) == 1  # a single reading says nothing about agreement


def test_quantiles_of_the_normal_distribution() -> None:
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)


def test_the_bootstrap_draws_whole_clusters() -> None:
    clusters = [np.array([0, 1]), np.array([2, 3])]
    values = np.array([0.0, 0.0, 1.0, 1.0])
    low, high = bootstrap(clusters, lambda i: float(values[i].mean()))
    assert (low, high) == (0.0, 1.0)
    assert all(math.isnan(v) for v in bootstrap([], lambda i: 0.0))


# --- findings -------------------------------------------------------------------------------------------


def test_twenty_clean_sets_give_no_more_than_chance() -> None:
    faults = [f for seed in range(20) for f in improve(rubric(), sort_rows(clean(seed, repeats=True))).faults]
    assert len(faults) <= 1, faults


def test_a_dead_criterion_is_found() -> None:
    rows = clean(1, 1200)
    rows = with_values(rows, "th.c", {i: Scored(value=float(i % 300 != 7)) for i in range(len(rows))})
    assert found(rows) == {("dead", "th.c")}


def test_a_turn_level_criterion_is_counted_by_turns() -> None:
    # 120 conversations are too few, their 360 turns are not
    rows = clean(1, 120)
    turn: dict[str, Verdict] = {"th.c": Scored(value=1.0)}
    bare = with_values(rows, "th.c", dict.fromkeys(range(len(rows))))
    faults = improve(rubric(), sort_rows([replace(r, turns=(turn, turn, turn)) for r in bare])).faults
    assert [(f.kind, f.criterion, f.units) for f in faults] == [("dead", "th.c", 360)]


def test_a_dead_criterion_is_not_claimed_below_two_hundred_units() -> None:
    rows = clean(1, 196)
    rows = with_values(rows, "th.c", {i: Scored(value=1.0) for i in range(len(rows))})
    result = improve(rubric(), sort_rows(rows))
    assert not result.faults
    assert "Too few units (below 200)" in result.evidence


def test_a_criterion_that_never_applies_is_found() -> None:
    rows = clean(2)
    assert found(with_values(rows, "th.d", dict.fromkeys(range(len(rows))))) == {("never_applies", "th.d")}


def test_a_criterion_that_cannot_be_assessed_is_found() -> None:
    rows = clean(3)
    values: dict[int, Verdict | None] = {
        i: CannotAssess() if i % 10 < 3 else row.verdicts["th.e"] for i, row in enumerate(rows)
    }
    assert found(with_values(rows, "th.e", values)) == {("unassessable", "th.e")}
    few: dict[int, Verdict | None] = {
        i: CannotAssess() if i % 10 < 1 else row.verdicts["th.e"] for i, row in enumerate(rows)
    }
    assert found(with_values(rows, "th.e", few)) == set()


def test_a_redundant_criterion_is_found_and_merged_into_the_heavier() -> None:
    rng = random.Random(4)
    rows = clean(4)
    values = {i: Scored(value=value(r, "th.b") if rng.random() < 0.98 else 0.5) for i, r in enumerate(rows)}
    result = improve(rubric(), sort_rows(with_values(rows, "th.f", values)))
    assert [(f.kind, f.criterion, f.other) for f in result.faults] == [("redundant", "th.b", "th.f")]
    new = Rubric.loads(accepted(rubric(), result.proposal), "team.yaml")
    assert {t.id: t.weight for t in new.theorems}["th.f"] == 8  # 2 + 6
    assert "th.b" not in {t.id for t in new.theorems}


def test_criteria_of_different_scenarios_are_not_redundant() -> None:
    rows = clean(4)
    values: dict[int, Verdict | None] = {
        i: Scored(value=value(r, "th.b")) if i % 8 else None for i, r in enumerate(rows)
    }
    assert found(with_values(rows, "th.f", values)) == set()


def test_an_unreliable_criterion_is_found() -> None:
    rng = random.Random(5)
    rows = clean(5, repeats=True)
    noise: dict[int, Verdict | None] = {
        i: Scored(value=float(rng.random() < 0.5)) if i % 2 else r.verdicts["th.g"]
        for i, r in enumerate(rows)
    }
    result = improve(rubric(), sort_rows(with_values(rows, "th.g", noise)))
    assert [(f.kind, f.criterion) for f in result.faults] == [("unreliable", "th.g")]
    assert result.proposal.changes[0].needs_rescoring


def test_a_length_driven_criterion_is_found_and_one_of_the_outcome_is_not() -> None:
    rng = random.Random(6)
    rows = clean(6)
    values = {i: Scored(value=float((r.length or 0) + rng.gauss(0, 40) > 110)) for i, r in enumerate(rows)}
    assert found(with_values(rows, "th.a", values)) == {("length_driven", "th.a")}
    # long replies solve the task, and the criterion says that the task is solved
    solved = [replace(r, length=100 + 50 * (r.outcome or 0) + rng.random()) for r in rows]
    honest = {
        i: Scored(value=r.outcome if rng.random() < 0.9 else 1 - (r.outcome or 0))
        for i, r in enumerate(solved)
    }
    assert found(with_values(solved, "th.a", honest)) == set()


def gamed(seed: int) -> list[Row]:
    rng = random.Random(seed)
    rows = [replace(r, version=float(i % 6)) for i, r in enumerate(clean(seed, 600))]
    values = {
        i: Scored(value=float(rng.random() < 0.2 + 0.12 * (r.version or 0))) for i, r in enumerate(rows)
    }
    return with_values(rows, "th.h", values)


def test_an_exploited_criterion_is_found_with_its_transcripts() -> None:
    result = improve(rubric(), sort_rows(gamed(7)))
    assert [(f.kind, f.criterion) for f in result.faults] == [("exploited", "th.h")]
    (added,) = [e["add"] for e in result.proposal.changes[0].edits]
    assert (added["polarity"], added["status"]) == ("penalty", "draft")
    assert added["cases"][0]["bad"].startswith("reply ")
    assert len(added["sources"]) == 5


def test_a_rise_that_the_outcome_follows_is_progress() -> None:
    rng = random.Random(8)
    rows = gamed(8)
    better = [replace(r, outcome=float(rng.random() < 0.2 + 0.12 * (r.version or 0))) for r in rows]
    assert found(better) == set()


def test_a_second_judge_of_the_criterion_is_asked_before_the_outcome() -> None:
    rows = gamed(9)
    agrees = [replace(r, judge="j2", verdicts={"th.h": r.verdicts["th.h"]}) for r in rows[::2]]
    assert found([*rows, *agrees]) == set()  # the rise is real, though the outcome is flat
    rng = random.Random(9)
    flat = [
        replace(r, judge="j2", verdicts={"th.h": Scored(value=float(rng.random() < 0.5))}) for r in rows[::2]
    ]
    assert found([*rows, *flat]) == {("exploited", "th.h")}


def test_several_faults_are_found_at_once() -> None:
    rows = gamed(10)
    rows = with_values(rows, "th.c", {i: Scored(value=1.0) for i in range(len(rows))})
    rows = with_values(rows, "th.f", {i: rows[i].verdicts["th.b"] for i in range(len(rows))})
    assert found(rows) == {("exploited", "th.h"), ("dead", "th.c"), ("redundant", "th.b")}


def test_the_two_halves_share_no_task_and_give_enough_rows() -> None:
    for count in (40, 300, 1000):
        search, held = halves(clean(0, count))
        assert not {r.task for r in search} & {r.task for r in held}
        assert len(search) + len(held) == count
        assert len(search) >= min(200, count)
    assert 400 < len(search) < 600


def test_pair_accuracy_by_hand() -> None:
    rows = [replace(r, outcome=o, task="t") for r, o in zip(clean(0, 4), (0.0, 1.0, 1.0, 0.0), strict=True)]
    # pairs with different outcomes: (0,1) right, (0,2) tied, (1,3) right, (2,3) the wrong way round
    got = accuracy_of([0.1, 0.5, 0.1, 0.3], rows)
    assert (got.value, got.pairs) == ((1 + 0.5 + 1 + 0) / 4, 4)
    assert accuracy_of([None, 0.5, 0.1, 0.3], rows).pairs == 2


def test_the_effect_of_a_retirement_is_measured_on_held_out_pairs() -> None:
    rows = gamed(11)
    rows = with_values(rows, "th.c", {i: Scored(value=1.0) for i in range(len(rows))})
    evidence = improve(rubric(), sort_rows(rows)).evidence
    assert "th.c: dead" in evidence
    assert "needs_rescoring" in evidence
    line = next(x for x in evidence.splitlines() if x.startswith("- pair accuracy") or "before," in x)
    numbers = [float(w) for w in line.split() if w.replace(".", "").isdigit()]
    assert all(0 <= n <= 10000 for n in numbers)


def test_rows_without_a_verdict_on_the_rubric_are_refused() -> None:
    rows = [replace(r, verdicts={"th.other": Scored(value=1)}) for r in clean(0, 10)]
    with pytest.raises(DataError, match="no scored row has a verdict"):
        improve(rubric(), sort_rows(rows))


# --- proposals and edits -----------------------------------------------------------------------------------


def test_a_proposal_survives_its_file_and_keeps_comments() -> None:
    rows = gamed(12)
    rows = with_values(rows, "th.c", {i: Scored(value=1.0) for i in range(len(rows))})
    result = improve(rubric(), sort_rows(rows))
    proposal = read_proposal(result.proposal.to_yaml(), "proposal.yaml")
    assert proposal == result.proposal
    assert proposal.version == "2.0.0"  # an active item goes
    text = accepted(rubric(), proposal)
    assert all(f"# why {name}" in text for name in NAMES)
    new = Rubric.loads(text, "team.yaml")
    assert new.version == "2.0.0"
    assert new.file.changelog[-1].version == "2.0.0"
    assert {t.id for t in new.theorems} == set(NAMES) - {"th.c"}
    assert next(t for t in new.file.theorems if t.id == "th.h_gamed").status == "draft"
    added = [x for x in result.diff.splitlines() if x.startswith("+") and not x.startswith("+++")]
    removed = [x for x in result.diff.splitlines() if x.startswith("-") and not x.startswith("---")]
    assert "+    status: deprecated" in added
    assert len(removed) == 1  # the old version


def test_only_some_changes_are_taken() -> None:
    rows = gamed(12)
    rows = with_values(rows, "th.c", {i: Scored(value=1.0) for i in range(len(rows))})
    proposal = improve(rubric(), sort_rows(rows)).proposal
    for name in ("th.h", next(c.id for c in proposal.changes if c.criterion == "th.h")):
        new = Rubric.loads(accepted(rubric(), proposal, [name]), "team.yaml")
        assert (new.version, len(new.theorems)) == ("1.4.1", 8)  # a draft changes no hash
        assert new.hash == rubric().hash
    with pytest.raises(ConfigError, match=r"no change 'th\.x' in the proposal"):
        accepted(rubric(), proposal, ["th.x"])


def test_a_proposal_for_another_rubric_is_refused() -> None:
    rows = with_values(clean(1), "th.c", {i: Scored(value=1.0) for i in range(400)})
    proposal = improve(rubric(), sort_rows(rows)).proposal
    other = Rubric.loads(TEXT.replace("weight: 3", "weight: 9"), "team.yaml")
    with pytest.raises(ConfigError, match="the rubric has changed since the proposal"):
        accepted(other, proposal)


def test_a_change_that_does_not_lint_is_not_written() -> None:
    rows = [replace(r, text="write to jane.doe@example.org") for r in gamed(13)]
    proposal = improve(rubric(), sort_rows(rows)).proposal
    with pytest.raises(RubricError, match="E151"):
        accepted(rubric(), proposal)


FLOW = """schema: atr/1
rubric: {id: team, version: "1.0.0"}
axioms: [{id: ax.goal, statement: A goal., type: premise}]
theorems:
- {id: th.a, derived_from: [ax.goal], derivation: d, statement: A., weight: 2} # first
- {id: th.b, derived_from: [ax.goal], derivation: d, statement: B.}
policy: {scale: net}
"""


def test_flow_style_is_edited_in_place() -> None:
    edits: list[dict[str, Any]] = [
        {"id": "th.a", "set": {"status": "deprecated"}},
        {"id": "th.b", "set": {"weight": 2.5}},
        {"version": "2.0.0"},
    ]
    text = edited_text(read_text(FLOW, "team.yaml"), edits)
    assert "{id: th.a, status: deprecated, derived_from" in text
    assert "weight: 2} # first" in text
    assert "{id: th.b, weight: 2.5, derived_from" in text
    assert "version: 2.0.0}" in text
    added = {"id": "th.c", "derived_from": ["ax.goal"], "derivation": "d", "statement": "C: a thing #1."}
    more = edited_text(read_text(FLOW, "team.yaml"), [{"add": added}])
    assert more.startswith(FLOW[: FLOW.index("policy")])
    model = read_text(more, "team.yaml").model
    assert model is not None
    assert model.theorems[-1].statement == "C: a thing #1."


def test_what_cannot_be_edited_line_by_line_is_written_anew() -> None:
    one = (
        FLOW.replace("theorems:\n- ", "theorems: [")
        .replace("} # first\n- {", "}, {")
        .replace("B.}\n", "B.}]\n")
    )
    added = {"id": "th.c", "derived_from": ["ax.goal"], "derivation": "d", "statement": "C."}
    document = read_text(one, "team.yaml")
    assert document.model is not None
    model = read_text(edited_text(document, [{"add": added}]), "team.yaml").model
    assert model is not None
    assert [t.id for t in model.theorems] == ["th.a", "th.b", "th.c"]
    as_json = json.dumps(document.model.plain())
    new = edited_text(read_text(as_json, "team.json"), [{"id": "th.a", "set": {"weight": 7}}])
    assert json.loads(new)["theorems"][0]["weight"] == 7


# --- files and the command ---------------------------------------------------------------------------------


def scored_line(row: Row, **extra: Any) -> str:
    judgement = {
        "id": row.key[2],
        "reward": 0.5,
        "interval": [0, 1],
        "coverage": 1,
        "gate": 1,
        "verdicts": {k: v.model_dump(mode="json") for k, v in row.verdicts.items()},
        "turns": [],
        "judge_revision": row.judge,
    }
    body = {
        "schema": "axiomrm/score-1",
        "file": row.key[0],
        "line": row.key[1],
        "id": row.key[2],
        "side": None,
    }
    return json.dumps({**body, "judgement": judgement, **extra}) + "\n"


def write_case(folder: Path, rows: list[Row]) -> Path:
    """A rubric, a log with what the rows know of the conversations, and the scored file."""
    (folder / "team.yaml").write_text(TEXT, encoding="utf-8")
    logs = [
        {
            "id": r.key[2],
            "task_id": r.task,
            "messages": [
                {"role": "user", "content": "hello"},
                {"role": "assistant", "content": " ".join(["word"] * int(r.length or 1))},
            ],
            "outcome": {"score": r.outcome},
            "metadata": {"policy_version": f"v{r.version:g}"},
        }
        for r in rows
    ]
    (folder / "log.jsonl").write_text("".join(json.dumps(x) + "\n" for x in logs), encoding="utf-8")
    scores = folder / "log.scored.jsonl"
    scores.write_text("".join(scored_line(r) for r in rows), encoding="utf-8")
    return scores


def test_the_command_writes_a_proposal_and_takes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = with_values(gamed(14), "th.c", {i: Scored(value=1.0) for i in range(600)})
    scores = write_case(tmp_path, rows)
    file, out = tmp_path / "team.yaml", tmp_path / "out"
    assert main(["rubric", "improve", str(file), "--scores", str(scores), "--out", str(out)]) == 0
    assert "th.c: dead" in capsys.readouterr().out
    assert file.read_text() == TEXT  # nothing is applied by itself
    assert sorted(p.name for p in out.iterdir()) == ["evidence.md", "proposal.diff", "proposal.yaml"]
    evidence = (out / "evidence.md").read_text()
    assert "th.h: exploited" in evidence
    assert "pair accuracy" in evidence
    words = ["rubric", "improve", str(file), "--accept", str(out / "proposal.yaml")]
    assert main([*words, "--only", "th.nope"]) == 2
    assert main([*words, "--only", "th.c"]) == 0
    assert {t.id for t in Rubric.load(file).theorems} == set(NAMES) - {"th.c"}
    assert main(words) == 2  # made for the file as it was


def test_lint_reports_what_the_scores_show(tmp_path: Path) -> None:
    rows = with_values(gamed(15), "th.c", {i: Scored(value=1.0) for i in range(600)})
    scores = write_case(tmp_path, rows)
    found = score_findings(Rubric.load(tmp_path / "team.yaml"), scores)
    assert {f.code for f in found} == {"W170", "W174"}
    line = TEXT.splitlines().index("  - id: th.c") + 1
    assert next(f for f in found if f.code == "W170").line == line


def test_rows_are_joined_with_transcripts_and_labels(tmp_path: Path) -> None:
    rows = clean(0, 3)
    scores = write_case(tmp_path, rows)
    labels = tmp_path / "human.jsonl"
    labels.write_text('{"id": "r1", "score": 0.75}\n', encoding="utf-8")
    got = read_rows([scores], labels).main
    assert [(r.length, r.outcome, r.version, r.task) for r in got] == [
        (r.length, r.outcome, r.version, r.task) for r in rows
    ]
    assert [r.label for r in got] == [None, 0.75, None]
    # the same rows again are repetitions; another judge is a second one
    again = tmp_path / "again.jsonl"
    again.write_text(scores.read_text() + scored_line(replace(rows[0], judge="j2")), encoding="utf-8")
    both = read_rows([scores, again])
    assert isinstance(both, Rows)
    assert (len(both.main), sum(map(len, both.repeats.values())), len(both.second)) == (3, 3, 1)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "s.jsonl:1: not JSON"),
        ("[]", "s.jsonl:1: an object is needed"),
        ('{"schema": "x"}', "schema 'x' is not 'axiomrm/score-1'"),
        ('{"schema": "axiomrm/score-1"}', "'judgement' is missing"),
        (
            '{"schema": "axiomrm/score-1", "judgement": {"verdicts": {"a": {"status": "odd"}}}}',
            "verdicts cannot be read",
        ),
    ],
)
def test_a_bad_scored_row_is_named(line: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_rows([path])


def test_a_library_rubric_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.yaml").write_text("schema: atr-proposal/1\n", encoding="utf-8")
    assert main(["rubric", "improve", "general_quality", "--accept", str(tmp_path / "p.yaml")]) == 2
    assert "is a rubric of the library" in capsys.readouterr().err


def test_rows_of_another_version_of_the_rubric_are_counted() -> None:
    rows = [replace(r, rubric_hash="0" * 64 if i < 7 else rubric().hash) for i, r in enumerate(clean(0, 200))]
    evidence = improve(rubric(), sort_rows(rows)).evidence
    assert "7 of them were scored with another wording or weighting" in evidence


def test_a_bad_label_or_proposal_is_named(tmp_path: Path) -> None:
    scores = write_case(tmp_path, clean(0, 2))
    labels = tmp_path / "human.jsonl"
    labels.write_text('{"id": "r1", "score": "high"}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"human.jsonl:1: a label is"):
        read_rows([scores], labels)
    with pytest.raises(DataError, match="not a proposal of improve: rubric"):
        read_proposal("schema: atr-proposal/1", "p.yaml")
    assert main(["rubric", "improve", str(tmp_path / "team.yaml")]) == 2


def planted(code: str, name: str) -> list[Row]:
    """Clean rows but for one fault of ``name``."""
    rng = random.Random(f"{code} {name}")
    if code == "W174":
        rows = [replace(r, version=float(i % 6)) for i, r in enumerate(clean(21, 600))]
        rising = {
            i: Scored(value=float(rng.random() < 0.2 + 0.12 * (r.version or 0))) for i, r in enumerate(rows)
        }
        return with_values(rows, name, rising)
    rows = clean(22, 600, repeats=code == "W172")
    values: dict[int, Verdict | None] = {
        i: {
            "W170": Scored(value=1.0),
            "W171": Scored(value=value(r, "th.b") if rng.random() < 0.98 else 0.5),
            "W172": Scored(value=float(rng.random() < 0.5)) if i % 2 else r.verdicts[name],
            "W173": Scored(value=float((r.length or 0) + rng.gauss(0, 40) > 110)),
        }[code]
        for i, r in enumerate(rows)
    }
    return with_values(rows, name, values)


@pytest.mark.parametrize("name", ["th.d", "th.g"])
@pytest.mark.parametrize("code", ["W170", "W171", "W172", "W173", "W174"])
def test_lint_names_the_line_of_a_fault_in_the_scores(code: str, name: str, tmp_path: Path) -> None:
    scores = write_case(tmp_path, planted(code, name))
    faults = score_findings(Rubric.load(tmp_path / "team.yaml"), scores)
    assert {f.code for f in faults} == {code}
    lines = TEXT.splitlines()
    named = {lines.index(f"  - id: {n}") + 1 for n in ((name, "th.b") if code == "W171" else (name,))}
    assert {f.line for f in faults} <= named
