"""Edits of a rubric's file: applied to its tree, then to its text line by line, so that comments stay.

The edited text is read back; if it does not say exactly what the edited tree says, the whole file is
written anew.
"""

import copy
import json
import re
from collections.abc import Sequence
from typing import Any

from axiomrm.errors import DataError
from axiomrm.rubrics.model import RubricFile
from axiomrm.rubrics.read import Document, read_text
from axiomrm.rubrics.yaml_write import to_yaml

Edit = dict[str, Any]
"""``{id, set: {field: value}}``, ``{add: theorem}``, ``{version: text}`` or ``{change: changelog row}``."""


def edited_tree(tree: dict[str, Any], edits: Sequence[Edit]) -> dict[str, Any]:
    """The document's plain values with the edits applied.

    Raises:
        DataError: an edit names a theorem that is not there, or has no known form.
    """
    out = copy.deepcopy(tree)
    theorems = out.setdefault("theorems", [])
    for edit in edits:
        if "set" in edit:
            found = [t for t in theorems if t.get("id") == edit.get("id")]
            if not found or not isinstance(edit["set"], dict):
                raise DataError(f"edit of {edit.get('id')!r}: no such theorem in this file")
            found[0].update(edit["set"])
        elif "add" in edit:
            theorems.append(copy.deepcopy(edit["add"]))
        elif "version" in edit:
            out["rubric"]["version"] = edit["version"]
        elif "change" in edit:
            out.setdefault("changelog", []).append(dict(edit["change"]))
        else:
            raise DataError(f"edit {edit!r} is none of set, add, version, change")
    return out


def edited_text(document: Document, edits: Sequence[Edit]) -> str:
    """The file's text with the edits applied.

    Raises:
        DataError: as ``edited_tree``.
    """
    assert document.model is not None
    wanted = RubricFile.parse(edited_tree(document.model.plain(), edits))
    text = document.text
    for edit in edits:
        current = read_text(text, document.file)
        changed = _apply(current, edit) if current.root is not None else None
        if changed is None:
            return _whole(wanted, document.file)
        text = changed
    return text if read_text(text, document.file).model == wanted else _whole(wanted, document.file)


def _whole(model: RubricFile, file: str) -> str:
    if file.endswith(".json"):
        return json.dumps(model.plain(), indent=2, ensure_ascii=False) + "\n"
    return to_yaml(model.plain())


def _apply(document: Document, edit: Edit) -> str | None:
    if document.file.endswith(".json"):
        return None
    if "version" in edit:
        return _replace(document, ("rubric", "version"), edit["version"])
    if "change" in edit:
        return _append(document, "changelog", edit["change"])
    if "add" in edit:
        return _append(document, "theorems", edit["add"])
    text: str | None = document.text
    for field, value in edit["set"].items():
        current = read_text(text or "", document.file)
        text = _set(current, edit["id"], field, value)
        if text is None:
            return None
    return text


def _set(document: Document, name: str, field: str, value: Any) -> str | None:
    if document.model is None:
        return None
    index = next((i for i, t in enumerate(document.model.theorems) if t.id == name), None)
    if index is None:
        return None
    path = ("theorems", index)
    if document.node((*path, field)) is not None:
        return _replace(document, (*path, field), value)
    node = document.node((*path, "id"))
    if node is None:
        return None
    rows = document.text.splitlines(keepends=True)
    row = rows[node.line - 1]
    end = node.col - 1 + node.length
    written = f"{field}: {_scalar(value)}"
    if re.match(r"\s*[,}]", row[end:]):
        rows[node.line - 1] = f"{row[:end]}, {written}{row[end:]}"
    else:
        rows.insert(node.line, f"{' ' * (node.key_col - 1)}{written}\n")
    return "".join(rows)


def _replace(document: Document, path: tuple[str | int, ...], value: Any) -> str | None:
    node = document.node(path)
    if node is None or isinstance(node.value, dict | list):
        return None
    rows = document.text.splitlines(keepends=True)
    row = rows[node.line - 1]
    start = node.col - 1
    rows[node.line - 1] = row[:start] + _scalar(value) + row[start + node.length :]
    return "".join(rows)


def _scalar(value: Any) -> str:
    return to_yaml([value]).removeprefix("- ").strip()


def _append(document: Document, section: str, value: Any) -> str | None:
    """A new last element of a block list; its indentation is that of the first one."""
    node = document.node((section,))
    first = document.node((section, 0))
    if node is None or first is None or node.key_line < 1:
        return None
    rows = document.text.splitlines(keepends=True)
    head = rows[first.line - 1]
    if not head.lstrip().startswith("-"):
        return None
    indent = head[: len(head) - len(head.lstrip())]
    end = next((i for i in range(node.key_line, len(rows)) if re.match(r"[^\s#-]", rows[i])), len(rows))
    while end > 0 and (not rows[end - 1].strip() or rows[end - 1].startswith("#")):
        end -= 1
    if not rows[end - 1].endswith("\n"):
        rows[end - 1] += "\n"
    added = [f"{indent}{line}\n" if line else "\n" for line in to_yaml([value]).rstrip("\n").split("\n")]
    return "".join([*rows[:end], *added, *rows[end:]])
