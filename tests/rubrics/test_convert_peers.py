"""The original packages take our exports, and give our scores.

They are not dependencies of ours. ``make setup`` puts them, without their own dependencies, into
``.venv/peers``; ``AXIOMRM_PEERS`` names another folder. Only what loads and scores is run.
"""

import ast
import importlib
import importlib.util
import json
import os
import random
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.verdict import Scored
from axiomrm.rubrics import Rubric, aggregate
from axiomrm.rubrics.convert import export_rubric, import_rubrics

FOLDER = os.environ.get("AXIOMRM_PEERS", str(Path(sys.prefix) / "peers"))


def installed(package: str) -> Path:
    """Folder of a peer; skips where it is absent."""
    if FOLDER and (Path(FOLDER) / package).is_dir():
        return Path(FOLDER) / package
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        pytest.skip(f"{package} is not there: see the docstring of this file")
    return Path(spec.origin).parent


def parts(path: Path, names: set[str], given: dict[str, Any]) -> dict[str, Any]:
    """The named classes, functions and constants of a file, run without the imports of the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))

    def named(node: ast.stmt) -> bool:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            return node.name in names
        return isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id in names for t in node.targets
        )

    tree.body = [node for node in tree.body if named(node)]
    # A module of its own, in which pydantic can look up the names of annotations.
    module = types.ModuleType(f"peer_{path.stem}")
    module.__dict__.update(given)
    exec(compile(tree, str(path), "exec"), module.__dict__)
    assert names <= module.__dict__.keys()
    return module.__dict__


def rubric(*, penalties: bool, even: bool = True) -> Rubric:
    """Six criteria of different weight, scale and sign."""
    penalty = "polarity: penalty, " if penalties else ""
    middle = 0.5 if even else 0.4
    scale = (
        "{kind: ordinal, anchors: [{value: 0, text: none}, "
        f"{{value: {middle}, text: some}}, {{value: 1, text: all}}]}}"
    )
    rows = [
        "{statement: Says what it is., weight: 3}",
        f"{{statement: How much is there?, weight: 2.5, scale: {scale}}}",
        f"{{statement: Wastes words., {penalty}weight: 1}}",
        f"{{statement: How loud is it?, {penalty}weight: 0.5, scale: {scale}}}",
        "{statement: Ends., weight: 0.25}",
    ]
    items = "\n".join(
        f"  - {{id: q{i}, derived_from: [ax.imported], derivation: a step, {row[1:]}"
        for i, row in enumerate(rows)
    )
    return Rubric.loads(
        "schema: atr/1\nrubric: {id: peer, version: 1.0.0}\n"
        "axioms: [{id: ax.imported, statement: A premise., type: premise}]\n"
        f"theorems:\n{items}\n",
        "peer.yaml",
    )


def transcripts(found: Rubric, count: int = 30) -> list[dict[str, float]]:
    """Verdict sets, as three readers of thirty transcripts could have given them."""
    rng = random.Random(7)
    levels = {t.id: [a.value for a in t.scale.anchors] or [0.0, 1.0] for t in found.theorems}
    return [{name: rng.choice(values) for name, values in levels.items()} for _ in range(count)]


def ours(found: Rubric, values: dict[str, float]) -> float:
    reward = aggregate(found.bind({}), {k: Scored(value=v) for k, v in values.items()}).reward
    assert reward is not None
    return reward


def autorubric(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any, Any]:
    """Its rubric, scoring and types modules; the package itself would import model clients."""
    folder = installed("autorubric")
    for name, path in (("autorubric", folder), ("autorubric.graders", folder / "graders")):
        package = types.ModuleType(name)
        package.__path__ = [str(path)]
        monkeypatch.setitem(sys.modules, name, package)
    sys.modules["autorubric.graders"].Grader = importlib.import_module("autorubric.graders.base").Grader  # type: ignore[attr-defined]
    found = [importlib.import_module(f"autorubric.{m}") for m in ("rubric", "scoring", "types")]
    for name in [n for n in sys.modules if n.startswith("autorubric.")]:
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    return found[0], found[1], found[2]


def test_autorubric_loads_and_scores_our_export(monkeypatch: pytest.MonkeyPatch) -> None:
    loader, scoring, kinds = autorubric(monkeypatch)
    source = rubric(penalties=True, even=False)
    text, _ = export_rubric(source, "autorubric")
    criteria = loader.Rubric.from_yaml(text).rubric
    assert [c.weight for c in criteria] == [3, 2.5, -1, -0.5, 0.25]
    assert loader.Rubric.from_json(text).rubric == criteria
    for values in transcripts(source):
        reports = []
        for criterion, value in zip(criteria, values.values(), strict=True):
            fields = criterion.model_dump()
            if criterion.options:
                index = [o.value for o in criterion.options].index(value)
                label = criterion.options[index].label
                chosen = kinds.MultiChoiceVerdict(
                    selected_index=index, selected_label=label, value=value, na=False
                )
                reports.append(kinds.CriterionReport(**fields, multi_choice_verdict=chosen, reason=""))
            else:
                verdict = kinds.CriterionVerdict.MET if value else kinds.CriterionVerdict.UNMET
                reports.append(kinds.CriterionReport(**fields, verdict=verdict, reason=""))
        theirs = scoring.score_reports(reports, kinds.CannotAssessConfig())
        assert ours(source, values) == pytest.approx(theirs, abs=1e-12)


def test_verifiers_loads_and_scores_our_export(tmp_path: Path) -> None:
    import math
    import tomllib
    from typing import Annotated

    from pydantic import BaseModel, Field, TypeAdapter, field_validator

    given = {
        "BaseModel": BaseModel,
        "Field": Field,
        "TypeAdapter": TypeAdapter,
        "field_validator": field_validator,
        "Annotated": Annotated,
        "Path": Path,
        "json": json,
        "tomllib": tomllib,
        "math": math,
    }
    wanted = {
        "CriterionWeight",
        "Criterion",
        "CRITERIA_ADAPTER",
        "load_criteria",
        "normalize_choice",
        "CriterionVerdict",
        "score_verdicts",
    }
    found = parts(installed("verifiers") / "v1" / "judges" / "rubric.py", wanted, given)
    source = rubric(penalties=False)
    path = tmp_path / "rubric.json"
    path.write_text(export_rubric(source, "verifiers")[0], encoding="utf-8")
    criteria = found["load_criteria"](path)
    assert [c.name for c in criteria] == [t.id for t in source.theorems]
    total = sum(c.weight for c in criteria)
    for values in transcripts(source):
        verdicts = []
        for criterion in criteria:
            index = round(values[criterion.name] * (len(criterion.choices) - 1))
            answer = criterion.choices[index]
            verdicts.append(found["CriterionVerdict"](name=criterion.name, reason="", verdict=answer))
        scores = found["score_verdicts"](verdicts, criteria, "all")
        theirs = sum(c.weight * scores[c.name] for c in criteria) / total
        assert ours(source, values) == pytest.approx(theirs, abs=1e-12)


def test_deepeval_takes_our_metrics() -> None:
    from pydantic import BaseModel, field_validator

    names = {
        "Rubric",
        "validate_and_sort_rubrics",
        "validate_criteria_and_evaluation_steps",
        "get_score_range",
    }
    given = {n: getattr(__import__("typing"), n) for n in ("List", "Optional", "Tuple")}
    given |= {"BaseModel": BaseModel, "field_validator": field_validator}
    found = parts(installed("deepeval") / "metrics" / "g_eval" / "utils.py", names, given)
    source = rubric(penalties=False, even=False)
    for metric in json.loads(export_rubric(source, "geval")[0]):
        found["validate_criteria_and_evaluation_steps"](metric["criteria"], metric.get("evaluation_steps"))
        rows = found["validate_and_sort_rubrics"]([found["Rubric"](**row) for row in metric["rubric"]])
        low, high = found["get_score_range"](rows)
        assert (low, high) == (0, 10)
        # their score, rescaled by the span of the rubric, is our anchor's value
        theorem = next(t for t in source.theorems if t.id == metric["name"])
        anchors = [a.value for a in theorem.scale.anchors] or [0, 1]
        assert [(r.score_range[0] - low) / (high - low) for r in rows] == anchors


def test_prometheus_fills_its_template_with_our_export() -> None:
    path = installed("prometheus_eval") / "prompts.py"
    found = parts(path, {"SCORE_RUBRIC_TEMPLATE"}, {})
    levels = {f"score{k}_description": f"level {k}" for k in range(1, 6)}
    given = {"criteria": "Is it feasible?", **levels}
    model = import_rubrics(json.dumps(given), "prometheus", name="one", activate=True).rubrics[0].model
    text, report = export_rubric(Rubric.from_model(model), "prometheus")
    assert report.empty
    assert found["SCORE_RUBRIC_TEMPLATE"].format(**json.loads(text)).splitlines() == [
        "[Is it feasible?]",
        *(f"Score {k}: level {k}" for k in range(1, 6)),
    ]


@pytest.mark.skip(reason="promptfoo's loader is a Node program; its pip package only starts it")
def test_promptfoo_loads_our_export() -> None: ...
