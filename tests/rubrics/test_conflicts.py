"""Conflict search: planted conflicts are found, none is invented; enumeration, boxes and z3 agree."""

import functools
import itertools
import json
import random
from collections.abc import Mapping
from typing import Any

import pytest

from axiomrm.rubrics import Rubric, conflicts, conflicts_smt
from axiomrm.rubrics.cells import Undecided, first_model, points
from axiomrm.rubrics.clauses import Clause
from axiomrm.rubrics.conflicts import Search, e120_pairs, e122_cores
from axiomrm.rubrics.cores import find_cores
from axiomrm.rubrics.expr import Expr, Value, evaluate, names_of, parse
from axiomrm.rubrics.expr_check import Variable
from axiomrm.rubrics.regions import Space, exclusive, inside

FEATURES: dict[str, dict[str, Any]] = {
    "domain": {"type": "enum", "values": ["a", "b", "c"]},
    "vip": {"type": "bool", "default": False},
    "load": {"type": "int", "range": [0, 3]},
}
FACETS: dict[str, dict[str, Any]] = {
    "words": {"type": "int", "range": [0, 6]},
    "form": {"type": "enum", "values": ["list", "table", "prose"]},
    "polite": {"type": "bool"},
    "score": {"type": "number", "range": [0, 1]},
}


def _test(rng: random.Random, table: Mapping[str, Mapping[str, Any]]) -> str:
    name = rng.choice(list(table))
    spec = table[name]
    if spec["type"] == "bool":
        return rng.choice([name, f"not {name}", f"{name} == true"])
    if spec["type"] == "enum":
        chosen = rng.sample(spec["values"], rng.randint(1, 2))
        return f"{name} {rng.choice(['in', 'not in'])} {{{', '.join(chosen)}}}"
    low, high = spec["range"]
    value = rng.choice([low, high, (low + high) / 2]) if spec["type"] == "number" else rng.randint(low, high)
    return f"{name} {rng.choice(['<', '<=', '>', '>=', '==', '!='])} {value}"


def _condition(rng: random.Random, table: Mapping[str, Mapping[str, Any]], depth: int = 2) -> str:
    if depth == 0 or rng.random() < 0.4:
        return _test(rng, table)
    left, right = _condition(rng, table, depth - 1), _condition(rng, table, depth - 1)
    return rng.choice(
        [f"({left}) and ({right})", f"({left}) or ({right})", f"not ({left})", f"({left}) implies ({right})"]
    )


def _rubric(rng: random.Random, n: int, depth: int = 2) -> Rubric:
    theorems = []
    for i in range(n):
        row: dict[str, Any] = {
            "id": f"th.t{i}",
            "derived_from": ["ax.base"],
            "derivation": "given",
            "statement": f"Statement {i}.",
        }
        row["requires"] = _condition(rng, FACETS, depth)
        if rng.random() < 0.7:
            row["applies_when"] = _condition(rng, FEATURES, 1)
        row["polarity"] = rng.choice(["reward", "reward", "penalty"])
        theorems.append(row)
    axioms = [{"id": "ax.base", "statement": "Serves.", "type": "premise"}]
    header = {"id": "random", "version": "1.0.0"}
    body = {"schema": "atr/1", "rubric": header, "features": FEATURES, "facets": FACETS}
    return Rubric.loads(json.dumps(body | {"axioms": axioms, "theorems": theorems}), "random.json")


def _worlds(variables: Mapping[str, Variable], names: list[str], exprs: list[Expr]) -> list[dict[str, Value]]:
    domains = [points(variables[n], exprs) for n in names]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*domains)]


def _brute(rubric: Rubric, clauses: tuple[Clause, ...], largest: int) -> set[frozenset[str]]:
    """Minimal jointly impossible sets by trying every scenario and every reply."""
    exprs = [e for c in clauses for e in (c.applies, c.wants)]
    scenarios = _worlds(rubric.variables, list(FEATURES), exprs)
    replies = _worlds(rubric.variables, list(FACETS), exprs)
    applies = {frozenset(c.id for c in clauses if evaluate(c.applies, s)) for s in scenarios}
    fulfils = {frozenset(c.id for c in clauses if evaluate(c.wants, r)) for r in replies}
    possible = [c.id for c in clauses if any(c.id in f for f in fulfils)]
    found: set[frozenset[str]] = set()
    for size in range(2, largest + 1):
        for names in map(frozenset, itertools.combinations(possible, size)):
            if any(old <= names for old in found) or not any(names <= a for a in applies):
                continue
            if not any(names <= f for f in fulfils):
                found.add(names)
    return found


