"""Calibration of SmolLM2-135M-Instruct as a judge, before and after, on labels given by people.

    python benchmarks/calibration.py            # goes on where it was stopped

Two sets, each split by ``group`` into a half that the calibrator is fitted on and a half that it never saw:
``hh_harmless`` pointwise (each answer of a pair by itself: was it the preferred one? Y or N) and ``pandalm``
pairwise (both answers shown, in both orders: A, B or T). Short items only, so that it runs on one core; the
limits stand in the result. The model was never trained as a judge, so X decides nothing and there is no
smallest mass. Intervals: 95 %, bootstrap over groups; differences are paired.
"""

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from axiomrm.data.human.files import load_pairs
from axiomrm.data.splits import split_by_group
from axiomrm.data.trajectory import Message, PreferencePair, Trajectory
from axiomrm.data.verdict import Failed, Scored
from axiomrm.data.writing import atomic_file
from axiomrm.eval.calibration import CalibrationItem, calibration_change, calibration_metrics
from axiomrm.eval.estimate import wilson
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rm.calibration import Calibration
from axiomrm.rm.calibration_fit import MIN_LABELS, Labelled, Method, fit_calibration
from axiomrm.rm.labels import BINARY, LabelSet
from axiomrm.rm.pairwise import LABELS, PairRequest, oriented

ROOT = Path(__file__).resolve().parents[1]
ASK = {
    "hh_harmless": "Is the last reply helpful, honest and harmless?",
    "pandalm": "Which answer follows the instruction better?",
}
CONTEXT_TOKENS, ANSWER_TOKENS = 100, 70
"""Longer items are left out."""
BATCH = 16


def short_pairs(name: str, count: Callable[[str], int]) -> list[PreferencePair]:
    """The pairs whose context and answers are short, in the order of the file."""
    pairs = [p for p in load_pairs(name).records if name == "pandalm" or p.label != "tie"]
    return [
        p
        for p in pairs
        if sum(count(m.content) for m in p.context) <= CONTEXT_TOKENS
        and max(count(p.a), count(p.b)) <= ANSWER_TOKENS
    ]


def answered(pair: PreferencePair, side: str) -> Trajectory:
    messages = (*pair.context, Message(role="assistant", content=pair.a if side == "a" else pair.b))
    return Trajectory(messages=messages, id=f"{pair.id}/{side}", group_id=pair.group)


def pointwise(pairs: list[PreferencePair]) -> Iterator[tuple[dict[str, str], VerdictRequest]]:
    criterion = Criterion("hh_harmless", ASK["hh_harmless"])
    for pair in pairs:
        for side in ("a", "b"):
            row = {"id": f"{pair.id}/{side}", "group": pair.group, "gold": "Y" if side == pair.label else "N"}
            trajectory = answered(pair, side)
            yield row, VerdictRequest(trajectory, criterion, len(trajectory.turns) - 1)


def read_all(judge: RewardModel, asked: list[tuple[dict[str, str], VerdictRequest]], path: Path) -> None:
    """One verdict a question, appended batch by batch, so that a stopped run goes on."""
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    seen = {row["id"] for row in done}
    left = [(row, request) for row, request in asked if row["id"] not in seen]
    with path.open("a") as out:
        for i in range(0, len(left), BATCH):
            batch = left[i : i + BATCH]
            for (row, _), verdict in zip(batch, judge.verdicts([r for _, r in batch]), strict=True):
                done.append({**row, "verdict": verdict.model_dump(mode="json")})
                out.write(json.dumps(done[-1]) + "\n")
            out.flush()
            print(f"{len(done)} of {len(asked)}", flush=True)


def pairwise(pairs: list[PreferencePair]) -> Iterator[tuple[dict[str, str], VerdictRequest]]:
    sides = {"a": {"a": "A", "b": "B", "tie": "T"}, "b": {"a": "B", "b": "A", "tie": "T"}}
    for pair in pairs:
        question = PairRequest(answered(pair, "a"), answered(pair, "b"), ASK["pandalm"])
        for first in ("a", "b"):
            row = {"id": f"{pair.id}/{first}", "group": pair.group, "gold": sides[first][pair.label]}
            yield row, oriented(question, first)


def reading_key(judge: RewardModel, asked: list[tuple[dict[str, str], VerdictRequest]]) -> str:
    """Names the file of readings: weights, precision and every prompt, so that no others are mixed in."""
    assert judge.engine is not None and judge.prompter is not None
    digest = hashlib.sha256(json.dumps(dict(judge.engine.identity), sort_keys=True).encode())
    for _, request in asked:
        prompt = judge.prompter.render(request.trajectory, request.criterion, request.turn)
        digest.update(repr(prompt if isinstance(prompt, Failed) else prompt.ids).encode())
    return digest.hexdigest()[:12]


def labelled(rows: list[dict[str, Any]], labels: LabelSet, revision: str) -> list[Labelled]:
    made = []
    for row in rows:
        verdict = Scored.model_validate(row["verdict"]) if row["verdict"]["status"] == "scored" else None
        if verdict is not None:
            made.append(Labelled(verdict, labels, row["gold"], revision, row["group"]))
    return made


def items(rows: list[Labelled], calibration: Calibration | None) -> list[CalibrationItem]:
    """Value and probability of the human's label of each verdict, calibrated or not."""
    found = []
    for row in rows:
        verdict = row.verdict if calibration is None else calibration.apply(row.verdict, row.labels)
        assert isinstance(verdict, Scored)
        p = verdict.distribution[row.labels.names[row.gold]]
        found.append(CalibrationItem(verdict.value, row.labels.values[row.gold], p, row.group))
    return found


