"""Canonical form and hashes: equal for files that mean the same, different for any change of meaning.

Canonical: JSON, UTF-8, sorted keys, NFC strings, numbers as shortest decimal strings, items sorted by id,
fields equal to their schema default left out, active items only, conditions re-printed from their tree.
Left out are the version, title, license, imports (their items stand in the form themselves), derivation,
sources, tags, changelog and lint_allow: none of them changes a verdict or a reward.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from axiomrm.rubrics.expr import ExprError, names_of, parse
from axiomrm.rubrics.expr_text import decimal_text, unparse
from axiomrm.rubrics.model import Axiom, Facet, Template, Theorem
from axiomrm.rubrics.text_form import nfc

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric

_UNHASHED = {"derivation", "sources", "tags", "lint_allow", "status"}
_SETS = {"derived_from", "beats", "reads"}
_CONDITIONS = {"applies_when", "requires"}


def canonical_item(item: Axiom | Theorem | Template) -> dict[str, Any]:
    """The part of an item that verdicts and rewards depend on."""
    default = type(item).model_fields
    out: dict[str, Any] = {}
    for name in default:
        value = getattr(item, name)
        if name in _UNHASHED or value == default[name].default:
            continue
        if name in _SETS:
            value = sorted(value)
        if name in _CONDITIONS and isinstance(value, str):
            value = canonical_condition(value)
        out[name] = value
    return out


def canonical_condition(text: str) -> str:
    """The condition without accidents of spelling; one that does not parse keeps its words."""
    try:
        return unparse(parse(text))
    except ExprError:
        return re.sub(r"\s+", " ", text).strip()


def condition_names(text: str) -> frozenset[str]:
    """Names that a condition mentions; none if it does not parse."""
    try:
        return names_of(parse(text))
    except ExprError:
        return frozenset()


def canonical_form(rubric: "Rubric") -> dict[str, Any]:
    """What the rubric hash is taken over."""
    items: dict[str, tuple[Axiom | Theorem | Template, ...]] = {
        "axioms": rubric.axioms,
        "theorems": rubric.theorems,
        "personal_templates": rubric.templates,
    }
    form: dict[str, Any] = {"schema": "atr/1", "id": rubric.id}
    if rubric.file.rubric.languages:
        form["languages"] = sorted(rubric.file.rubric.languages)
    if rubric.guidelines:
        form["guidelines"] = rubric.guidelines
    for name, table in (
        ("features", rubric.features),
        ("turn_features", rubric.turn_features),
        ("facets", rubric.facets),
    ):
        if table:
            form[name] = {k: _without_defaults(v) for k, v in table.items()}
    for name, group in items.items():
        if group:
            form[name] = [canonical_item(i) for i in sorted(group, key=lambda i: i.id)]
    policy = _without_defaults(rubric.policy)
    if policy:
        form["policy"] = policy
    return form


def _without_defaults(model: BaseModel) -> dict[str, Any]:
    return model.model_dump(mode="python", exclude_defaults=True)


def canonical_text(value: Any) -> str:
    """Canonical JSON of plain values or models."""
    return json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _canonical(value: Any) -> Any:
    if isinstance(value, BaseModel):
        # A nested object says its kind even where that is the default, so that no two kinds can meet.
        kind = {"kind": value.kind} if hasattr(value, "kind") else {}
        return _canonical({**_without_defaults(value), **kind})
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float | Decimal):
        return decimal_text(Decimal(str(value)))
    if isinstance(value, str):
        return nfc(value)
    if isinstance(value, Mapping):
        return {nfc(str(k)): _canonical(v) for k, v in value.items()}
    return [_canonical(v) for v in value]


def digest(value: Any) -> str:
    """SHA-256 (hex) of the canonical JSON."""
    return hashlib.sha256(canonical_text(value).encode("utf-8", "surrogatepass")).hexdigest()


def rubric_hash(rubric: "Rubric") -> str:
    """The rubric's content address."""
    return digest(canonical_form(rubric))


def item_hash(item: Axiom | Theorem | Template, facets: Mapping[str, Facet]) -> str:
    """Content address of one item, with the definitions of the facets that its ``requires`` names.

    Args:
        item: with the parameters filled in, if it is a template.
        facets: declared ones; without those that the item names, its verdicts could change unseen.
    """
    form = canonical_item(item)
    named = {
        name: facets[name] for name in sorted(condition_names(item.requires or "true")) if name in facets
    }
    if named:
        form["facets"] = {name: _without_defaults(spec) for name, spec in named.items()}
    return digest(form)