@pytest.mark.parametrize("seed", range(40))
def test_pairs_and_cores_are_those_of_brute_force(seed: int) -> None:
    rubric = _rubric(random.Random(seed), 6, 1 + seed % 2)
    search = Search(rubric)
    pairs = {frozenset((a.id, b.id)) for a, b in search.pairs()}
    cores, unfinished = search.cores()
    wanted = _brute(rubric, search.clauses, 6)
    assert pairs == {w for w in wanted if len(w) == 2}
    assert not unfinished
    assert {frozenset(c.id for c in core) for core in cores} == {w for w in wanted if len(w) > 2}


def test_the_brute_force_comparison_meets_conflicts_cores_and_clean_rubrics() -> None:
    kinds = set()
    for seed in range(40):
        search = Search(_rubric(random.Random(seed), 6, 1 + seed % 2))
        kinds |= {"pair"} if list(search.pairs()) else {"no pair"}
        kinds |= {"core"} if search.cores()[0] else set()
    assert kinds == {"pair", "no pair", "core"}


@pytest.mark.parametrize("seed", range(100, 112))
def test_enumeration_and_z3_agree(seed: int) -> None:
    smt: Any = conflicts_smt
    if not smt.available():
        pytest.skip("the smt extra is not installed")
    rubric = _rubric(random.Random(seed), 7)
    search = Search(rubric)
    ours = {frozenset((a.id, b.id)) for a, b in search.pairs()}
    theirs = {frozenset((a.id, b.id)) for a, b in smt.pair_conflicts(search.clauses, rubric.variables)}
    assert ours == theirs
    cores = {frozenset(c.id for c in core) for core in search.cores()[0]}
    joint = {frozenset(c.id for c in core) for core in smt.joint_cores(search.clauses, rubric.variables)}
    # z3 stops once every scenario is explained: it finds some core for each conflict, ours finds all cores.
    assert joint <= ours | cores
    assert bool(joint) == bool(ours | cores)
    encoder_truth = _z3_truth(smt, rubric, search)
    assert encoder_truth == {c.id: bool(search.good[c]) for c in search.clauses}


def _z3_truth(smt: Any, rubric: Rubric, search: Search) -> dict[str, bool]:
    out = {}
    for clause in search.clauses:
        encoder = smt.Encoder(rubric.variables)
        formula = encoder.encode(clause.wants)
        model = encoder.model([formula])
        assert model is None or evaluate(clause.wants, model) is True
        out[clause.id] = model is not None
    return out


@pytest.mark.parametrize("seed", range(200))
def test_boxes_say_of_every_world_what_the_condition_says(seed: int) -> None:
    rng = random.Random(seed)
    a, b = (parse(_condition(rng, FACETS, 3)) for _ in range(2))
    variables = _rubric(random.Random(0), 1).variables
    space = Space(variables, [a, b])
    names = sorted(names_of(a) | names_of(b))
    worlds = _worlds(variables, names, [a, b])
    truths = [(evaluate(a, w), evaluate(b, w)) for w in worlds]
    assert bool(space.region(a)) == any(x for x, _ in truths)
    assert exclusive(space.region(a), space.region(b)) == (not any(x and y for x, y in truths))
    assert inside(space.region(a), space.region(b), space) == all(y for x, y in truths if x)
    whole = space.intervals(space.region(a))
    assert inside(space.region(a), whole, space) and inside(whole, space.region(a), space)
    first = first_model([a, b], variables)
    expected = next((w for w, (x, y) in zip(worlds, truths, strict=True) if x and y), None)
    assert first == expected


PLANTED = """
schema: atr/1
rubric: {id: demo, version: 1.0.0, imports: ["core_axioms@^1.0"]}
features:
  domain: {type: enum, values: [orders, technical]}
turn_features:
  slots_missing: {type: int, range: [0, 8], probe: turn_index}
facets:
  len_words: {type: int, range: [0, 2000], probe: word_count}
  n_steps: {type: int, range: [0, 40], probe: list_items}
defaults: {evidence: {level: turn, reduce: mean}}
theorems:
  - {id: th.concise, derived_from: [ax.respect], derivation: time, statement: Says it briefly., requires: len_words <= 180}
  - {id: th.steps, derived_from: [ax.helpful], derivation: steps, statement: Gives steps.,
     applies_when: domain == technical and slots_missing == 0, requires: n_steps >= 2 and len_words >= 40}
personal_templates:
  - id: pt.verbosity
    specialises: th.concise
    reads: [stated.verbosity]
    params: {limit: {slot: stated.verbosity, map: {1: 30, 2: 80, 3: 120, 4: 150, 5: 180}}}
    statement: "At most {limit} words."
    requires: "len_words <= {limit}"
    dimension: form
    max_weight: 2
"""


