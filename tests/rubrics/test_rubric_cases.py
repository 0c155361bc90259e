"""Cases from public bug reports, areas rubric-yaml and aggregation: one adapter an area."""

import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.errors import RubricError
from axiomrm.rubrics import Rubric, aggregate, compare_orders
from axiomrm.rubrics.findings import Finding

_HERE = Path(__file__).resolve()
_PLACES = (
    _HERE.parents[1] / "cases" / "dev_cases.jsonl",
    _HERE.parents[3] / "shared" / "cases" / "dev_cases.jsonl",
)


def _cases(area: str) -> list[Any]:
    path = next((p for p in _PLACES if p.is_file()), None)
    if path is None:
        return []
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [pytest.param(r, id=r["id"]) for r in rows if r["area"] == area]


def _text(case: dict[str, Any]) -> str:
    parts = case["input"].get("yaml_parts", [case["input"].get("yaml")])
    return "".join(p if isinstance(p, str) else p["repeat"] * p["times"] for p in parts)


def _load(case: dict[str, Any]) -> Rubric | RubricError:
    try:
        return Rubric.loads(_text(case), case["input"]["file_name"])
    except RubricError as error:
        return error


CHECKS: dict[str, Callable[[Rubric, str], bool]] = {
    "languages == ['en', 'no']": lambda r, text: list(r.file.rubric.languages) == ["en", "no"],
    "weight == 0.1": lambda r, text: r.theorems[0].weight == 0.1,
    "same rubric.hash as without the mark": lambda r, text: (
        r.hash == Rubric.loads(text.lstrip("\ufeff"), "demo.yaml").hash
    ),
    "same rubric.hash as with LF": lambda r, text: (
        r.hash == Rubric.loads(text.replace("\r\n", "\n"), "demo.yaml").hash
    ),
}


def _right(expect: dict[str, Any], got: Rubric | RubricError, text: str) -> bool:
    if expect["result"] == "ok":
        return (
            isinstance(got, Rubric) and CHECKS[expect["check"]](got, text)
            if "check" in expect
            else isinstance(got, Rubric)
        )
    if not isinstance(got, RubricError):
        return False
    codes = expect.get("code_any", [expect.get("code")])
    found = [f for f in got.findings if isinstance(f, Finding) and f.code in codes]
    lines = expect.get("line_any", [expect["line"]] if "line" in expect else None)
    found = [f for f in found if lines is None or f.line in lines]
    return bool(found) and all(word in str(got) for word in expect.get("says", []))


@pytest.mark.parametrize("case", _cases("rubric-yaml"))
def test_a_yaml_case_comes_out_right(case: dict[str, Any]) -> None:
    expect = case["expect"]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    got = _load(case)
    assert time.process_time() - start < expect.get("seconds_at_most", 5)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    assert grown / 1024 < expect.get("memory_mib_at_most", 200)
    options = expect.get("any_of", [expect])
    assert any(_right(option, got, _text(case)) for option in options), str(got)


def _yaml_of(case: dict[str, Any]) -> str:
    """A rubric with the case's items, as JSON (which is YAML)."""
    axioms: list[dict[str, Any]] = [{"id": "ax.base", "statement": "Serves the user.", "type": "premise"}]
    for axiom in case["axioms"]:
        row = {"id": axiom["id"].replace("ax.", "ax.n"), "statement": "Complies.", "type": axiom["type"]}
        row.update({k: axiom[k] for k in ("cap", "on_cannot_assess") if k in axiom})
        axioms.append(row)
    theorems = [
        {
            "id": f"th.{i['id']}",
            "derived_from": ["ax.base"],
            "derivation": "given",
            "statement": f"Statement {i['id']}.",
            **{k: i[k] for k in ("polarity", "weight", "on_cannot_assess")},
        }
        for i in case["items"]
    ]
    policy = {"scale": case["scale"], "min_coverage": case["min_coverage"]}
    header = {"id": "case", "version": "1.0.0"}
    body = {"schema": "atr/1", "rubric": header, "axioms": axioms, "theorems": theorems, "policy": policy}
    return json.dumps(body)


def _verdict(raw: Any) -> Scored | CannotAssess | Failed:
    if raw == "cannot_assess":
        return CannotAssess(reason="given")
    return Scored(value=raw["scored"]) if "scored" in raw else Failed(kind=raw["failed"])


def _near(got: Any, want: Any, tol: float) -> bool:
    if want is None or got is None:
        return got is None and want is None
    if isinstance(want, list):
        return all(_near(g, w, tol) for g, w in zip(got, want, strict=True))
    return bool(abs(got - want) <= tol)


@pytest.mark.parametrize(
    "case", [c for c in _cases("aggregation") if c.values[0]["input"]["kind"] == "aggregate"]
)
def test_an_aggregation_case_comes_out_right(case: dict[str, Any]) -> None:
    given, expect = case["input"], case["expect"]
    active = Rubric.loads(_yaml_of(given), "case.json").bind({})
    verdicts = {f"th.{i['id']}": _verdict(i["verdict"]) for i in given["items"]}
    verdicts |= {a["id"].replace("ax.", "ax.n"): _verdict(a["verdict"]) for a in given["axioms"]}
    got = aggregate(active, verdicts)
    for field in ("reward", "interval", "coverage", "gate"):
        if field in expect:
            assert _near(getattr(got, field), expect[field], expect.get("tol", 0)), (
                field,
                getattr(got, field),
            )
    assert all(word in got.reason for word in expect.get("reason_mentions", []))
    assert expect.get("serving_gate") != "blocks" or not got.passes_gate
    assert (got.reward is None) == bool(got.reason)


@pytest.mark.parametrize(
    "case", [c for c in _cases("aggregation") if c.values[0]["input"]["kind"] == "compare"]
)
def test_a_comparison_case_comes_out_right(case: dict[str, Any]) -> None:
    first, second = case["input"]["first_call"], case["input"]["second_call"]
    got = compare_orders(
        (tuple(first["order"]), first["answer"]),
        (tuple(second["order"]), second["answer"]),
    )
    assert (got.winner, got.consistent) == (case["expect"]["winner"], case["expect"]["consistent"])


def test_the_cases_are_there() -> None:
    if not any(p.is_file() for p in _PLACES):
        pytest.skip("no dev_cases.jsonl in tests/cases or ../shared/cases")
    assert len(_cases("rubric-yaml")) >= 26
    assert len(_cases("aggregation")) >= 13
