"""P1 to P10 of RUBRICS.md section 7 over random rubrics and verdicts, both scales, against an exact reference."""

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from axiomrm.data.trajectory import Message, Task, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.rubrics import ActiveRubric, Aggregate, Personal, Rubric, aggregate
from axiomrm.rubrics.bind import ActiveItem

Outcome = Scored | CannotAssess | Failed
TOL = 1e-9
TENTHS = [Fraction(n, 20) for n in range(21)]
SEVERITIES = ("minor", "major")


@dataclass(frozen=True)
class World:
    """A bound rubric with verdicts for everything in it."""

    active: ActiveRubric
    verdicts: dict[str, Any]


def _rubric(rng: random.Random, scale: str) -> dict[str, Any]:
    axioms: list[dict[str, Any]] = [{"id": "ax.base", "statement": "Serves.", "type": "premise"}]
    for i in range(rng.choice([0, 0, 1, 2, 3])):
        level = rng.choice(["trajectory", "trajectory", "turn"])
        hard = rng.random() < 0.5
        axiom: dict[str, Any] = {
            "id": f"ax.a{i}",
            "statement": f"Complies {i}.",
            "type": "hard" if hard else "soft",
        }
        axiom["evidence"] = {"level": level}
        axiom["on_cannot_assess"] = rng.choice(["abstain", "violate"] if hard else ["worst", "skip"])
        if not hard:
            axiom |= rng.choice([{"cap": 0.4}, {"caps": {"minor": 0.8, "major": 0.25}}])
        axioms.append(axiom)
    theorems = [_theorem(rng, i) for i in range(rng.randint(1, 6))]
    templates = (
        [_template(i, rng) for i in range(rng.choice([0, 1, 2]))]
        if theorems[0]["polarity"] == "reward"
        else []
    )
    policy = {
        "scale": scale,
        "min_coverage": rng.choice([0, 0, 0.3, 0.6]),
        "turn_min_coverage": rng.choice([0, 0.5]),
    }
    header = {"id": "world", "version": "1.0.0"}
    body = {"schema": "atr/1", "rubric": header, "axioms": axioms, "theorems": theorems}
    return body | {"personal_templates": templates, "policy": policy}


def _evidence(rng: random.Random, binary: bool) -> dict[str, Any]:
    if rng.random() < 0.5:
        return {"level": "trajectory"}
    how = rng.choice(["mean", "min", "max", "last", *(["any", "all"] if binary else [])])
    return {"level": "turn", "reduce": how, "if_never": rng.choice(["skip", "worst"])}


def _theorem(rng: random.Random, i: int) -> dict[str, Any]:
    return {
        "id": f"th.t{i}",
        "derived_from": ["ax.base"],
        "derivation": "given",
        "statement": f"Statement {i}.",
        "polarity": "reward" if i == 0 else rng.choice(["reward", "reward", "penalty"]),
        "weight": rng.choice([0.5, 1, 2, 3, 7]),
        "on_cannot_assess": rng.choice(["worst", "skip"]),
        "evidence": _evidence(rng, True),
    }


def _template(i: int, rng: random.Random) -> dict[str, Any]:
    slots = ["stated.verbosity", "stated.format"]
    return {
        "id": f"pt.p{i}",
        "specialises": "th.t0",
        "reads": [slots[i]],
        "statement": f"Personal {i}.",
        "dimension": "form",
        "max_weight": rng.choice([1, 2]),
        "weight": rng.choice([1, 2]),
        "on_cannot_assess": rng.choice(["worst", "skip"]),
        "evidence": _evidence(rng, True),
    }


_LOADED: dict[str, Rubric] = {}
KINDS = 150
"""Different rubrics of the quick run; reading one costs more than a hundred aggregations."""


def _load(body: Mapping[str, Any]) -> Rubric:
    text = json.dumps(body)
    if text not in _LOADED:
        _LOADED[text] = Rubric.loads(text, "world.json")
    return _LOADED[text]


def _body(rng: random.Random) -> dict[str, Any]:
    kind = random.Random(rng.randrange(KINDS))
    return _rubric(kind, kind.choice(["net", "signed"]))


def _outcome(rng: random.Random, axiom: bool, missing: bool = True) -> Outcome:
    kind = rng.random()
    if missing and kind < 0.1:
        return CannotAssess(reason="not recorded")
    if missing and kind < 0.16:
        return Failed(kind="timeout")
    if axiom:
        bad = rng.random() < 0.25
        return Scored(value=0.0 if bad else 1.0, label=rng.choice(SEVERITIES) if bad else "")
    return Scored(value=float(rng.choice(TENTHS)))