def test_the_witness_of_the_specification_comes_out_in_words() -> None:
    rubric = Rubric.loads(PLANTED, "demo.yaml")
    found = list(e120_pairs(Search(rubric)))
    assert [f.code for f in found] == ["E121"]
    text = found[0].text()
    assert "pt.verbosity (limit=30, from stated.verbosity=1) and th.steps cannot both hold" in text
    assert "scenario   domain=technical, slots_missing=0 (all other features: any)" in text
    assert "no reply   len_words <= 30  and  n_steps >= 2 and len_words >= 40" in text
    assert "no conflict with 80, 120, 150, 180; or give th.steps `beats: [pt.verbosity]`" in text


def test_a_beats_edge_settles_a_pair_and_the_loser_is_dropped() -> None:
    text = PLANTED.replace("requires: n_steps >= 2", "beats: [pt.verbosity], requires: n_steps >= 2")
    assert list(e120_pairs(Search(Rubric.loads(text, "demo.yaml")))) == []


def test_turn_and_trajectory_items_are_not_compared() -> None:
    text = PLANTED.replace("  - {id: th.concise,", "  - {id: th.concise, evidence: {level: trajectory},")
    text = text.replace("len_words <= 180", "len_words <= 10").replace("map: {1: 30", "map: {1: 40")
    assert list(e120_pairs(Search(Rubric.loads(text, "demo.yaml")))) == []


def test_a_search_over_budget_says_so_and_never_looks_clean() -> None:
    rubric = Rubric.loads(PLANTED, "demo.yaml")
    with pytest.raises(Undecided):
        first_model(
            [parse("len_words != 3 and n_steps != 2 and n_steps > 39 and len_words > 1999")],
            rubric.variables,
            budget=2,
        )
    rows = [f"(x{i} == 1 or x{i} == 3)" for i in range(10)]
    huge = " and ".join(rows)
    facets = {f"x{i}": {"type": "int", "range": [0, 9]} for i in range(10)}
    item = {
        "id": "th.huge",
        "derived_from": ["ax.base"],
        "derivation": "given",
        "statement": "Says it.",
        "requires": huge,
    }
    axioms = [
        {"id": "ax.base", "statement": "Serves.", "type": "premise"},
        {"id": "ax.g", "statement": "C.", "type": "hard"},
    ]
    body = {
        "schema": "atr/1",
        "rubric": {"id": "huge", "version": "1.0.0"},
        "facets": facets,
        "axioms": axioms,
        "theorems": [item],
    }
    loaded = Rubric.loads(json.dumps(body), "huge.json")
    assert "W124" in {f.code for f in e122_cores(Search(loaded))}


def _core_of_three() -> Rubric:
    facets = {"x": {"type": "enum", "values": ["a", "b", "c"]}}
    rows = ["x in {a, b}", "x in {b, c}", "x in {a, c}"]
    given = {"derived_from": ["ax.base"], "derivation": "given"}
    theorems = [
        {"id": f"th.t{i}", "statement": f"S {i}.", "requires": r, **given} for i, r in enumerate(rows)
    ]
    axioms = [{"id": "ax.base", "statement": "Serves.", "type": "premise"}]
    body = {
        "schema": "atr/1",
        "rubric": {"id": "three", "version": "1.0.0"},
        "facets": facets,
        "axioms": axioms,
    }
    return Rubric.loads(json.dumps(body | {"theorems": theorems}), "three.json")


@pytest.mark.parametrize("with_z3", [True, False])
def test_above_the_budget_z3_decides_or_the_linter_says_that_nobody_did(
    with_z3: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if with_z3 and not conflicts_smt.available():
        pytest.skip("the smt extra is not installed")
    monkeypatch.setattr(conflicts, "find_cores", functools.partial(find_cores, budget=1))
    if not with_z3:
        monkeypatch.setattr(conflicts_smt, "available", lambda: False)
    found = list(e122_cores(Search(_core_of_three())))
    assert [f.code for f in found] == (["E122"] if with_z3 else ["W124"])
    assert "core: th.t0 · th.t1 · th.t2" in found[0].message or "install the `smt` extra" in found[0].hint
