"""Wording: vague words, two requirements in one, bulk without a bound, near-equal texts."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from axiomrm.rubrics.conflicts import Search
from axiomrm.rubrics.findings import Finding, Path
from axiomrm.rubrics.model import Axiom, Template, Theorem
from axiomrm.rubrics.regions import exclusive

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric

Item = Axiom | Theorem | Template

VAGUE = (
    r"good|bad|nice|great|excellent|appropriate|appropriately|adequate|adequately|proper|"
    r"properly|suitable|thorough|thoroughly|reasonable|reasonably|sufficient|sufficiently|"
    r"effective|effectively|professional|professionally|high-quality|high quality|well-written|"
    r"relevant|useful|satisfactory|optimal|engaging|natural|user-friendly"
)
HEDGES = (
    r"tr(?:y|ies) to|attempts? to|should|ideally|if possible|where possible|when possible|"
    r"where appropriate|as needed|as appropriate|generally|usually|mostly|somewhat|more or less|"
    r"and/or|etc"
)
QUALITIES = (
    r"polite|complete|clear|concise|correct|accurate|friendly|honest|brief|helpful|short|"
    r"precise|factual|formal|warm|structured|readable|specific|consistent|coherent|relevant|"
    r"respectful|thorough|kind|safe|fair|patient|calm|simple"
)
TRAITS = (
    r"polite|helpful|honest|friendly|kind|smart|intelligent|empathetic|caring|competent|"
    r"knowledgeable|humble|patient|professional|trustworthy|warm"
)
BULK = (
    r"comprehensive|comprehensively|exhaustive|exhaustively|extensive|extensively|in-depth|"
    r"in depth|as much as possible|as many|detailed|in detail|elaborate|elaborates|lengthy|long|"
    r"full detail"
)
_VAGUE = re.compile(rf"\b(?:{VAGUE})\b", re.IGNORECASE)
_HEDGE = re.compile(rf"\b(?:{HEDGES})\b", re.IGNORECASE)
_PAIR = re.compile(rf"\b({QUALITIES})(?:,? and|,? as well as|,) ({QUALITIES})\b", re.IGNORECASE)
_CLAUSES = re.compile(r"(?:, and (?:also )?|; (?:and )?|\band also )(?=[a-z]+s\b)[a-z]+", re.IGNORECASE)
_TRAIT = re.compile(
    rf"\b(?:is|be|being|acts?|seems?|sounds?) (?:an? |very |always )*({TRAITS})\b", re.IGNORECASE
)
_BULK = re.compile(rf"\b(?:{BULK})\b", re.IGNORECASE)
_BOUND = re.compile(
    r"\b(?:at most|no more than|up to|within|at least|fewer than|less than|not longer)\b|\d", re.IGNORECASE
)


def _worded(part: "Rubric") -> Iterator[tuple[Item, Path]]:
    from axiomrm.rubrics.rubric import own_items

    for _, section, index, item in own_items(part):
        if item.status == "active" and not (isinstance(item, Axiom) and item.type == "premise"):
            yield item, (section, index, "statement")


def _finding(part: "Rubric", code: str, message: str, path: Path, match: re.Match[str], hint: str) -> Finding:
    """At the matched words, where the statement is one line of the file."""
    from axiomrm.rubrics.expr import Span
    from axiomrm.rubrics.lint_types import place

    node = part.source.node(path)
    span = Span(match.start(), len(match.group()))
    row = part.source.text.splitlines()[node.line - 1] if node is not None else ""
    whole = node is not None and match.string in row
    return place(part, path, code, message, span if whole else None, hint)


def w160_vague(part: "Rubric") -> Iterator[Finding]:
    """A vague word without anchors that say what it means."""
    for item, path in _worded(part):
        match = _VAGUE.search(item.statement)
        if match and not (not isinstance(item, Axiom) and item.scale.anchors):
            message = f"{item.id}: {match.group()!r} needs anchors"
            yield _finding(part, "W160", message, path, match, "say what can be observed, or give anchors")


def w161_double(part: "Rubric") -> Iterator[Finding]:
    """Two requirements in one, a hedge, a trait instead of something that can be seen."""
    for item, path in _worded(part):
        text = item.statement
        if match := _PAIR.search(text):
            yield _finding(
                part, "W161", f'{item.id}: "{match.group()}": split', path, match, "one question an item"
            )
        elif match := _CLAUSES.search(text):
            yield _finding(
                part, "W161", f'{item.id}: "{match.group()} …": split', path, match, "one question an item"
            )
        if match := _HEDGE.search(text):
            message = f"{item.id}: {match.group()!r} hedges"
            yield _finding(part, "W161", message, path, match, "say it outright, or use applies_when")
        if match := _TRAIT.search(text):
            message = f"{item.id}: {match.group()!r} is a trait"
            yield _finding(part, "W161", message, path, match, "say what the reply does")


def w163_bulk(part: "Rubric") -> Iterator[Finding]:
    """Rewards for bulk without a bound; a rubric without any penalty or gate."""
    for item, path in _worded(part):
        if isinstance(item, Axiom) or item.polarity == "penalty":
            continue
        match = _BULK.search(item.statement)
        bounded = item.requires is not None and "<" in item.requires
        if match and not bounded and not _BOUND.search(item.statement):
            message = f'{item.id}: "{match.group()}" has no bound'
            yield _finding(part, "W163", message, path, match, "longer always wins then: bound it")
    gates = [a for a in part.axioms if a.type != "premise"]
    penalties = [t for t in part.theorems if t.polarity == "penalty"]
    if part.file.theorems and part.theorems and not gates and not penalties:
        message = "no penalty and no gate: nothing a reply does can cost it"
        yield part.source.finding("W163", message, ("theorems", 0, "id"), "add a penalty or an axiom")


def w105_unused(part: "Rubric") -> Iterator[Finding]:
    """Own premises that no theorem rests on; a rubric without theorems is made to be imported."""
    used = {parent for t in part.theorems for parent in t.derived_from}
    for index, axiom in enumerate(part.file.axioms):
        if part.theorems and axiom.type == "premise" and axiom.status == "active" and axiom.id not in used:
            yield part.source.finding("W105", f"{axiom.id} is unused", ("axioms", index, "id"), "remove it")


MIN_WORDS = 4
"""Shorter texts share words by accident."""
_WORD = re.compile(r"\w+")
_STOP = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "to",
        "in",
        "on",
        "and",
        "or",
        "is",
        "are",
        "be",
        "by",
        "for",
        "with",
        "it",
        "its",
        "that",
        "this",
        "as",
        "at",
        "from",
        "no",
        "not",
    ]
)


def w124_near(search: Search) -> Iterator[Finding]:
    """Near-equal texts without facets: whether they agree or contradict cannot be computed."""
    plain = [c for c in search.clauses if c.kind != "axiom" and not c.formal]
    texts = {c.id: t for c in plain if (t := _words(search, c.id))}
    rows = [(c, texts[c.id]) for c in plain if c.id in texts]
    by_word: dict[str, list[int]] = {}
    for i, (_, words) in enumerate(rows):
        for word in words:
            by_word.setdefault(word, []).append(i)
    for i, (clause, words) in enumerate(rows):
        # Sets that share 0.8 share one of any 0.2·n + 1 words: the rarest ones find all partners.
        rare = sorted(words, key=lambda w: len(by_word[w]))[: len(words) // 5 + 1]
        for j in sorted({j for w in rare for j in by_word[w] if j > i}):
            other, more = rows[j]
            near = len(words & more) >= 0.8 * len(words | more)
            if near and other.id != clause.id and other.own and _pairs(search, clause.id, other.id):
                path = (*other.path, "statement")
                message = (
                    f"{other.id} and {clause.id} have near-equal texts; without facets this is not decided"
                )
                yield search.rubric.source.finding(
                    "W124", message, path, "give both a 'requires', or merge them"
                )


def _pairs(search: Search, a: str, b: str) -> bool:
    first = next(c for c in search.clauses if c.id == a)
    second = next(c for c in search.clauses if c.id == b)
    related = b in (first.specialises, *first.beats) or a in (second.specialises, *second.beats)
    return not related and not exclusive(search.when[first], search.when[second])


def _words(search: Search, name: str) -> frozenset[str]:
    theorems = {t.id: t.statement for t in search.rubric.theorems}
    templates = {t.id: t.statement for t in search.rubric.templates}
    text = (theorems | templates).get(name, "").casefold()
    words = frozenset(w for w in _WORD.findall(re.sub(r"\{\w+\}", " ", text)) if w not in _STOP)
    return words if len(words) >= MIN_WORDS else frozenset()
