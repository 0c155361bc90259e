"""E150–E153: sensitive attributes, personal data, slots and dimensions of personal templates.

Covers: a word list for nine sensitive categories (English, Chinese) in all that the judge reads of a
criterion (guidelines, statement, inverse, anchors, severities), in conditions, parameters and reads, in
declared names and their values, and in what ``defaults`` says of these; e-mail, phone, card and IBAN patterns
in any string; detectors that are passed in. Full-width letters and characters that nobody sees hide no word.
Does not cover, without detectors: names, postal addresses, paraphrases of a sensitive attribute, letters of
another alphabet that look alike; cases, which may show what a reply must not say.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple, Protocol

import yaml

from axiomrm.data.pii import personal_strings, plain
from axiomrm.rubrics.expr import ExprError, names_of, parse
from axiomrm.rubrics.expr_check import nearest
from axiomrm.rubrics.findings import Finding, Path
from axiomrm.rubrics.model import Template
from axiomrm.rubrics.templates import variants
from axiomrm.rubrics.yaml_nodes import Node

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric


class Hit(NamedTuple):
    """What a detector found."""

    code: str
    """``E150`` (sensitive attribute) or ``E151`` (personal data)."""
    label: str
    text: str


class TextDetector(Protocol):
    """A finder of sensitive or personal text; passed in, so that no import points up."""

    def find(self, text: str) -> Iterable[Hit]:
        """What stands in ``text``."""


SENSITIVE: dict[str, tuple[str, str]] = {
    "health": (
        "pregnan(?:t|cy|cies)|disabled|disabilit(?:y|ies)|hiv|cancer|diabet(?:es|ic)|depress(?:ed|ion|ive)|"
        "autis(?:m|tic)|mental illness|mentally ill|diagnos(?:is|es|ed)",
        "怀孕|残疾|抑郁|艾滋",
    ),
    "religion": (
        "religio(?:n|us)|christian(?:ity)?|muslim|islam(?:ic)?|jew(?:ish)?|judaism|hindu(?:ism)?|"
        "buddhis[tm]|atheis[tm]|catholic(?:ism)?",
        "宗教|信仰|穆斯林",
    ),
    "ethnicity": (
        "ethnic(?:it(?:y|ies))?|(?<!data.)race(?! condition)|racial|skin colou?r|nationalit(?:y|ies)",
        "民族|种族",
    ),
    "politics": (
        "political (?:view|opinion|affiliation|part(?:y|ies))|party member|"
        "(?:republican|democrat(?:ic)?) voter",
        "政治面貌|政治观点",
    ),
    "union": ("trade union|union member(?:ship)?", "工会"),
    "sexuality": (
        "sexual orientation|sexualit(?:y|ies)|(?:homo|hetero|bi)sexual(?:ity)?|gay|lesbian|"
        "transgender(?:ed)?",
        "性取向",
    ),
    "genetics": ("genetic data|dna|biometric", "基因"),
    "offences": ("criminal record|convict(?:ed|ion)?", "犯罪记录"),
    "minors": ("child(?:ren)?['’]?s? age|underage user", "未成年用户"),
}
"""Category → words in English (singular; a blank stands for any separator) and in Chinese."""
_BETWEEN = r"[\s_.-]{1,3}"
_SENSITIVE = {
    category: re.compile(
        rf"(?<![a-z])(?:{english.replace(' ', _BETWEEN)})(?:e?s)?(?![a-z])|{chinese}", re.IGNORECASE
    )
    for category, (english, chinese) in SENSITIVE.items()
}


def sensitive_words(text: str) -> list[tuple[str, re.Match[str]]]:
    """Category and place of each word of the list, in the text as ``pii.plain`` writes it."""
    text = plain(text)
    return [(category, m) for category, pattern in _SENSITIVE.items() for m in pattern.finditer(text)]


def strings_of(node: Node | None, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Every text of a document with its place, keys included."""
    if node is None:
        return
    if isinstance(node.value, dict):
        for key, inner in node.value.items():
            yield (*path, key), key
            yield from strings_of(inner, (*path, key))
    elif isinstance(node.value, list):
        for index, inner in enumerate(node.value):
            yield from strings_of(inner, (*path, index))
    elif isinstance(node.value, str):
        yield path, node.value


_ITEMS = ("axioms", "theorems", "personal_templates")
_E150_FIELDS = {"statement", "inverse", "applies_when", "requires", "scale", "caps", "params", "reads"}
_DECLARATIONS = ("features", "turn_features", "facets")


def _decides(path: Path) -> bool:
    """Whether the judge reads the text at a place, or it decides what applies or what a verdict is worth."""
    section, rest = path[0], path[1:]
    if section == "rubric":
        return rest[:1] == ("guidelines",)
    if section == "defaults":
        return bool(rest) and rest[0] in _E150_FIELDS
    if section in _DECLARATIONS:
        return len(rest) == 1 or (len(rest) > 1 and rest[1] in ("values", "default"))
    return section in _ITEMS and len(rest) > 1 and rest[1] in _E150_FIELDS