def _verdicts(rng: random.Random, active: ActiveRubric, turns: int, missing: bool = True) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in active.judged:
        axiom = not isinstance(item, ActiveItem)
        if item.evidence.level == "turn":
            row = [_outcome(rng, axiom, missing) if rng.random() < 0.8 else None for _ in range(turns)]
            out[item.id] = row
        else:
            out[item.id] = _outcome(rng, axiom, missing)
    return out


def _world(seed: int, missing: bool = True) -> World:
    rng = random.Random(seed)
    body = _body(rng)
    slots = {"stated.verbosity": 2, "stated.format": "list"}
    personal = Personal(slots, rng.choice([0.1, 0.25, 0.4])) if rng.random() < 0.5 else None
    active = _load(body).bind({}, personal)
    return World(active, _verdicts(rng, active, rng.randint(1, 4), missing))


SEEN: Counter[str] = Counter()


def _count(world: World, result: Aggregate) -> None:
    """Which of the things that a property must meet were in this example."""
    active = world.active
    SEEN["all"] += 1
    SEEN[active.policy.scale] += 1
    SEEN["gate"] += result.gate is not None and result.gate < 1
    SEEN["abstain"] += result.reward is None
    SEEN["turn items"] += any(i.evidence.level == "turn" for i in active.items)
    SEEN["personal share"] += result.share > 0


def _near(a: float | None, b: float | None) -> bool:
    return a is b if a is None or b is None else abs(a - b) <= TOL


seeds = st.integers(0, 2**48)


def prop(test: Callable[[int], None]) -> Callable[..., None]:
    """The property on 2,000 random examples."""
    run = settings(max_examples=2000, deadline=None, database=None, suppress_health_check=list(HealthCheck))

    def run_property() -> None:
        run(given(seeds)(test))()

    run_property.__name__ = test.__name__
    run_property.__doc__ = test.__doc__
    return run_property


@prop
def test_p1_the_reward_lies_in_its_interval_and_range(seed: int) -> None:
    world = _world(seed)
    result = aggregate(world.active, world.verdicts)
    _count(world, result)
    plus = math.fsum(c.weight for c in result.contributions if c.polarity == "reward")
    minus = math.fsum(c.weight for c in result.contributions if c.polarity == "penalty")
    low, high = (0.0, 1.0) if world.active.policy.scale == "net" else (-minus, plus)
    lo, hi = result.interval
    assert low - TOL <= lo <= hi <= high + TOL
    assert (result.reward is None) == bool(result.reason)
    if result.reward is not None:
        assert lo <= result.reward <= hi


def test_p1_met_every_kind_of_example_often_enough() -> None:
    rates = {
        k: SEEN[k] / max(1, SEEN["all"])
        for k in ("gate", "abstain", "turn items", "personal share", "net", "signed")
    }
    if SEEN["all"] < 2000:
        for seed in range(2000):
            world = _world(seed * 7919)
            _count(world, aggregate(world.active, world.verdicts))
        rates = {k: SEEN[k] / SEEN["all"] for k in rates}
    assert all(rate >= 0.05 for rate in rates.values()), rates


def _better(rng: random.Random, item: Any, verdict: Outcome) -> Outcome:
    if not isinstance(verdict, Scored):
        return verdict
    if not isinstance(item, ActiveItem):
        milder = rng.choice(["", "minor"]) if verdict.label != "minor" else ""
        return Scored(value=1.0) if milder == "" else verdict.model_copy(update={"label": milder})
    step = float(rng.choice(TENTHS))
    up = item.polarity == "reward"
    value = min(1.0, verdict.value + step) if up else max(0.0, verdict.value - step)
    return verdict.model_copy(update={"value": value})


def _changed(world: World, rng: random.Random, change: Callable[[Any, Outcome], Outcome]) -> dict[str, Any]:
    """The verdicts with one of them replaced."""
    item = rng.choice(world.active.judged)
    old = world.verdicts[item.id]
    if not isinstance(old, list):
        return world.verdicts | {item.id: change(item, old)}
    places = [i for i, v in enumerate(old) if v is not None]
    if not places:
        return world.verdicts
    at = rng.choice(places)
    return world.verdicts | {item.id: [change(item, v) if i == at else v for i, v in enumerate(old)]}


