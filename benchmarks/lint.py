"""How long lint takes: a generated rubric of N items (12 features, 10 facets, half of the items with `requires`).

    python benchmarks/lint.py            # 50, 100, 200, 400, 800 items; without z3
    python benchmarks/lint.py 200        # one size

Times are CPU seconds of this process beyond start-up, best of three: absolute figures drift from machine to machine.
"""

import random
import sys
import time
from typing import Any

from axiomrm.rubrics import Rubric, conflicts_smt
from axiomrm.rubrics.lint import lint
from axiomrm.rubrics.load import assemble
from axiomrm.rubrics.read import read_text
from axiomrm.rubrics.yaml_write import to_yaml

SUBJECTS = [
    "the deadline",
    "the fee",
    "the address",
    "the next step",
    "the contract",
    "the order",
    "the invoice",
]
VERBS = ["Names", "Repeats", "Confirms", "Explains", "Quotes", "Checks", "Links", "Sums up"]


def features(rng: random.Random) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for i in range(4):
        out[f"flag_{i}"] = {"type": "bool", "default": False}
        out[f"kind_{i}"] = {"type": "enum", "values": ["a", "b", "c", "d"], "default": "a"}
        out[f"count_{i}"] = {"type": "int", "range": [0, 9], "default": 0}
    return out


def condition(rng: random.Random) -> str:
    i = rng.randrange(4)
    tests = [
        f"flag_{i}",
        f"kind_{i} == {rng.choice('abcd')}",
        f"count_{i} >= {rng.randint(1, 9)}",
        f"kind_{i} in {{a, c}}",
    ]
    return " and ".join(rng.sample(tests, rng.choice([1, 1, 2])))


def requires(rng: random.Random) -> str:
    """Lower bounds up to 40 and upper bounds from 60 on, so that a clean rubric comes out; some alternatives."""
    tests = []
    for i in rng.sample(range(10), rng.choice([1, 1, 2])):
        tests.append(
            f"facet_{i} >= {rng.randint(1, 40)}"
            if rng.random() < 0.5
            else f"facet_{i} <= {rng.randint(60, 99)}"
        )
    if rng.random() < 0.1:
        a, b = rng.sample(range(10), 2)
        tests.append(f"(facet_{a} != {rng.randint(45, 55)} or facet_{b} <= {rng.randint(60, 99)})")
    return " and ".join(tests)


def rubric(n: int, seed: int = 0) -> dict[str, Any]:
    rng = random.Random(seed)
    theorems = []
    for i in range(n):
        words = f"{rng.choice(VERBS)} {rng.choice(SUBJECTS)} {rng.randint(0, 10**6)} {rng.randint(0, 10**6)}."
        item = {"id": f"th.t{i}", "derived_from": ["ax.base"], "derivation": "given", "statement": words}
        if i:
            item["applies_when"] = condition(rng)
        if i % 2:
            item["requires"] = requires(rng)
        theorems.append(item)
    facets = {f"facet_{i}": {"type": "int", "range": [0, 99]} for i in range(10)}
    axioms = [
        {"id": "ax.base", "statement": "Serves.", "type": "premise"},
        {"id": "ax.g", "statement": "Complies.", "type": "hard"},
    ]
    header = {"id": "generated", "version": "1.0.0"}
    return {
        "schema": "atr/1",
        "rubric": header,
        "features": features(rng),
        "facets": facets,
        "axioms": axioms,
        "theorems": theorems,
    }


def measure(n: int) -> tuple[float, float, float, dict[str, int]]:
    text = to_yaml(rubric(n))
    start = time.process_time()
    document = read_text(text, "generated.yaml")
    read = time.process_time() - start
    loaded, _, _ = assemble(document, None, ())
    assert isinstance(loaded, Rubric)
    built = time.process_time() - start
    codes: dict[str, int] = {}
    for finding in lint(loaded):
        codes[finding.code] = codes.get(finding.code, 0) + 1
    return read, built, time.process_time() - start, codes


def main() -> None:
    conflicts_smt.available = lambda: False
    sizes = [int(word) for word in sys.argv[1:]] or [50, 100, 200, 400, 800]
    print("items  read s  load s  lint s (all)  findings")
    for n in sizes:
        best = min((measure(n) for _ in range(3)), key=lambda row: row[2])
        print(f"{n:5}  {best[0]:6.3f}  {best[1]:6.3f}  {best[2]:12.3f}  {best[3]}")


if __name__ == "__main__":
    main()
