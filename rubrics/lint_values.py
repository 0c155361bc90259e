"""E130–E143: weights, budget, caps, anchors, turn level, arguments of programmatic judges."""

import itertools
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from axiomrm.rubrics.expr import ExprError, names_of, parse
from axiomrm.rubrics.expr_check import nearest
from axiomrm.rubrics.findings import Finding, Path
from axiomrm.rubrics.judges import JUDGES
from axiomrm.rubrics.model import Axiom, ProgrammaticJudge, Template, Theorem
from axiomrm.rubrics.probes import PROBES
from axiomrm.rubrics.templates import variants
from axiomrm.rubrics.versions import parse_version

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric

BUDGET = 0.4


def e100_policy(part: "Rubric") -> Iterator[Finding]:
    """Numbers of the policy, the version."""
    policy = part.file.policy
    for field in ("min_coverage", "turn_min_coverage"):
        value = getattr(policy, field)
        if not 0 <= value <= 1:
            yield part.source.finding("E100", f"{field} {value:g} is outside [0, 1]", ("policy", field))
    if parse_version(part.file.rubric.version) is None:
        message = f"version {part.file.rubric.version!r} is not a semantic version like 1.0.0"
        yield part.source.finding("E100", message, ("rubric", "version"))


def _scored(part: "Rubric") -> Iterator[tuple[Path, Theorem | Template]]:
    from axiomrm.rubrics.rubric import own_items

    for _, section, index, item in own_items(part):
        if not isinstance(item, Axiom):
            yield (section, index), item


def field_path(part: "Rubric", where: Path, field: str) -> Path:
    """The item's own field, or the one in ``defaults`` that it got its value from."""
    if part.source.node((*where, field)) is None and part.source.node(("defaults", field)) is not None:
        return ("defaults", field)
    return (*where, field)


def e130_weights(part: "Rubric") -> Iterator[Finding]:
    """Weights that are not positive and finite."""
    for where, item in _scored(part):
        fields = [("weight", item.weight)]
        if isinstance(item, Template) and item.max_weight is not None:
            fields.append(("max_weight", item.max_weight))
        for field, value in fields:
            if not (math.isfinite(value) and value > 0):
                message = f"{item.id}: {field} {value:g} must be a finite number > 0"
                hint = "write a fault as polarity: penalty" if value < 0 else ""
                yield part.source.finding("E130", message, field_path(part, where, field), hint)


def e132_budget(part: "Rubric") -> Iterator[Finding]:
    """The personal budget, and templates without a bound."""
    budget = part.file.policy.personal_budget
    if not 0 <= budget <= BUDGET:
        message = f"personal_budget {budget:g} must be in [0, {BUDGET}]"
        yield part.source.finding("E132", message, ("policy", "personal_budget"))
    for where, item in _scored(part):
        if isinstance(item, Template) and item.max_weight is None:
            yield part.source.finding("E132", f"{item.id}: a template needs max_weight", (*where, "id"))


def e140_caps(part: "Rubric") -> Iterator[Finding]:
    """Caps, the fallback and the votes of axioms."""
    for index, axiom in enumerate(part.file.axioms):
        for field, message in _axiom_problems(axiom):
            yield part.source.finding("E140", f"{axiom.id}: {message}", ("axioms", index, field), key=True)


def _axiom_problems(axiom: Axiom) -> Iterator[tuple[str, str]]:
    capped = axiom.cap is not None or axiom.caps is not None
    if axiom.type != "soft" and capped:
        yield ("cap" if axiom.cap is not None else "caps"), f"a {axiom.type} axiom has no cap"
    if axiom.type == "soft" and not capped:
        yield "type", "a soft axiom needs cap or caps"
    if axiom.cap is not None and axiom.caps is not None:
        yield "caps", "cap and caps exclude each other"
    if axiom.cap is not None and not 0 < axiom.cap < 1:
        yield "cap", f"cap {axiom.cap:g} must be inside (0, 1)"
    if axiom.caps is not None:
        yield from _severities(axiom.caps)
    legal = {"hard": ("abstain", "violate"), "soft": ("worst", "skip"), "premise": ()}[axiom.type]
    if axiom.on_cannot_assess is not None and axiom.on_cannot_assess not in legal:
        accepted = " or ".join(legal) or "nothing, a premise is not judged"
        yield (
            "on_cannot_assess",
            f"{axiom.on_cannot_assess!r} does not fit a {axiom.type} axiom; accepted: {accepted}",
        )
    if axiom.detector.kind == "llm" and (axiom.detector.votes < 1 or axiom.detector.votes % 2 == 0):
        yield "detector", f"votes {axiom.detector.votes} must be odd, the majority decides"


def _severities(caps: dict[str, float]) -> Iterator[tuple[str, str]]:
    values = list(caps.values())
    shown = ", ".join(f"{k} {v:g}" for k, v in caps.items())
    if not values:
        yield "caps", "caps needs at least one severity"
    elif not all(0 < v < 1 for v in values):
        yield "caps", f"caps must be inside (0, 1): {shown}"
    elif any(b >= a for a, b in itertools.pairwise(values)):
        yield "caps", f"caps must fall: {shown}"


def e141_anchors(part: "Rubric") -> Iterator[Finding]:
    """Scales: 2 to 7 anchors from 0 to 1 strictly rising; continuous for programmatic judges only."""
    for where, item in _scored(part):
        problem = _scale_problem(item)
        if problem:
            path = field_path(part, where, "scale")
            yield part.source.finding("E141", f"{item.id}: {problem}", path, key=True)


