"""What changed in meaning between two versions, and which stored verdicts survive (section 10)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from axiomrm.rubrics.findings import Finding
from axiomrm.rubrics.hashing import canonical_condition, canonical_text, condition_names
from axiomrm.rubrics.model import Axiom, Template, Theorem
from axiomrm.rubrics.symbols import SECTIONS
from axiomrm.rubrics.templates import variants
from axiomrm.rubrics.versions import Version, parse_version

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric

Class = Literal["none", "patch", "minor", "major"]
Consequence = Literal["", "stale", "re-aggregate", "judge again"]
ORDER: tuple[Class, ...] = ("none", "patch", "minor", "major")

_PATCH = {"sources", "tags", "derivation", "lint_allow"}
_WORDING = {"statement", "cases", "inverse"}
_REAGGREGATE = {"weight", "max_weight", "cap", "caps", "on_cannot_assess", "beats"}
_KEPT = {"derived_from", "reads"}
"""Changes the hash, but neither what the judge sees nor how verdicts count."""


@dataclass(frozen=True)
class Change:
    """One difference."""

    level: Class
    item: str
    """Id of an item, or a section of the file."""
    field: str
    detail: str
    consequence: Consequence = ""

    @property
    def text(self) -> str:
        """One line."""
        tail = f"  → {self.consequence}" if self.consequence else ""
        return f"{self.level:5}  {self.item}: {self.field} {self.detail}{tail}"


@dataclass(frozen=True)
class Diff:
    """All differences of two versions."""

    old: str
    new: str
    changes: tuple[Change, ...]
    same_hash: bool

    @property
    def level(self) -> Class:
        """The largest class among the changes."""
        return max((c.level for c in self.changes), key=ORDER.index, default="none")

    @property
    def needed(self) -> str:
        """Smallest version that fits the changes."""
        version = parse_version(self.old) or Version(0, 0, 0)
        major, minor, patch = version[:3]
        return {
            "none": self.old,
            "patch": f"{major}.{minor}.{patch + 1}",
            "minor": f"{major}.{minor + 1}.0",
            "major": f"{major + 1}.0.0",
        }[self.level]

    @property
    def bump_fits(self) -> bool:
        """Whether the new version is large enough."""
        new, needed = parse_version(self.new), parse_version(self.needed)
        return new is not None and needed is not None and new >= needed

    @property
    def stale(self) -> tuple[str, ...]:
        """Items whose stored verdicts must be judged again."""
        return tuple(sorted({c.item for c in self.changes if c.consequence in ("stale", "judge again")}))

    @property
    def comparable(self) -> bool:
        """Whether rewards of both versions may be compared."""
        return self.level != "major"


def diff(old: "Rubric", new: "Rubric") -> Diff:
    """Compare the meaning of two rubrics, imports resolved."""
    changes = [*_header(old, new), *_tables(old, new), *_policy(old, new), *_items(old, new)]
    changes.sort(key=lambda c: (-ORDER.index(c.level), c.item, c.field))
    return Diff(old.version, new.version, tuple(changes), old.hash == new.hash)


def _header(old: "Rubric", new: "Rubric") -> Iterator[Change]:
    a, b = old.file.rubric, new.file.rubric
    for field in ("title", "license"):
        if getattr(a, field) != getattr(b, field):
            yield Change("patch", "rubric", field, "changed")
    if old.file.changelog != new.file.changelog:
        yield Change("patch", "rubric", "changelog", "changed")
    if set(a.languages) != set(b.languages):
        yield Change("minor", "rubric", "languages", f"{', '.join(a.languages)} → {', '.join(b.languages)}")
    if a.id != b.id:
        for name in _judged(new):
            yield Change("major", name, "rubric id", f"{a.id} → {b.id}", "judge again")
    if old.guidelines != new.guidelines:
        for name in _judged(new):
            yield Change("minor", name, "guidelines", "changed", "stale")


def _all(rubric: "Rubric") -> dict[str, Axiom | Theorem | Template]:
    return {i.id: i for group in (rubric.axioms, rubric.theorems, rubric.templates) for i in group}


def _judged(rubric: "Rubric") -> list[str]:
    """All but premises, which no verdict is about."""
    return [i for i, item in _all(rubric).items() if not (isinstance(item, Axiom) and item.type == "premise")]


def _tables(old: "Rubric", new: "Rubric") -> Iterator[Change]:
    """Definitions: each item whose conditions name a changed one is to be judged again."""
    before, after = _all(old), _all(new)
    named = {name: _names(before[name]) | _names(after[name]) for name in before.keys() & after.keys()}
    for section, table in SECTIONS.items():
        a: Mapping[str, Any] = getattr(old, section)
        b: Mapping[str, Any] = getattr(new, section)
        for name in sorted(a.keys() | b.keys()):
            if a.get(name) == b.get(name):
                continue
            detail = "removed" if name not in b else "added" if name not in a else _changed(a[name], b[name])
            for item in sorted(i for i, names in named.items() if name in names):
                yield Change("major", item, f"{table} {name}", detail, "judge again")
            if not any(name in names for names in named.values()):
                yield Change("major", name, section, detail)


def _changed(old: BaseModel, new: BaseModel) -> str:
    pairs = [(f, getattr(old, f, None), getattr(new, f, None)) for f in type(new).model_fields]
    return "changed: " + ", ".join(f"{f} {_short(a)} → {_short(b)}" for f, a, b in pairs if a != b)


def _names(item: Axiom | Theorem | Template) -> frozenset[str]:
    """Names in the conditions of an item; of a template, in those of all its variants."""
    filled = [v for _, v in variants(item)] if isinstance(item, Template) else [item]
    texts = {text for i in filled for text in (i.applies_when, i.requires) if text is not None}
    return frozenset(name for text in texts for name in condition_names(text))


def _policy(old: "Rubric", new: "Rubric") -> Iterator[Change]:
    for field in type(old.policy).model_fields:
        a, b = getattr(old.policy, field), getattr(new.policy, field)
        if a != b:
            yield Change("major", "policy", field, f"{a} → {b}", "re-aggregate")


def _items(old: "Rubric", new: "Rubric") -> Iterator[Change]:
    a, b = _all(old), _all(new)
    for name in sorted(a.keys() | b.keys()):
        if name not in b:
            yield Change("major", name, "item", "removed", "re-aggregate")
        elif name not in a:
            template = isinstance(b[name], Template)
            yield Change("minor" if template else "major", name, "item", "added", "judge again")
        elif type(a[name]) is not type(b[name]):
            yield Change("major", name, "item", "changed its kind", "judge again")
        else:
            yield from _fields(a[name], b[name])
    yield from _drafts(old, new)


def _drafts(old: "Rubric", new: "Rubric") -> Iterator[Change]:
    from axiomrm.rubrics.rubric import own_items

    a = {i.id: i for _, _, _, i in own_items(old) if i.status != "active"}
    b = {i.id: i for _, _, _, i in own_items(new) if i.status != "active"}
    for name in sorted(a.keys() | b.keys()):
        if a.get(name) != b.get(name):
            yield Change("patch", name, "draft", "changed")


def _fields(a: Axiom | Theorem | Template, b: Axiom | Theorem | Template) -> Iterator[Change]:
    for field in type(a).model_fields:
        old, new = getattr(a, field), getattr(b, field)
        if old == new or canonical_text({"v": old}) == canonical_text({"v": new}):
            continue
        both = field in ("applies_when", "requires") and old is not None and new is not None
        if both and canonical_condition(old) == canonical_condition(new):
            continue
        yield _field(a.id, field, old, new)


def _field(name: str, field: str, old: Any, new: Any) -> Change:
    if field in _PATCH:
        return Change("patch", name, field, "changed")
    if field in _KEPT:
        same = sorted(old) == sorted(new)
        return Change("none" if same else "minor", name, field, "reordered" if same else "changed")
    if field in _WORDING:
        return Change("minor", name, field, "changed", "stale")
    if (
        field == "scale"
        and old.kind == new.kind
        and [x.value for x in old.anchors] == [x.value for x in new.anchors]
    ):
        return Change("minor", name, "anchor text", "changed", "stale")
    if field in _REAGGREGATE:
        return Change("major", name, field, f"{_short(old)} → {_short(new)}", "re-aggregate")
    return Change("major", name, field, f"{_short(old)} → {_short(new)}", "judge again")


def _short(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else canonical_text({"v": value})[5:-1]
    return text if len(text) <= 60 else text[:57] + "…"


def e180_bump(old: "Rubric", new: "Rubric") -> Iterator[Finding]:
    """A version bump that is smaller than the change."""
    result = diff(old, new)
    if result.level != "none" and not result.bump_fits:
        first = next(c for c in result.changes if c.level == result.level)
        message = f"{first.item}: {first.field} {first.detail}: needs {result.needed}, found {new.version}"
        yield new.source.finding("E180", message, ("rubric", "version"))
