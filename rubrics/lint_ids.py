"""E101–E104: names that exist, ids that are unique, derivations that reach an axiom."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from typing import TYPE_CHECKING

from axiomrm.rubrics.expr_check import nearest
from axiomrm.rubrics.findings import Finding, Path
from axiomrm.rubrics.judges import JUDGES
from axiomrm.rubrics.model import Axiom, Template, Theorem
from axiomrm.rubrics.probes import PROBES

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric

RUBRIC_ID = re.compile(r"[a-z][a-z0-9_]*")
ITEM_ID = re.compile(r"[a-z][a-z0-9_]*(?:\.[a-z0-9][a-z0-9_]*)*")
KEYWORDS = frozenset({"and", "or", "not", "in", "implies", "true", "false"})


def e101_unknown_names(part: "Rubric") -> Iterator[Finding]:
    """Unknown ids, parameters, judges and probes (names in conditions: ``lint_types``)."""
    from axiomrm.rubrics.rubric import own_items, walk

    axioms = {i.id for _, _, _, i in walk(part) if isinstance(i, Axiom)}
    theorems = {i.id for _, _, _, i in walk(part) if isinstance(i, Theorem)}
    templates = {i.id for _, _, _, i in walk(part) if isinstance(i, Template)}
    for _, section, index, item in own_items(part):
        where: Path = (section, index)
        if isinstance(item, Theorem):
            yield from _listed(
                part, item.derived_from, (*where, "derived_from"), item.id, axioms | theorems, "axiom"
            )
        if isinstance(item, Template):
            known = sorted(theorems)
            if item.specialises not in theorems:
                message = f"{item.id}: no theorem {item.specialises!r}"
                yield part.source.finding(
                    "E101", message, (*where, "specialises"), nearest(item.specialises, known)
                )
            yield from _parameters(part, item, where)
        if not isinstance(item, Axiom):
            yield from _listed(part, item.beats, (*where, "beats"), item.id, theorems | templates, "theorem")
        judge, field = (item.detector, "detector") if isinstance(item, Axiom) else (item.judge, "judge")
        if judge.kind == "programmatic" and judge.fn not in JUDGES:
            message = f"{item.id}: no programmatic judge {judge.fn!r}"
            yield part.source.finding("E101", message, (*where, field, "fn"), nearest(judge.fn, JUDGES))
    yield from _probes(part)


def _listed(
    part: "Rubric", ids: tuple[str, ...], path: Path, owner: str, known: set[str], what: str
) -> Iterator[Finding]:
    for i, name in enumerate(ids):
        if name not in known:
            yield part.source.finding(
                "E101", f"{owner}: no {what} {name!r}", (*path, i), nearest(name, sorted(known))
            )


def _parameters(part: "Rubric", item: Template, where: Path) -> Iterator[Finding]:
    for name, param in item.params.items():
        if param.slot not in item.reads:
            message = f"{item.id}: parameter {name!r} uses slot {param.slot!r}, which is not in reads"
            yield part.source.finding(
                "E101", message, (*where, "params", name, "slot"), nearest(param.slot, item.reads)
            )
    for field in ("statement", "requires", "applies_when", "inverse"):
        for name in re.findall(r"\{(\w+)\}", getattr(item, field) or ""):
            if name not in item.params:
                message = f"{item.id}: no parameter {name!r} in params"
                yield part.source.finding("E101", message, (*where, field), nearest(name, dict(item.params)))


def _probes(part: "Rubric") -> Iterator[Finding]:
    declared: list[tuple[str, str, str | None]] = [
        ("turn_features", n, s.probe) for n, s in part.file.turn_features.items()
    ]
    declared += [("facets", n, s.probe) for n, s in part.file.facets.items()]
    for section, name, probe in declared:
        if probe is None:
            continue
        path: Path = (section, name, "probe")
        if probe not in PROBES:
            yield part.source.finding("E101", f"{name}: no probe {probe!r}", path, nearest(probe, PROBES))
            continue
        wanted = "prefix" if section == "turn_features" else "reply"
        if PROBES[probe].scope != wanted:
            message = f"{name}: probe {probe!r} is for the {PROBES[probe].scope}, {section} need the {wanted}"
            yield part.source.finding("E101", message, path)


def e102_ids(part: "Rubric") -> Iterator[Finding]:
    """Malformed ids, ids used twice, also across imports."""
    header = part.file.rubric
    if not RUBRIC_ID.fullmatch(header.id):
        yield part.source.finding("E102", f"rubric id {header.id!r} is not [a-z][a-z0-9_]*", ("rubric", "id"))
    elif part.where and FilePath(part.where).stem.partition("@")[0] != header.id:
        name = FilePath(part.where).name
        yield part.source.finding(
            "E102", f"rubric id {header.id!r} differs from its file {name!r}", ("rubric", "id")
        )
    yield from _items_twice(part)
    yield from _names_twice(part)


def _items_twice(part: "Rubric") -> Iterator[Finding]:
    from axiomrm.rubrics.rubric import own_items

    taken: dict[str, str] = {}
    for other in part.parts[:-1]:
        for _, _, _, item in own_items(other):
            if item.status == "active":
                taken.setdefault(item.id, f"also in {other.id}@{other.version}")
    for _, section, index, item in own_items(part):
        path: Path = (section, index, "id")
        if not ITEM_ID.fullmatch(item.id):
            yield part.source.finding(
                "E102", f"id {item.id!r} is malformed; write lower case like th.concise", path
            )
        if item.id in taken:
            yield part.source.finding("E102", f"{item.id!r} {taken[item.id]}", path)
        taken.setdefault(item.id, f"stands twice, first at line {part.source.at(path)[0]}")


def _names_twice(part: "Rubric") -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for section in ("features", "turn_features", "facets"):
        for name in getattr(part.file, section):
            path: Path = (section, name)
            if not ITEM_ID.fullmatch(name) or name in KEYWORDS:
                yield part.source.finding("E102", f"name {name!r} is malformed or a keyword", path, key=True)
            if name in seen:
                yield part.source.finding(
                    "E102", f"{name!r} stands in {seen[name]} and in {section}", path, key=True
                )
            seen.setdefault(name, section)
    for other in part.parts[:-1]:
        for name, section in seen.items():
            spec = {**other.file.features, **other.file.turn_features, **other.file.facets}.get(name)
            if spec is not None and spec != getattr(part.file, section)[name]:
                message = f"{name!r} is declared otherwise in {other.id}@{other.version}"
                yield part.source.finding("E102", message, (section, name), key=True)


def e103_cycles(part: "Rubric") -> Iterator[Finding]:
    """Cycles in derived_from and beats (imports: the resolver)."""
    from axiomrm.rubrics.rubric import own_items

    for field in ("derived_from", "beats"):
        edges = {i.id: getattr(i, field, ()) for _, _, _, i in own_items(part)}
        places = {i.id: (s, n, field) for _, s, n, i in own_items(part)}
        for cycle in cycles(edges):
            message = f"cycle in {field}: {' → '.join([*cycle, cycle[0]])}"
            yield part.source.finding("E103", message, places[cycle[0]], key=True)


def cycles(edges: Mapping[str, tuple[str, ...]]) -> list[list[str]]:
    """Cycles found depth first, without recursion; each starts at the node that was met first."""
    state: dict[str, int] = {}
    found: list[list[str]] = []
    for root in edges:
        if state.get(root):
            continue
        trail: list[str] = [root]
        stack = [iter(edges[root])]
        state[root] = 1
        while stack:
            following = next(stack[-1], None)
            if following is None:
                stack.pop()
                state[trail.pop()] = 2
            elif state.get(following) == 1:
                found.append(trail[trail.index(following) :])
            elif following in edges and not state.get(following):
                state[following] = 1
                trail.append(following)
                stack.append(iter(edges[following]))
    return found


def e104_unfounded(part: "Rubric") -> Iterator[Finding]:
    """Theorems that rest on no axiom."""
    from axiomrm.rubrics.rubric import own_items, walk

    edges = {i.id: i.derived_from for _, _, _, i in walk(part) if isinstance(i, Theorem)}
    reached = {i.id for _, _, _, i in walk(part) if isinstance(i, Axiom)}
    while True:
        new = {
            name for name, parents in edges.items() if name not in reached and reached.intersection(parents)
        }
        if not new:
            break
        reached |= new
    for _, section, index, item in own_items(part):
        if isinstance(item, Theorem) and item.id not in reached:
            message = f"{item.id} rests on no axiom"
            yield part.source.finding("E104", message, (section, index, "derived_from"), key=True)
        if isinstance(item, Theorem) and not item.derivation.strip():
            message = f"{item.id} has an empty derivation"
            yield part.source.finding(
                "E104", message, (section, index, "derivation"), "write the step, so that it can be disputed"
            )
