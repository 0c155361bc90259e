"""What is wrong with a configuration, in words: place, key, what was found, what to write instead."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from axiomrm.config_file import OVERRIDE, Document, KeyPath


def fault_key(item: Mapping[str, Any]) -> tuple[Any, ...]:
    """What tells one finding of pydantic from another."""
    return (item["loc"], item["type"], item["msg"])


def describe(error: ValidationError, model: type[BaseModel], document: Document) -> str:
    """Every finding of ``error``: place, key, value found, what is accepted, nearest key."""
    return "; ".join(_finding(dict(item), model, document) for item in error.errors())


def _finding(item: dict[str, Any], model: type[BaseModel], document: Document) -> str:
    path = _written_path(item["loc"], document.values)
    dotted = ".".join(map(str, path)) or "configuration"
    place = document.place(path) if fault_key(item) in document.faults else _blamed(path, document)
    if item["type"] == "extra_forbidden":
        return f"{place}: unknown key {dotted!r}{_suggest(model, item['loc'], dotted)}"
    if item["type"] == "missing":
        full = ".".join(str(p) for p in item["loc"])
        return f"{place}: {full} is missing; it has no default"
    if item["type"] in _NO_SECTION:
        return f"{place}: {dotted}: {_section(_models_at(model, item['loc']), item)}"
    message = item["msg"].removeprefix("Value error, ")
    if item["type"] == "string_type" and isinstance(item["input"], int | float):
        message += "; put it in quotes"
    found = "" if isinstance(item["input"], dict | BaseModel) else f"found {item['input']!r}: "
    return f"{place}: {dotted}: {found}{message[:1].lower()}{message[1:]}"


_NO_SECTION = ("model_attributes_type", "model_type", "union_tag_not_found")
"""What pydantic says of a value where a section is wanted, and of a section that does not say its kind."""


def _section(models: Sequence[type[BaseModel]], item: Mapping[str, Any]) -> str:
    """What to write where one of ``models`` is wanted."""
    found, kinds = (
        item["input"],
        {m.model_fields["kind"].default: m for m in models if "kind" in m.model_fields},
    )
    listed = ", ".join(kinds)
    if item["type"] == "union_tag_not_found":
        return f"kind is missing; one of {listed}"
    if not kinds:
        keys = ", ".join(name for m in models for name in m.model_fields)
        return f"found {found!r}; write a section {{key: value}} with some of {keys}"
    if not isinstance(found, str):
        return f"found {found!r}; write {{kind: …}} with one of {listed}"
    if found in kinds:
        needed = [name for name, field in kinds[found].model_fields.items() if field.is_required()]
        return (
            f"{found!r} is a word; write {{kind: {', '.join([found, *(f'{name}: …' for name in needed)])}}}"
        )
    near = difflib.get_close_matches(found, kinds, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{found!r} is a word; write {{kind: …}} with one of {listed}{hint}"


def _blamed(path: KeyPath, document: Document) -> str:
    """Where ``path`` stands; what a file says is blamed only where no override changed what it means."""
    place = document.place(path)
    if place.startswith(OVERRIDE) or not path or not (changed := document.changed(path)):
        return place
    return f"{' and '.join(changed)} (section at {place})"


def _written_path(loc: Sequence[str | int], values: Any) -> KeyPath:
    """``loc`` without the union tags that pydantic puts between keys."""
    path: list[str | int] = []
    for part in loc:
        in_list = isinstance(values, list) and isinstance(part, int) and part < len(values)
        if in_list or (isinstance(values, dict) and part in values):
            values = values[part]
            path.append(part)
    return tuple(path)


def _suggest(model: type[BaseModel], loc: Sequence[str | int], written: str) -> str:
    models = _models_at(model, loc[:-1])
    key = str(loc[-1])
    accepted = sorted({name for m in models for name in m.model_fields})
    found = {".".join(path) for path in _all_paths(model) if path[-1] == key}
    elsewhere = [] if written in found else sorted(found)  # there already: the section is of another kind
    if elsewhere:
        return f"; it belongs at {' or '.join(elsewhere[:3])}"
    near = difflib.get_close_matches(key, accepted, n=1, cutoff=0.7)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; accepted: {', '.join(accepted)}"


def _models_at(model: type[BaseModel], loc: Sequence[str | int]) -> list[type[BaseModel]]:
    """The classes of which a value at ``loc`` may be."""
    models = [model]
    for part in loc:
        fields = [m.model_fields[str(part)].annotation for m in models if str(part) in m.model_fields]
        tagged = [m for m in models if "kind" in m.model_fields and m.model_fields["kind"].default == part]
        models = [inner for note in fields for inner in _models_in(note)] or tagged or models
    return models


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    """Every model class inside a union, ``Annotated``, ``dict`` or ``tuple``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models_in(inner)]


def _all_paths(
    model: type[BaseModel], prefix: tuple[str, ...] = (), above: tuple[type[BaseModel], ...] = ()
) -> Iterator[tuple[str, ...]]:
    for name, info in model.model_fields.items():
        yield (*prefix, name)
        for inner in _models_in(info.annotation):
            if inner not in (*above, model):  # a section may hold its own kind: a reward made of rewards
                yield from _all_paths(inner, (*prefix, name), (*above, model))
