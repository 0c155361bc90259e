"""JSON Schema of ``atr/1``, for editors; made from the models, with their docstrings as descriptions.

It says the shape and the bounds of single fields. What needs the whole document (names that exist,
conditions, conflicts) is said by ``axiomrm rubric lint``.
"""

import ast
import inspect
import json
from functools import cache
from pathlib import Path
from typing import Any

from axiomrm.rubrics import model
from axiomrm.rubrics.judges import JUDGES
from axiomrm.rubrics.lint_ids import ITEM_ID, RUBRIC_ID
from axiomrm.rubrics.model import RubricFile
from axiomrm.rubrics.probes import PROBES

SCHEMA_FILE = Path(__file__).resolve().parent / "schema" / "atr-1.json"
_ITEMS = ("Axiom", "Theorem", "Template")
_SHARED = {
    "id": "Lower case, parts joined by dots: `th.concise`; unique, also across imports.",
    "statement": "One question's worth of text; the judge reads it with its anchors and cases.",
    "derived_from": "Ids of the axioms or theorems that this one follows from.",
    "applies_when": "Condition over features (and turn features); decided before any reply exists.",
    "requires": "The statement's formal side: a condition over facets, for proofs and constraints.",
    "weight": "Greater than 0; a fault has `polarity: penalty` instead of a negative weight.",
    "polarity": "`penalty`: the statement describes a fault, value 1 = fully present.",
    "evidence": "What the item is judged on: the whole conversation, or each turn.",
    "judge": "Who gives the verdict.",
    "detector": "Who says whether the axiom is broken; a language model takes an odd number of votes.",
    "scale": "Values that a verdict can take.",
    "beats": "Theorems that this one defeats where both apply and cannot both hold.",
    "status": "Only `active` items score and enter the hash.",
    "cases": "Short good and bad examples.",
    "sources": "Where the item comes from; not hashed.",
    "tags": "For grouping; not hashed.",
    "lint_allow": "Warnings that are silenced here, each with a reason.",
    "inverse": "Wording of the fault's absence, for formats without penalties.",
    "specialises": "The theorem that this template makes personal.",
    "reads": "Profile slots that may be looked at, nothing else is visible.",
    "params": "Parameters of the statement and the conditions, each from one slot.",
    "dimension": "What the preference is about: form, content or value.",
    "max_weight": "Upper bound of the weight.",
    "on_cannot_assess": "`worst`: counts as the worst value; `skip`: is left out.",
    "type": "What kind it is.",
    "values": "The values of an enum.",
    "range": "Smallest and largest value.",
    "args": "Arguments of the probe or the function.",
    "fn": "A programmatic judge.",
    "kind": "Which kind it is.",
    "mode": "A written critique before the verdict, or the verdict alone, where the caller sets no mode; "
    "`none`: the caller decides (`direct` if nothing is set).",
    "title": "For people; not hashed.",
    "license": "Not hashed.",
    "languages": "Languages that the wording is made for.",
    "text": "What a reply of this value looks like.",
    "value": "In [0, 1], rising from 0 to 1 over the anchors.",
    "good": "A reply that fulfils the statement (a penalty: without the fault).",
    "bad": "A reply that does not.",
    "level": "Judged once a conversation, or at each turn where it applies.",
    "slot": "Name of the profile slot.",
    "features": "Facts of the task, known before any reply exists.",
    "turn_features": "Facts of the dialogue before the judged message, filled by a probe.",
    "facets": "Measurable properties of the judged text.",
    "defaults": "Values for the fields of all theorems and templates that do not set them.",
    "axioms": "What is not negotiable: gates, caps and premises.",
    "theorems": "What earns or costs points, each derived from an axiom.",
    "personal_templates": "Theorems with parameters from a profile, inside a fixed budget.",
    "policy": "How verdicts become a reward.",
    "changelog": "Not hashed.",
    "rubric": "Who this rubric is.",
    "schema": "The version of this format.",
    "min_coverage": "Smallest share of the applicable weight that must have a verdict, else no reward.",
    "turn_min_coverage": "Smallest share of the turns that must have a verdict for a turn item to count.",
    "code": "Of the warning.",
    "why": "The reason, for the next reader.",
    "ref": "Title, URL or id.",
    "note": "For people.",
    "date": "ISO date, quoted.",
    "version": "Of the rubric.",
}
"""What fields of one name mean in every class that says nothing of its own."""


@cache
def field_docs() -> dict[str, dict[str, str]]:
    """Class → field → the docstring below it; the class's own under the empty name."""
    out: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(model)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        own = out.setdefault(node.name, {"": ast.get_docstring(node) or ""})
        for field, below in zip(node.body, node.body[1:], strict=False):
            named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            if named and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                own[field.target.id] = inspect.cleandoc(str(below.value.value))  # type: ignore[attr-defined]
    return out


def json_schema() -> dict[str, Any]:
    """The schema as plain values."""
    schema = RubricFile.model_json_schema(by_alias=True, mode="validation")
    classes: dict[str, Any] = {**schema["$defs"], "RubricFile": schema}
    for name, docs in field_docs().items():
        properties = classes.get(name, {}).get("properties", {})
        for field in properties:
            text = docs.get(field) or _SHARED.get(field, "")
            if text:
                properties[field]["description"] = text.replace("``", "`")
    for name in _ITEMS:
        properties = classes[name]["properties"]
        properties["id"]["pattern"] = f"^{ITEM_ID.pattern}$"
        if "weight" in properties:
            properties["weight"]["exclusiveMinimum"] = 0
    classes["Header"]["properties"]["id"]["pattern"] = f"^{RUBRIC_ID.pattern}$"
    classes["ProgrammaticJudge"]["properties"]["fn"]["enum"] = sorted(JUDGES)
    for name, scope in (("TurnFeature", "prefix"), ("Facet", "reply")):
        known = sorted(k for k, probe in PROBES.items() if probe.scope == scope)
        probe = classes[name]["properties"]["probe"]
        for place in [option for option in probe.get("anyOf", [probe]) if option.get("type") == "string"]:
            place["enum"] = known
    schema["required"] = ["schema", *schema["required"]]
    schema["properties"]["schema"].pop("default", None)
    schema["title"] = "axiomrm rubric, atr/1"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_untitled(schema)}


def _untitled(value: Any, inside: str = "") -> Any:
    """Without the titles that only repeat the names of fields and classes."""
    if isinstance(value, list):
        return [_untitled(v) for v in value]
    if not isinstance(value, dict):
        return value
    named = inside in ("properties", "$defs")
    return {
        k: _untitled(v, k)
        for k, v in value.items()
        if named or k != "title" or not isinstance(v, str) or v.startswith("axiomrm ")
    }


def schema_text() -> str:
    """The content of ``schema/atr-1.json``."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
