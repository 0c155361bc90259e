"""YAML or JSON text → ``RubricFile`` with source positions; every fault of the shape is an E100 finding."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any

from pydantic import BaseModel, ValidationError

from axiomrm.rubrics.findings import Finding, Path
from axiomrm.rubrics.json_nodes import read_nodes
from axiomrm.rubrics.model import (
    Allow,
    Anchor,
    Axiom,
    Case,
    Change,
    ConstraintJudge,
    Defaults,
    EvidenceSpec,
    Facet,
    Feature,
    Header,
    LlmJudge,
    Param,
    Policy,
    ProgrammaticJudge,
    RubricFile,
    Scale,
    Source,
    Template,
    Theorem,
    TurnFeature,
)
from axiomrm.rubrics.near import near
from axiomrm.rubrics.yaml_nodes import Node, ReadError, decode
from axiomrm.rubrics.yaml_truth import placed

_CHILDREN: dict[str, type[BaseModel]] = {
    "rubric": Header,
    "features": Feature,
    "turn_features": TurnFeature,
    "facets": Facet,
    "defaults": Defaults,
    "axioms": Axiom,
    "theorems": Theorem,
    "personal_templates": Template,
    "policy": Policy,
    "changelog": Change,
    "evidence": EvidenceSpec,
    "scale": Scale,
    "anchors": Anchor,
    "cases": Case,
    "sources": Source,
    "lint_allow": Allow,
    "params": Param,
}
_JUDGES: dict[str, type[BaseModel]] = {
    "llm": LlmJudge,
    "programmatic": ProgrammaticJudge,
    "constraint": ConstraintJudge,
}


@dataclass(frozen=True)
class Document:
    """One file as read."""

    file: str
    """Name for messages."""
    text: str
    root: Node | None = None
    model: RubricFile | None = None
    """``None`` if the shape is wrong."""
    findings: tuple[Finding, ...] = ()

    def at(self, path: Path, *, key: bool = False) -> tuple[int, int, int]:
        """Line, column and length of the deepest node on ``path`` (of its key, if ``key``)."""
        node, parents = self.root, 0
        if node is None:
            return (0, 0, 1)
        for step in path:
            inner = _child(node, step)
            if inner is not None:
                node, parents = inner, parents + 1
        if key and node.key_line:
            return (node.key_line, node.key_col, len(str(path[-1])) if path else 1)
        if isinstance(node.value, dict | list) and node.key_line and node.line != node.key_line:
            return (node.key_line, node.key_col, len(str(path[-1])) if path else 1)
        return (node.line, node.col, node.length)

    def node(self, path: Path) -> Node | None:
        """The node at exactly ``path``."""
        node = self.root
        for step in path:
            node = _child(node, step) if node is not None else None
        return node

    def finding(self, code: str, message: str, path: Path, hint: str = "", *, key: bool = False) -> Finding:
        """A finding at the node of ``path``."""
        line, col, length = self.at(path, key=key)
        return Finding(code, message, self.file, line, col, length, hint, path)


def _child(node: Node, step: str | int) -> Node | None:
    if isinstance(node.value, dict) and isinstance(step, str):
        inner: Node | None = node.value.get(step)
        return inner
    if isinstance(node.value, list) and isinstance(step, int) and step < len(node.value):
        found: Node = node.value[step]
        return found
    return None


def read_bytes(raw: bytes, file: str) -> Document:
    """Read one rubric; faults come back as findings, never as exceptions."""
    try:
        text = decode(raw, file)
    except ReadError as error:
        return Document(file, "", findings=(error.finding,))
    return read_text(text, file)


def read_text(text: str, file: str) -> Document:
    """As ``read_bytes``, for text already decoded."""
    raw = text.encode("utf-8", "surrogatepass")
    try:
        text = decode(raw, file)
        root, found = read_nodes(text, file)
    except ReadError as error:
        return Document(file, text, findings=(error.finding,))
    if root is None or not isinstance(root.value, dict):
        finding = Finding("E100", "a rubric is a mapping with 'schema' and 'rubric'", file, 1, 1)
        return Document(file, text, root, findings=(finding, *found))
    return _validate(Document(file, text, root), tuple(found))


def _validate(document: Document, found: tuple[Finding, ...]) -> Document:
    root = document.root
    tree = plain(root)
    found = placed(root, found) if root is not None else found
    try:
        model = RubricFile.parse(tree)
    except ValidationError as error:
        shape = tuple(
            _shape(document, entry) for entry in error.errors(include_url=False, include_context=False)
        )
        trapped = {(f.line, f.col) for f in found}
        rest = tuple(f for f in shape if (f.line, f.col) not in trapped)
        return Document(document.file, document.text, root, None, _one_place_each(found + rest))
    return Document(document.file, document.text, root, model, found)


def _one_place_each(found: Sequence[Finding]) -> tuple[Finding, ...]:
    """Without the remedies of keys of which two would take one place."""
    taken: Counter[tuple[Path, str | None]] = Counter(
        (f.path[:-1], f.fix) for f in found if f.fix is not None
    )
    return tuple(replace(f, fix=None) if taken[f.path[:-1], f.fix] > 1 and _is_key(f) else f for f in found)


def _is_key(finding: Finding) -> bool:
    return finding.message.startswith("unknown field")


def plain(node: Node | None) -> Any:
    """JSON-like values of a node."""
    if node is None:
        return None
    if isinstance(node.value, dict):
        return {k: plain(v) for k, v in node.value.items()}
    if isinstance(node.value, list):
        return [plain(v) for v in node.value]
    return node.value


def _shape(document: Document, entry: Any) -> Finding:
    path: Path = tuple(entry["loc"])
    field = str(path[-1]) if path else ""
    if entry["type"] == "extra_forbidden":
        return _unknown(document, path, near(field, _fields(document, path[:-1])))
    if entry["type"] == "union_tag_not_found":
        keys = [key for key in _keys(document, path) if near(key, ["kind"])]
        if len(keys) == 1:
            return _unknown(document, (*path, keys[0]), "kind")
    if entry["type"] == "missing":
        return document.finding("E100", f"field {field!r} is missing", path[:-1])
    node = document.node(_real(document, path))
    value = plain(node)
    message = f"{_dotted(_real(document, path))}: {_expected(entry)}, found {_short(value)}"
    if path == ("rubric", "version"):
        return document.finding("E100", message, path, 'a version has three numbers, in quotes: "1.0.0"')
    finding = document.finding("E100", message, path, _quote_hint(entry["type"], value, node))
    quotable = (
        entry["type"] == "string_type" and node is not None and not isinstance(value, dict | list | NoneType)
    )
    return replace(finding, fix=f'"{node.text}"') if quotable and node is not None else finding


def _keys(document: Document, path: Path) -> list[str]:
    node = document.node(_real(document, path))
    return list(node.value) if node is not None and isinstance(node.value, dict) else []


def _unknown(document: Document, path: Path, close: str | None) -> Finding:
    hint = f"did you mean {close!r}?" if close else ""
    message = f"unknown field {str(path[-1])!r}" + (f"; {hint}" if hint else "")
    finding = document.finding("E100", message, path, key=True)
    free = document.node((*_real(document, path[:-1]), str(close))) is None
    return replace(finding, fix=close) if close and free else finding


def _real(document: Document, path: Path) -> Path:
    """``path`` without the union tags that pydantic puts into it."""
    out: list[str | int] = []
    node = document.root
    for step in path:
        inner = _child(node, step) if node is not None else None
        if inner is not None:
            node = inner
            out.append(step)
    return tuple(out)


def _dotted(path: Path) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".") or "rubric file"


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return repr(value)[:60]


def _expected(entry: Any) -> str:
    kinds = {
        "string_type": "a text is needed",
        "float_type": "a number is needed",
        "int_type": "a whole number is needed",
        "bool_type": "true or false is needed",
        "tuple_type": "a list is needed",
        "dict_type": "a mapping is needed",
        "model_type": "a mapping is needed",
        "model_attributes_type": "a mapping is needed",
        "union_tag_not_found": "a mapping with 'kind' is needed",
    }
    return kinds.get(entry["type"], str(entry["msg"]))


def _quote_hint(kind: str, value: Any, node: Node | None) -> str:
    if kind == "string_type" and isinstance(value, dict):
        return "quote a text that starts with a brace"
    if kind == "string_type" and node is not None and not isinstance(value, list):
        return f'quote it: "{node.text}"'
    if kind in ("float_type", "int_type") and isinstance(value, str):
        return "write the number without quotes"
    return ""


def _fields(document: Document, path: Path) -> list[str]:
    """Field names that are legal at ``path``, for did-you-mean."""
    model: type[BaseModel] = RubricFile
    for step in path:
        if step in ("judge", "detector"):
            kind = plain(document.node((*_real(document, path), "kind")))
            return list(_JUDGES.get(str(kind), LlmJudge).model_fields)
        if isinstance(step, str) and step in _CHILDREN and _holds(model, step):
            model = _CHILDREN[step]
    return ["schema" if f == "schema_" else f for f in model.model_fields]


def _holds(model: type[BaseModel], step: str) -> bool:
    return step in model.model_fields