def _scale_problem(item: Theorem | Template) -> str:
    values = [a.value for a in item.scale.anchors]
    shown = ", ".join(f"{v:g}" for v in values)
    if item.scale.kind != "ordinal":
        if values:
            return f"a {item.scale.kind} scale has no anchors"
        if item.scale.kind == "continuous" and item.judge.kind != "programmatic":
            return "a continuous scale is for programmatic judges"
        return ""
    if not 2 <= len(values) <= 7:
        return f"an ordinal scale needs 2 to 7 anchors, found {len(values)}"
    rising = all(a < b for a, b in itertools.pairwise(values))
    if not rising or values[0] != 0 or values[-1] != 1:
        return f"anchors must rise strictly from 0 to 1: anchors {shown}"
    if any(not a.text.strip() for a in item.scale.anchors):
        return "an anchor without text"
    return "" if len({a.text for a in item.scale.anchors}) == len(values) else "two anchors with one text"


def e142_turn_level(part: "Rubric") -> Iterator[Finding]:
    """``reduce`` at turn level, and what it fits."""
    for where, item in _scored(part):
        evidence = item.evidence
        problem = ""
        if evidence.level == "turn" and evidence.reduce is None:
            problem = "level turn needs reduce (mean, min, max, any, all, last)"
        elif evidence.level == "turn" and evidence.reduce in ("any", "all") and item.scale.kind != "binary":
            problem = f"reduce {evidence.reduce} needs a binary scale, this one is {item.scale.kind}"
        elif evidence.level == "trajectory" and evidence.reduce is not None:
            problem = f"reduce {evidence.reduce} has no meaning at level trajectory"
        elif evidence.level == "trajectory" and evidence.if_never != "skip":
            problem = "if_never has no meaning at level trajectory"
        if problem:
            path = field_path(part, where, "evidence")
            yield part.source.finding("E142", f"{item.id}: {problem}", path, key=True)


def e143_arguments(part: "Rubric") -> Iterator[Finding]:
    """Arguments of programmatic judges and probes; constraints that can be computed."""
    from axiomrm.rubrics.rubric import own_items

    for _, section, index, item in own_items(part):
        field = "detector" if isinstance(item, Axiom) else "judge"
        judge = item.detector if isinstance(item, Axiom) else item.judge
        path: Path = (section, index, field)
        if not isinstance(item, Axiom):
            path = field_path(part, (section, index), "judge")
        if judge.kind == "programmatic" and judge.fn in JUDGES:
            yield from _programmatic(part, item, judge, path)
        if judge.kind == "constraint":
            yield from _constraint(part, item, path)
        if judge.kind == "llm" and judge.votes < 1:
            yield part.source.finding(
                "E143", f"{item.id}: votes {judge.votes} must be >= 1", (*path, "votes")
            )
    yield from _probe_args(part)


def _programmatic(
    part: "Rubric", item: Axiom | Theorem | Template, judge: ProgrammaticJudge, path: Path
) -> Iterator[Finding]:
    function = JUDGES[judge.fn]
    if item.evidence.level not in function.levels:
        legal = " or ".join(function.levels)
        message = f"{item.id}: {judge.fn} judges a {legal}, evidence level is {item.evidence.level}"
        yield part.source.finding("E143", message, (*path, "fn"))
    try:
        function.args.model_validate(judge.args)
    except ValidationError as error:
        for entry in error.errors(include_url=False, include_context=False):
            yield _argument(part, judge, entry, path, list(function.args.model_fields))


def _argument(part: "Rubric", judge: ProgrammaticJudge, entry: Any, path: Path, known: list[str]) -> Finding:
    name = ".".join(map(str, entry["loc"]))
    where: Path = (*path, "args", *entry["loc"])
    if entry["type"] == "extra_forbidden":
        hint = nearest(name, known) or f"accepted: {', '.join(known) or 'none'}"
        return part.source.finding("E143", f"{judge.fn}: unknown arg {name!r}", where, hint, key=True)
    if entry["type"] == "missing":
        return part.source.finding("E143", f"{judge.fn}: arg {name!r} is missing", path)
    message = str(entry["msg"]).removeprefix("Value error, ")
    detail = f"arg {name!r}: {message}, found {entry['input']!r}" if name else message
    return part.source.finding("E143", f"{judge.fn}: {detail}"[:300], where)


def _constraint(part: "Rubric", item: Axiom | Theorem | Template, path: Path) -> Iterator[Finding]:
    if item.requires is None:
        yield part.source.finding("E143", f"{item.id}: judge kind constraint needs 'requires'", path)
        return
    texts = [v.requires for _, v in variants(item, 1)] if isinstance(item, Template) else [item.requires]
    for text in texts:
        try:
            names = names_of(parse(text or ""))
        except ExprError:
            continue
        for name in sorted(names):
            if name in part.facets and part.facets[name].probe is None:
                message = f"{item.id}: facet {name!r} has no probe, so the constraint cannot be computed"
                yield part.source.finding("E143", message, path)


def _probe_args(part: "Rubric") -> Iterator[Finding]:
    for section in ("turn_features", "facets"):
        for name, spec in getattr(part.file, section).items():
            probe = PROBES.get(spec.probe or "")
            if probe is None:
                continue
            for key in spec.args:
                if key not in probe.args:
                    message = f"{spec.probe}: unknown arg {key!r}"
                    yield part.source.finding("E143", message, (section, name, "args", key), key=True)
            if spec.probe == "mentions" and not isinstance(spec.args.get("words"), list):
                yield part.source.finding(
                    "E143", "mentions: arg 'words' must be a list", (section, name, "probe")
                )