@prop
def test_p2_a_better_verdict_lowers_nothing(seed: int) -> None:
    world, rng = _world(seed), random.Random(seed + 1)
    before = aggregate(world.active, world.verdicts)
    after = aggregate(world.active, _changed(world, rng, lambda item, v: _better(rng, item, v)))
    assert after.interval[0] >= before.interval[0] - TOL
    assert after.interval[1] >= before.interval[1] - TOL
    if before.reward is not None:
        assert after.reward is not None and after.reward >= before.reward - TOL


@prop
def test_p3_no_merit_lifts_the_reward_above_the_gate(seed: int) -> None:
    world = _world(seed)
    best: dict[str, Any] = dict(world.verdicts)
    for item in world.active.items:
        top = Scored(value=1.0 if item.polarity == "reward" else 0.0)
        old = world.verdicts[item.id]
        best[item.id] = [v and top for v in old] if isinstance(old, list) else top
    result = aggregate(world.active, best)
    if result.reward is None or result.gate is None:
        return
    weights = [(c.weight, c.polarity) for c in result.contributions]
    total = math.fsum(w for w, _ in weights)
    minus = math.fsum(w for w, p in weights if p == "penalty")
    bound = result.gate if world.active.policy.scale == "net" else result.gate * total - minus
    assert result.reward <= bound + TOL


@prop
def test_p4_the_unit_of_weights_does_not_matter(seed: int) -> None:
    world, factor = _world(seed), random.Random(seed + 1).choice([0.125, 3.0, 10.0])
    items = tuple(replace(i, base_weight=i.base_weight * factor) for i in world.active.items)
    scaled = aggregate(replace(world.active, items=items), world.verdicts)
    plain = aggregate(world.active, world.verdicts)
    unit = 1.0 if world.active.policy.scale == "net" else factor
    assert _near(scaled.reward, None if plain.reward is None else plain.reward * unit)
    assert all(
        abs(a - b * unit) <= TOL * factor for a, b in zip(scaled.interval, plain.interval, strict=True)
    )


@prop
def test_p5_the_order_of_items_is_irrelevant_to_the_bit(seed: int) -> None:
    world, rng = _world(seed), random.Random(seed + 1)
    items, axioms = list(world.active.items), list(world.active.axioms)
    rng.shuffle(items)
    rng.shuffle(axioms)
    names = list(world.verdicts)
    rng.shuffle(names)
    shuffled = replace(world.active, items=tuple(items), axioms=tuple(axioms))
    a = aggregate(world.active, world.verdicts)
    b = aggregate(shuffled, {n: world.verdicts[n] for n in names})
    for field in (
        "reward",
        "interval",
        "coverage",
        "gate",
        "base",
        "unclipped",
        "generic",
        "personal",
        "reason",
    ):
        assert getattr(a, field) == getattr(b, field), field


@prop
def test_p6_an_item_that_does_not_apply_changes_nothing(seed: int) -> None:
    rng = random.Random(seed)
    kind = rng.randrange(KINDS)
    rng, late = random.Random(kind), random.Random(seed + 1)
    body = _rubric(rng, rng.choice(["net", "signed"]))
    extra = _theorem(rng, 99) | {"applies_when": "never", "polarity": rng.choice(["reward", "penalty"])}
    extra["evidence"]["if_never"] = "skip" if extra["evidence"]["level"] == "trajectory" else "worst"
    extra["evidence"] = {
        k: v for k, v in extra["evidence"].items() if extra["evidence"]["level"] == "turn" or k == "level"
    }
    wider = body | {
        "features": {"never": {"type": "bool", "default": False}},
        "theorems": [*body["theorems"], extra],
    }
    active, more = _load(body).bind({}), _load(wider).bind({})
    verdicts = _verdicts(late, active, late.randint(1, 4))
    assert [i.id for i in active.items] == [i.id for i in more.items]
    assert aggregate(active, verdicts) == aggregate(more, verdicts)


def _resolved(rng: random.Random, item: Any, verdict: Outcome) -> Outcome:
    return (
        verdict
        if isinstance(verdict, Scored)
        else _outcome(rng, not isinstance(item, ActiveItem), missing=False)
    )


@prop
def test_p7_whatever_is_missing_turns_out_to_be_the_reward_lands_in_the_interval(seed: int) -> None:
    world, rng = _world(seed), random.Random(seed + 1)
    full: dict[str, Any] = {}
    for item in world.active.judged:
        old = world.verdicts[item.id]
        rows = old if isinstance(old, list) else [old]
        new = [None if v is None else _resolved(rng, item, v) for v in rows]
        full[item.id] = new if isinstance(old, list) else new[0]
    lo, hi = aggregate(world.active, world.verdicts).interval
    known = aggregate(world.active, full)
    if known.reward is not None:
        assert lo - TOL <= known.reward <= hi + TOL


