"""RubricHub and RaR (Rubrics as Rewards, arXiv:2507.17746), JSON or JSONL.

RubricHub: ``[{criterion, points, tags}]``; RaR: ``[{title, description, weight}]``, where the description
may start with its tier ("Essential Criteria: …"). A record is such a list, or a mapping that holds one
under ``rubrics``, ``rubric`` or ``reward_model.rubrics``. Each is written in its own form.

A numeric weight is kept. Where it is missing, the tier decides by ``TIERS``, reported as inferred. A
pitfall that says what is done ("Blames dust.") is a penalty whatever the sign of its weight. One worded as a
negation can name the fault, an omission ("Does not mention friction.", as RaR's own prompt has it), or its
absence ("Does not insult."): no rule tells which, so words and sign stay as they are, which is RaR's formula
(the sum of the weights of what is met), and the doubt is reported.
"""

import json
import re
from typing import Any

from axiomrm.data.jsonl import unique_keys
from axiomrm.errors import DataError
from axiomrm.rubrics.convert.build import Criterion, Imported, build, free_name, slug, usable_id
from axiomrm.rubrics.convert.entry import Entry, entries_of, entry_of, rows
from axiomrm.rubrics.convert.loss import Loss, LossReport
from axiomrm.rubrics.convert.points import read_points, write_points
from axiomrm.rubrics.convert.written import Read, Written, as_row, ids, signed_weight
from axiomrm.rubrics.model import Polarity, Theorem
from axiomrm.rubrics.rubric import Rubric

TIERS: dict[str, tuple[float, Polarity]] = {
    "essential": (3.0, "reward"),
    "important": (2.0, "reward"),
    "optional": (1.0, "reward"),
    "pitfall": (2.0, "penalty"),
}
_PREFIX = re.compile(r"\s*(essential|important|optional|pitfall)(?:\s+criteri(?:a|on))?\s*: ?", re.IGNORECASE)
_NEGATED = re.compile(
    r"(?:the (?:response|answer|reply) )?"
    r"(?:does not|do not|doesn't|don't|avoids?|never|must not|should not)\b",
    re.IGNORECASE,
)
_LISTS = ("rubrics", "rubric", "Rubrics", "rubric_list")
_NAMES = ("id", "prompt_id", "question_id", "task_id")


def read(text: str, file: str, name: str) -> Read:
    """One rubric a record.

    Raises:
        DataError: not the format.
    """
    losses: list[Loss] = []
    records = _records(text, file)
    out: list[Imported] = []
    taken: set[str] = set()
    for number, (path, value) in enumerate(records, 1):
        task, entries, context = _criteria(value, file, path, losses)
        criteria = [c for e in entries if (c := _criterion(e)) is not None]
        if not criteria:
            raise DataError(f"{file}: {path or 'the file'}: no criterion with a weight other than 0")
        own = slug(task) if task else (name if len(records) == 1 else f"{name}_{number}")
        own = free_name(own, taken)
        out.append(Imported(build(own, criteria), task, context))
    return Read(tuple(out), LossReport(tuple(losses)))


def _records(text: str, file: str) -> list[tuple[str, Any]]:
    found = list(rows(text, file))
    whole = found[0][1] if len(found) == 1 else None
    if isinstance(whole, list) and whole and all(_list_key(v) for v in whole):
        return [(str(i), v) for i, v in enumerate(whole)]
    return found


def _list_key(value: Any) -> str:
    keys = [k for k in _LISTS if isinstance(value, dict) and isinstance(value.get(k), list | str)]
    if isinstance(value, dict) and isinstance(value.get("reward_model"), dict):
        keys += ["reward_model"] if _list_key(value["reward_model"]) else []
    return keys[0] if keys else ""