def covered(rows: list[Labelled], calibration: Calibration) -> dict[str, float] | None:
    """How often the conformal interval holds the human's value, and how wide it is."""
    found = [(calibration.apply(r.verdict, r.labels), r.labels.values[r.gold]) for r in rows]
    bands = [(v.interval, y) for v, y in found if isinstance(v, Scored) and v.interval is not None]
    if not bands:
        return None
    return {
        "share": sum(low <= y <= high for (low, high), y in bands) / len(bands),
        "mean_width": sum(high - low for (low, high), _ in bands) / len(bands),
        "level": calibration.level,
    }


def accuracy(rows: list[Labelled], calibration: Calibration | None) -> dict[str, Any]:
    found = [r.verdict if calibration is None else calibration.apply(r.verdict, r.labels) for r in rows]
    right = sum(isinstance(v, Scored) and v.label == r.gold for v, r in zip(found, rows, strict=True))
    return wilson(right, len(rows)).model_dump(mode="json")


def mean_mass(verdicts: list[Scored]) -> float | None:
    """Mean probability on the labels, of the verdicts that have one; ``None``: none has."""
    known = [v.captured_mass for v in verdicts if v.captured_mass is not None]
    return sum(known) / len(known) if known else None


def measured(rows: list[Labelled], failed: int) -> dict[str, Any]:
    """Everything about one set: fitted on one half of the groups, measured on the other."""
    sides = split_by_group(rows, {"fit": 0.5, "test": 0.5}, seed=0, key=lambda r: r.group)
    fit, test = sides["fit"], sides["test"]
    result: dict[str, Any] = {
        "verdicts": {"read": len(rows) + failed, "failed": failed},
        "fit": {"n": len(fit), "groups": len({r.group for r in fit})},
        "test": {"n": len(test), "groups": len({r.group for r in test})},
        "gold_on_test": dict(Counter(r.gold for r in test)),
        "captured_mass": mean_mass([r.verdict for r in rows]),
        "before": calibration_metrics(items(test, None)).model_dump(mode="json"),
        "label_agreement_before": accuracy(test, None),
    }
    methods: tuple[Method, ...] = ("auto", "temperature", "isotonic")
    for method in methods if len(rows[0].labels.values) == 2 else ("temperature",):
        made = fit_calibration(fit, method=method, source="benchmarks/calibration.py")
        after = items(test, made)
        change = calibration_change(items(test, None), after)
        result[method] = {
            "calibrator": made.model_dump(mode="json"),
            "after": calibration_metrics(after).model_dump(mode="json"),
            "after_minus_before": change.model_dump(mode="json"),
            "conformal_on_test": covered(test, made),
            "label_agreement_after": accuracy(test, made),
        }
    rates = Counter(r.gold for r in fit)
    base = [rates[r.gold] / len(fit) for r in test]
    mean = sum(r.labels.values[r.gold] for r in fit) / len(fit)
    constant = [
        CalibrationItem(mean, r.labels.values[r.gold], p, r.group) for r, p in zip(test, base, strict=True)
    ]
    result["always the fit half's label shares"] = calibration_metrics(constant).model_dump(mode="json")
    return result


def read_sets(args: argparse.Namespace, kinds: dict[str, tuple[Any, LabelSet]]) -> dict[str, Path]:
    """The file of readings of each set, complete."""
    judge = RewardModel.from_pretrained(args.model, template="compact", calibration=None)
    assert judge.prompter is not None
    tokenizer = judge.prompter.tokenizer

    def count(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    paths = {}
    for name, (form, _) in kinds.items():
        asked = list(form(short_pairs(name, count)))[: args.items]
        paths[name] = args.work / f"{name}-{reading_key(judge, asked)}.jsonl"
        print(paths[name], flush=True)
        read_all(judge, asked, paths[name])
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / ".cache/smollm2-135m")
    parser.add_argument("--work", type=Path, default=ROOT / ".cache/calibration")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/calibration.json")
    parser.add_argument("--items", type=int, default=600, help="verdicts a set, at most")
    parser.add_argument(
        "--only-measure", action="store_true", help="measure the readings in --work, load no model"
    )
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {
        "what": "ECE, Brier score and NLL of an untrained judge before and after calibration, on labels by people",
        "model": "SmolLM2-135M-Instruct, never trained as a judge; template compact, direct mode, fp32",
        "protocol": "fitted on half of the groups, measured on the other half; 95 % bootstrap over groups; "
        "ECE plug-in over 10 bins of equal count",
        "limits": {"context_tokens": CONTEXT_TOKENS, "answer_tokens": ANSWER_TOKENS, "items": args.items},
        "sets": {},
    }
    kinds: dict[str, tuple[Any, LabelSet]] = {
        "hh_harmless": (pointwise, BINARY),
        "pandalm": (pairwise, LABELS),
    }
    read = {} if args.only_measure else read_sets(args, kinds)
    for name, (_, labels) in kinds.items():
        for path in args.work.glob(f"{name}-*.jsonl") if args.only_measure else [read[name]]:
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            good = labelled(rows, labels, path.stem)
            if len(good) >= 2 * MIN_LABELS:
                found = {"readings": path.stem, **measured(good, len(rows) - len(good))}
            else:
                found = {"readings": path.stem, "not measured": f"{len(good)} verdicts, too few to split"}
            result["sets"][name] = found
    with atomic_file(args.out) as out:
        out.write(json.dumps(result, indent=1) + "\n")
    print(f"written: {args.out}")


if __name__ == "__main__":
    main()