@prop
def test_p8_resolving_one_missing_verdict_only_narrows_the_interval(seed: int) -> None:
    world, rng = _world(seed), random.Random(seed + 1)
    before = aggregate(world.active, world.verdicts).interval
    missing = replace(world, verdicts=world.verdicts)
    after = aggregate(world.active, _changed(missing, rng, lambda item, v: _resolved(rng, item, v))).interval
    assert before[0] - TOL <= after[0] <= after[1] <= before[1] + TOL


_P9_FIELDS: list[dict[str, Any]] = [
    {"applies_when": "kind == a"},
    {"applies_when": "kind in {b, c}", "polarity": "penalty"},
    {"applies_when": "turn >= 1", "evidence": {"level": "turn", "reduce": "mean"}},
    {
        "applies_when": "turn == 0 and kind != c",
        "evidence": {"level": "turn", "reduce": "last"},
    },
    {},
]
_P9 = Rubric.loads(
    json.dumps(
        {
            "schema": "atr/1",
            "rubric": {"id": "p9", "version": "1.0.0"},
            "features": {"kind": {"type": "enum", "values": ["a", "b", "c"]}},
            "turn_features": {"turn": {"type": "int", "range": [0, 9], "probe": "turn_index"}},
            "axioms": [
                {"id": "ax.base", "statement": "Serves.", "type": "premise"},
                {
                    "id": "ax.late",
                    "statement": "Keeps.",
                    "type": "hard",
                    "applies_when": "turn >= 1",
                    "evidence": {"level": "turn"},
                },
            ],
            "theorems": [
                {
                    "id": f"th.{i}",
                    "derived_from": ["ax.base"],
                    "derivation": "given",
                    "statement": f"S {i}.",
                    **fields,
                }
                for i, fields in enumerate(_P9_FIELDS)
            ],
        }
    ),
    "p9.json",
)


def _dialogue(rng: random.Random, kind: str, turns: int) -> Trajectory:
    words = ["yes", "no?", "1. do it", "```x```", "", "你好", "refund now!"]
    messages: list[Message] = []
    for _ in range(turns):
        messages.append(Message(role="user", content=rng.choice(words)))
        messages.append(Message(role="assistant", content=" ".join(rng.choices(words, k=rng.randint(0, 9)))))
    return Trajectory(messages=tuple(messages), task=Task(features={"kind": kind}))


def _shape(active: ActiveRubric) -> tuple[Any, ...]:
    return tuple((i.id, i.weight, i.applies) for i in active.items), tuple(a.id for a in active.axioms)


@prop
def test_p9_what_applies_is_equal_for_all_replies(seed: int) -> None:
    rng = random.Random(seed)
    kind, turns = rng.choice("abc"), rng.randint(1, 4)
    one = _dialogue(rng, kind, turns)
    at = rng.randrange(turns)
    reply = Message(role="assistant", content=_dialogue(rng, kind, 1).messages[-1].content)
    place = one.turns[at].start
    other = one.model_copy(update={"messages": (*one.messages[:place], reply, *one.messages[place + 1 :])})
    bound = [_P9.bind(t.task.features) for t in (one, other)]
    assert _shape(bound[0]) == _shape(bound[1])
    at_turn = [b.at_turn(t.before(at)) for b, t in zip(bound, (one, other), strict=True)]
    assert _shape(at_turn[0]) == _shape(at_turn[1])


@prop
def test_p10_a_share_of_zero_gives_the_generic_result(seed: int) -> None:
    rng = random.Random(seed)
    rubric = _load(_body(rng))
    generic = rubric.bind({})
    neutral = rubric.bind({}, Personal({"stated.verbosity": 2, "stated.format": "list"}, 0.0))
    verdicts = _verdicts(rng, generic, rng.randint(1, 4))
    assert aggregate(generic, verdicts) == aggregate(neutral, verdicts)
    assert generic.compiled_hash == neutral.compiled_hash
    assert [(i.id, i.statement, i.weight, i.cases) for i in generic.items] == [
        (i.id, i.statement, i.weight, i.cases) for i in neutral.items
    ]