def _criteria(
    value: Any, file: str, path: str, losses: list[Loss]
) -> tuple[str, list[Entry], dict[str, Any]]:
    """Task id, criteria, and the rest of the record."""
    if isinstance(value, list):
        return "", entries_of(value, file, path, losses), {}
    entry = entry_of(value, file, path, losses)
    key = _list_key(value)
    if not key:
        raise DataError(f"{file}: {path or 'the file'}: no list of criteria under {', '.join(_LISTS)}")
    task = next((str(value[k]) for k in _NAMES if value.get(k) not in (None, "")), "")
    context = {k: v for k, v in value.items() if k != key}
    inner = value[key]
    if key == "reward_model":
        inner, key = inner[_list_key(inner)], f"{key}/{_list_key(inner)}"
    if isinstance(inner, str):
        try:
            inner = json.loads(inner, object_pairs_hook=unique_keys)
        except DataError as error:
            raise DataError(f"{file}: {f'{path}/{key}'.lstrip('/')}: {error}") from error
        except ValueError as error:
            raise entry.error(key, "a list of criteria") from error
    return task, entries_of(inner, file, f"{path}/{key}" if path else key, losses), context


def _criterion(entry: Entry) -> Criterion | None:
    if "criterion" in entry.data or "points" in entry.data:
        return read_points(entry)
    text = entry.text("description")
    match = _PREFIX.match(text)
    tier = match.group(1).lower() if match else ""
    statement = text[match.end() :] if match else text
    if not statement.strip():
        raise entry.error("description", "a tier and a text")
    title = entry.text("title", "")
    name = usable_id(title)
    tags = ((f"tier:{tier}",) if tier else ()) + ((f"title:{title}",) if title and not name else ())
    negated = _NEGATED.match(statement) is not None
    weight = _weight(entry, tier, negated)
    entry.drop_rest()
    if weight is None:
        return None
    if negated and (weight[1] == "penalty" or tier == "pitfall"):
        kept = "a fault" if weight[1] == "penalty" else "a merit"
        detail = f"a negated pitfall: polarity ambiguous, not decided; what it says counts as {kept}"
        entry.lose("description", "inferred", detail)
    return Criterion(statement, *weight, id=name, tags=tags)


def _weight(entry: Entry, tier: str, negated: bool) -> tuple[float, Polarity] | None:
    given = entry.data.get("weight")
    if isinstance(given, str) and given.strip().lower() in TIERS:
        tier = given.strip().lower()
    if given is None or isinstance(given, str):
        entry.used.add("weight")
        if tier not in TIERS:
            raise entry.error("weight", f"a number, or a tier ({', '.join(TIERS)}) before the description")
        weight, polarity = TIERS[tier]
        entry.lose("weight", "inferred", f"tier {tier}: {polarity} of weight {weight:g}")
        return weight, polarity
    value = entry.number("weight")
    if value == 0:
        entry.lose("", "dropped", "weight 0: the criterion cannot move a score")
        return None
    turned = tier == "pitfall" and value > 0 and not negated
    if turned:
        entry.lose("weight", "inferred", f"a pitfall of weight {value:g} is a penalty")
    return abs(value), "penalty" if value < 0 or turned else "reward"


def write(rubric: Rubric) -> Written:
    """One record in RubricHub's form."""
    row = {"prompt_id": rubric.id, "rubrics": [write_points(t) for t in rubric.theorems]}
    return Written(as_row(row), ids(rubric.theorems))


def write_rar(rubric: Rubric) -> Written:
    """One record in RaR's form; the tier is the tag ``tier:…``, else the one of the nearest weight below."""
    row = {"id": rubric.id, "question": "", "rubric": [_rar(t) for t in rubric.theorems]}
    return Written(as_row(row), ids(rubric.theorems))


def _rar(theorem: Theorem) -> dict[str, Any]:
    named = dict(tag.split(":", 1) for tag in theorem.tags if ":" in tag)
    tier = named.get("tier", "")
    negated = tier == "pitfall" and _NEGATED.match(theorem.statement)
    if TIERS.get(tier, ("", ""))[1] != theorem.polarity and not negated:
        rewards = [
            name for name, (weight, side) in TIERS.items() if side == "reward" and weight <= theorem.weight
        ]
        tier = "pitfall" if theorem.polarity == "penalty" else next(iter(rewards), "optional")
    title = named.get("title", theorem.id)
    return {
        "title": title,
        "description": f"{tier.title()} Criteria: {theorem.statement}",
        "weight": signed_weight(theorem),
    }