def e150_sensitive(part: "Rubric", detectors: Sequence[TextDetector] = ()) -> Iterator[Finding]:
    """A sensitive attribute where a criterion could depend on it: texts for the judge, conditions, names."""
    for path, text in strings_of(part.source.root):
        if not _decides(path):
            continue
        declared = path[0] in _DECLARATIONS and len(path) == 2
        inner = path[2:] if path[0] in _ITEMS else path[:1] if declared else path
        where = ".".join(str(p) for p in inner if isinstance(p, str))
        for category, match in sensitive_words(text):
            message = f"{match.group()!r} ({category}) in {where}"
            yield part.source.finding(
                "E150", message, path, "a criterion must not depend on it", key=declared
            )
        for detector in detectors:
            for hit in detector.find(text):
                if hit.code == "E150":
                    message = f"{hit.text!r} ({hit.label}) in {where}"
                    yield part.source.finding("E150", message, path, key=declared)


def e151_personal(part: "Rubric", detectors: Sequence[TextDetector] = ()) -> Iterator[Finding]:
    """Personal data in any string."""
    for path, text in strings_of(part.source.root):
        found = [
            "e-mail address" if "@" in s else "phone, card or account number" for s in personal_strings(text)
        ]
        found += [h.label for d in detectors for h in d.find(text) if h.code == "E151"]
        for what in dict.fromkeys(found):
            where = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).lstrip(".")
            yield part.source.finding("E151", f"{what} in {where}", path, "write an invented placeholder")


def registry() -> dict[str, dict[str, object]]:
    """The slots of ``data/bundled/slots.yaml``."""
    text = resources.files("axiomrm.data").joinpath("bundled/slots.yaml").read_text(encoding="utf-8")
    loaded = yaml.safe_load(text)
    return dict(loaded["slots"])


def _templates(part: "Rubric") -> Iterator[tuple[Path, Template]]:
    for index, template in enumerate(part.own_templates):
        yield ("personal_templates", index), template


def e152_slots(part: "Rubric") -> Iterator[Finding]:
    """Reads of slots that are not in the registry, or that no active template may read."""
    if not part.own_templates:
        return
    slots = registry()
    for where, template in _templates(part):
        for i, name in enumerate(template.reads):
            path: Path = (*where, "reads", i)
            if name not in slots:
                yield part.source.finding(
                    "E152", f"{template.id}: {name!r} is not a slot", path, nearest(name, slots)
                )
            elif template.status == "active" and slots[name].get("sensitivity") == "sensitive":
                message = f"{template.id}: slot {name!r} is sensitive, no active template reads it"
                yield part.source.finding("E152", message, path, "ship the template in status quarantine")
            elif template.status == "active" and template.id not in _readers(slots[name]):
                readers = ", ".join(_readers(slots[name])) or "nobody"
                message = f"{template.id} is not a reader of slot {name!r} (readers: {readers})"
                yield part.source.finding(
                    "E152", message, path, "add it to readers in data/bundled/slots.yaml"
                )
            yield from _total(part, template, where, name, slots.get(name, {}))


def _readers(slot: dict[str, object]) -> list[str]:
    readers = slot.get("readers")
    return [str(r) for r in readers] if isinstance(readers, list) else []


def slot_values(slot: dict[str, object]) -> list[str]:
    """Every value of a slot, as keys of a map."""
    if slot.get("type") == "bool":
        return ["true", "false"]
    span, values = slot.get("range"), slot.get("values")
    if isinstance(span, list) and slot.get("type") == "int":
        return [str(v) for v in range(span[0], span[1] + 1)]
    return [str(v) for v in values] if isinstance(values, list) else []


def _total(
    part: "Rubric", template: Template, where: Path, name: str, slot: dict[str, object]
) -> Iterator[Finding]:
    """A map must have an entry for each slot value, and no other."""
    for parameter, spec in template.params.items():
        if spec.slot != name:
            continue
        wanted = slot_values(slot)
        missing = [v for v in wanted if v not in spec.map]
        extra = [k for k in spec.map if wanted and k not in wanted]
        path: Path = (*where, "params", parameter, "map")
        if missing:
            message = f"{template.id}: map of {parameter!r} has no entry for {', '.join(missing)}"
            yield part.source.finding("E152", message, path, "a map is total", key=True)
        if extra:
            message = f"{template.id}: map of {parameter!r} has {', '.join(extra)}, which {name!r} never is"
            yield part.source.finding("E152", message, path, key=True)


def e153_dimension(part: "Rubric", rubric: "Rubric") -> Iterator[Finding]:
    """Templates of dimension value, of penalty polarity, or on a facet that an axiom constrains.

    Args:
        part: whose templates are looked at.
        rubric: the rubric that they are a part of; its axioms count.
    """
    guarded = {name: a.id for a in rubric.axioms if a.requires for name in _names(a.requires)}
    for where, template in _templates(part):
        if template.dimension == "value":
            message = f"{template.id}: dimension value cannot be personal"
            yield part.source.finding("E153", message, (*where, "dimension"), "form or content")
        if template.polarity == "penalty":
            message = f"{template.id}: a template cannot be a penalty"
            yield part.source.finding("E153", message, (*where, "polarity"))
        names = {n for _, v in variants(template) if v.requires for n in _names(v.requires)}
        for name in sorted(names & guarded.keys()):
            message = f"{template.id} touches a facet of {guarded[name]}: {name}"
            yield part.source.finding("E153", message, (*where, "requires"))


def _names(text: str) -> frozenset[str]:
    try:
        return names_of(parse(text))
    except ExprError:
        return frozenset()