def _reference(world: World) -> tuple[Fraction | None, Fraction, Fraction]:
    """Net or signed reward without axioms, in fractions, written straight from section 7."""
    limit = Fraction(world.active.policy.turn_min_coverage)
    rows = [(i, r) for i in world.active.items if (r := _row(i, world.verdicts[i.id], limit)) is not None]
    lam = Fraction(str(world.active.share))
    generic = sum(
        (Fraction(i.base_weight) for i, _ in rows if i.polarity == "reward" and not i.personal), Fraction()
    )
    own = sum((Fraction(i.base_weight) for i, _ in rows if i.personal), Fraction())
    if not own or not generic:
        lam, rows = Fraction(), [(i, r) for i, r in rows if not i.personal]
    weighted = []
    for item, row in rows:
        w = Fraction(item.base_weight)
        if item.personal:
            w *= lam * generic / own
        elif item.polarity == "reward":
            w *= 1 - lam
        weighted.append((item.polarity == "reward", w, row))
    points = [_value(world, weighted, k) for k in (2, 0, 1)]
    low, high = points[1], points[2]
    assert low is not None and high is not None
    return points[0], low, high


def _row(
    item: ActiveItem, verdict: Any, limit: Fraction
) -> tuple[Fraction, Fraction, Fraction | None] | None:
    """lo, hi, point in the direction of *goodness*: for a penalty lo is its largest value."""
    many = verdict if isinstance(verdict, list) else [verdict]
    worst = Fraction(item.polarity == "penalty")
    rows: list[tuple[Fraction, Fraction, Fraction | None, int]] = []
    for v in (v for v in many if v is not None):
        if isinstance(v, Scored):
            rows.append((Fraction(v.value), Fraction(v.value), Fraction(v.value), 1))
        else:
            counts = isinstance(v, CannotAssess) and item.on_cannot_assess == "worst"
            rows.append((Fraction(0), Fraction(1), worst if counts else None, 0))
    if not rows:
        return (worst, worst, worst) if item.evidence.if_never == "worst" else None
    point: Fraction | None
    if not isinstance(verdict, list):
        lo, hi, point, _ = rows[0]
    else:
        reductions: dict[str, Callable[[list[Fraction]], Fraction]] = {
            "mean": lambda x: sum(x, Fraction()) / len(x),
            "min": lambda x: min(x),
            "max": lambda x: max(x),
            "any": lambda x: max(x),
            "all": lambda x: min(x),
            "last": lambda x: x[-1],
        }
        how = reductions[item.evidence.reduce or "mean"]
        known = [p for _, _, p, _ in rows if p is not None]
        enough = Fraction(sum(s for *_, s in rows), len(rows)) >= limit
        lost = item.evidence.reduce == "last" and rows[-1][2] is None
        point = how(known) if known and enough and not lost else None
        lo, hi = how([r[0] for r in rows]), how([r[1] for r in rows])
    return (hi, lo, point) if item.polarity == "penalty" else (lo, hi, point)


def _value(world: World, rows: list[tuple[bool, Fraction, Any]], k: int) -> Fraction | None:
    sides = {}
    for reward in (True, False):
        mine = [(w, r[k]) for sign, w, r in rows if sign == reward]
        known = [(w, v) for w, v in mine if v is not None]
        if mine and not known:
            return None
        total = sum((w for w, _ in mine), Fraction())
        mean = (
            sum((w * v for w, v in known), Fraction()) / sum((w for w, _ in known), Fraction())
            if known
            else Fraction()
        )
        sides[reward] = (total, mean)
    (wp, mp), (wm, mm) = sides[True], sides[False]
    if world.active.policy.scale == "signed":
        return wp * mp - wm * mm
    if not wp:
        return 1 - mm
    return min(Fraction(1), max(Fraction(0), mp - wm / wp * mm))


@prop
def test_the_result_equals_an_exact_reference(seed: int) -> None:
    world = _world(seed)
    world = replace(world, active=replace(world.active, axioms=()))
    verdicts = {i.id: world.verdicts[i.id] for i in world.active.items}
    result = aggregate(world.active, verdicts)
    rows = [i for i in world.active.items if any(c.id == i.id for c in result.contributions)]
    if not rows:
        assert result.reward is None and "applicable" in result.reason
        return
    reward, low, high = _reference(World(world.active, verdicts))
    assert abs(result.interval[0] - float(low)) < TOL and abs(result.interval[1] - float(high)) < TOL
    if result.reward is not None:
        assert reward is not None
        assert abs(result.reward - float(min(high, max(low, reward)))) < TOL
    elif "coverage" not in result.reason:
        assert reward is None
