"""Unquoted ``no``, ``on`` …: text or truth value, as the feature that they are the default of says."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from axiomrm.rubrics.findings import Finding, Path
from axiomrm.rubrics.yaml_nodes import WORDS, Node


def placed(root: Node, found: Sequence[Finding]) -> tuple[Finding, ...]:
    """The reader's findings with their paths, and with the remedy that the feature's type takes.

    Args:
        root: of the document.
        found: by `Reader`, which knows lines and columns only.
    """
    paths = dict(_values(root, ())) if found else {}
    return tuple(_for_type(root, replace(f, path=paths.get((f.line, f.col), f.path))) for f in found)


def _values(node: Node, path: Path) -> Iterator[tuple[tuple[int, int], Path]]:
    if isinstance(node.value, dict | list):
        entries = node.value.items() if isinstance(node.value, dict) else enumerate(node.value)
        for step, inner in entries:
            yield from _values(inner, (*path, step))
    else:
        yield (node.line, node.col), path


def _for_type(root: Node, finding: Finding) -> Finding:
    if len(finding.path) != 3 or finding.path[0] not in ("features", "turn_features") or not finding.fix:
        return finding
    spec = root.value[finding.path[0]].value[finding.path[1]].value
    kind = spec["type"].value if isinstance(spec, dict) and "type" in spec else None
    if finding.path[2] != "default" or kind not in ("bool", "int"):
        return finding
    value = WORDS.get(spec["default"].text.lower()) if kind == "bool" else None
    hint = (
        f"the feature is a truth value: write {value}" if value else f"a feature of type {kind} takes no text"
    )
    return replace(finding, fix=value, hint=hint)
