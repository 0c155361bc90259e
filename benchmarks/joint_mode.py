"""What joint questions cost and bring: ``python benchmarks/joint_mode.py [--seeds 0 1] [--shares 0 0.3]``.

The nano judge of ``configs/bench_demo.yaml``, its rubric stage cut to 400,000 tokens, once for each share of training
examples in joint rows; all else equal. Each judge answers the same balanced held-out turn questions in the same
recordings: alone, and with all other questions of the turn in one prompt, at most ``--asked`` together. Balanced accuracy
(surface and relational criteria apart) over what was answered, and the share that was;
differences are paired by question, over what both ways answered; 95 % intervals draw seeds, then dialogues. Speed: CPU seconds of one thread for
all questions of the same turns. Resumable, in ``runs/``; a finished part is not measured again.
"""

import argparse
import json
import os
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from axiomrm.cli_run import load_stages
from axiomrm.config import RunConfig, load_config
from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.synthesis.judge_examples import balanced, turn_examples
from axiomrm.data.verdict import Failed, Scored, Verdict
from axiomrm.data.writing import atomic_file
from axiomrm.eval.bootstrap import DRAWS, Array, cluster_weights, from_draws, over_seeds
from axiomrm.eval.criterion import CriterionItem, balanced_accuracy, criterion_report
from axiomrm.eval.estimate import Estimate
from axiomrm.policy_opt.envs.service_desk.criteria import ASK
from axiomrm.progress import reporter_for_terminal
from axiomrm.rm import Criterion, VerdictRequest
from axiomrm.rm.training.stages import train_stage
from axiomrm.runner import read_run, run_pipeline
from axiomrm.stage_context import StageContext
from axiomrm.stages import rm_rubric
from axiomrm.stages.judging import TAGS, judge_of, kind_of, read, stage_config

KINDS = ("surface", "relational")
TOKENS = 400_000
SPEED_TURNS = 100
MAX_EXAMPLES = 3000
"""Training examples a criterion to draw rows from: more than 400,000 tokens hold."""
VERDICT: TypeAdapter[Any] = TypeAdapter(Verdict)


def start_of(seed: int, args: argparse.Namespace) -> tuple[RunConfig, Path]:
    """Recordings and the general judge, which all shares go on from."""
    changes = [f"seed={seed}", f"name=joint-mode-seed{seed}", f"rm.rubric.train.max_train_tokens={TOKENS}"]
    config = load_config(args.config, changes)
    stages = load_stages(("synthesize", "rm_general"))
    return config, run_pipeline(stages, config, args.runs_dir, reporter=reporter_for_terminal()).run_dir


def context(run: Path, config: RunConfig, share: float, per_criterion: int) -> StageContext:
    folder = run / f"joint-{share:g}"
    folder.mkdir(exist_ok=True)
    rubric = config.rm.rubric.model_copy(update={"max_examples": MAX_EXAMPLES})
    changes = {"joint_share": share, "rubric": rubric, "eval_per_criterion": per_criterion}
    rm = config.rm.model_copy(update=changes)
    return StageContext(
        run, folder, config.model_copy(update={"rm": rm}), config.seed, dict(read_run(run).records)
    )


def train(ctx: StageContext) -> dict[str, Any]:
    """The rubric stage, and what it took; read back if it is there."""
    done = ctx.stage_dir / "judge" / "result.json"
    if not done.exists():
        train_stage(
            ctx.artifact("rm_general", "judge/final"),
            None,
            rm_rubric.examples(ctx, "train"),
            (),
            ctx.stage_dir / "judge",
            stage_config(ctx, "rm.rubric", ctx.config.rm.rubric.train),
        )
    result = json.loads(done.read_text())
    names = ("labels_per_1000_tokens", "steps", "tokens", "seconds")
    return {name: result[name] for name in names} | {"rows": result["counts"]["questions"]}


def turns_of(ctx: StageContext) -> list[list[JudgeExample]]:
    """All held-out questions, turn by turn."""
    turns: dict[tuple[int, int | None], list[JudgeExample]] = {}
    for example in turn_examples(read(ctx, "judge_heldout"), ASK, TAGS):
        turns.setdefault((id(example.trajectory), example.turn), []).append(example)
    return list(turns.values())


def answers(ctx: StageContext, turns: Sequence[Sequence[JudgeExample]], joint: int) -> tuple[Any, float]:
    """Verdicts on all questions of the turns, and the CPU seconds they took."""
    judge = judge_of(ctx.stage_dir / "judge" / "final", joint=joint)
    asked = [VerdictRequest(e.trajectory, Criterion(e.criterion_id, e.ask), e.turn) for t in turns for e in t]
    judge.verdicts(asked[:8])
    begun = time.process_time()
    return judge.verdicts(asked), time.process_time() - begun


def measured(ctx: StageContext, joint: int) -> dict[str, Any]:
    """Verdicts on the balanced questions, and the speed; read back if they are there."""
    path = ctx.stage_dir / f"asked-{joint}-of-{ctx.config.rm.eval_per_criterion}.json"
    if not path.exists():
        path.write_text(json.dumps(_measure(ctx, joint)) + "\n")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _measure(ctx: StageContext, joint: int) -> dict[str, Any]:
    turns = turns_of(ctx)
    rng = random.Random(f"joint {ctx.seed}")
    everything = [example for turn in turns for example in turn]
    per_criterion = ctx.config.rm.eval_per_criterion
    wanted = {id(e) for e in balanced(everything, per_criterion, rng, ratio=2.0)}
    shown = [turn for turn in turns if any(id(e) in wanted for e in turn)]
    if joint == 1:  # the answer to one question does not depend on the others
        shown = [[e for e in turn if id(e) in wanted] for turn in shown]
    verdicts, _ = answers(ctx, shown, joint)
    asked = [example for turn in shown for example in turn]
    rows = [
        {
            "criterion": e.criterion_id,
            "gold": e.label == "Y",
            "kind": kind_of(e),
            "group": e.trajectory.id,
            "turn": e.turn,
            "verdict": v.model_dump(mode="json"),
        }
        for e, v in zip(asked, verdicts, strict=True)
        if id(e) in wanted
    ]
    rows.sort(key=lambda row: (row["group"], row["turn"], row["criterion"]))
    some = rng.sample(turns, min(SPEED_TURNS, len(turns)))
    timed, seconds = answers(ctx, some, joint)
    speed = {
        "questions": len(timed),
        "prompts": sum(-(-len(turn) // joint) for turn in some),
        "cpu_seconds": seconds,
        "valid": sum(not isinstance(v, Failed) for v in timed),
    }
    return {"rows": rows, "speed": speed}


def items(found: dict[str, Any]) -> list[CriterionItem]:
    """Verdicts beside the oracle's answers; a missing one stays missing."""
    return [
        CriterionItem(
            row["criterion"], row["gold"], VERDICT.validate_python(row["verdict"]), row["kind"], row["group"]
        )
        for row in found["rows"]
    ]


def difference(after: list[dict[str, Any]], before: list[dict[str, Any]], kind: str) -> Estimate | None:
    """Balanced accuracy of one way of asking minus another's, on the questions that both answered; ``None``: none."""
    rng = np.random.default_rng(0)
    values, draws, n, missing = [], [], 0, 0
    for a, b in zip(after, before, strict=True):
        asked = [[i for i in items(found) if i.kind == kind] for found in (a, b)]
        place = [[(i.criterion, i.group, i.gold) for i in one] for one in asked]
        assert place[0] == place[1], "not the same questions"
        both = [p for p in zip(*asked, strict=True) if all(isinstance(i.verdict, Scored) for i in p)]
        several = [[pair[side] for pair in both] for side in (0, 1)]
        if not both:
            return None
        missing += len(asked[0]) - len(both)
        counts = [_counts(one) for one in several]
        weights = cluster_weights(counts[0].shape[0], DRAWS, rng)
        values.append(float(_macro(counts[0].sum(0)) - _macro(counts[1].sum(0))))
        drawn = [_macro(np.tensordot(weights, one, axes=1)) for one in counts]
        draws.append(drawn[0] - drawn[1])
        n += len(several[0])
    return from_draws(
        float(np.mean(values)), over_seeds(draws, rng), n=n, missing=missing, confidence=0.95, units=n,
        unit="seeds and dialogues, paired",
    )  # fmt: skip


def _counts(made: Sequence[CriterionItem]) -> Array:
    """``(dialogues, criteria, 4)`` TP, FP, FN, TN."""
    groups = {g: n for n, g in enumerate(dict.fromkeys(i.group for i in made))}
    names = {c: n for n, c in enumerate(sorted({i.criterion for i in made}))}
    counts = np.zeros((len(groups), len(names), 4))
    for i in made:
        assert isinstance(i.verdict, Scored)
        said = i.verdict.value >= 0.5
        cell = (0 if said else 2) if i.gold else (1 if said else 3)
        counts[groups[i.group], names[i.criterion], cell] += 1
    return counts


def _macro(counts: Array) -> Array:
    return np.asarray(balanced_accuracy(counts).mean(axis=-1))


def percent(e: Estimate | None) -> dict[str, Any] | None:
    return e and {"value": e.value, "low": e.low, "high": e.high, "n": e.n, "missing": e.missing}


def of_mode(found: list[dict[str, Any]]) -> dict[str, Any]:
    """One way of asking one share's judges, over seeds."""
    kinds: list[str] = [row["verdict"].get("kind", "") for one in found for row in one["rows"]]
    status = [row["verdict"]["status"] for one in found for row in one["rows"]]
    summary: dict[str, Any] = {
        "valid_verdicts": sum(s != "failed" for s in status) / len(status),
        "failures": {kind: kinds.count(kind) for kind in sorted(set(kinds)) if kind},
        "questions": len(status),
    }
    report = criterion_report([items(one) for one in found])
    summary["answered"] = {k: percent(e) for k, e in report.balanced_accuracy.items() if k in KINDS}
    summary["answered_by_criterion"] = {
        m.criterion: m.balanced_accuracy.value for m in report.criteria if m.kind in KINDS
    }
    speed = [one["speed"] for one in found]
    seconds = sum(s["cpu_seconds"] for s in speed)
    summary["valid_verdicts_a_cpu_second"] = sum(s["valid"] for s in speed) / seconds
    summary["questions_a_cpu_second"] = sum(s["questions"] for s in speed) / seconds
    summary["questions_a_prompt"] = sum(s["questions"] for s in speed) / sum(s["prompts"] for s in speed)
    return summary


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--shares", type=float, nargs="+", default=[0, 0.3])
    parser.add_argument("--asked", type=int, nargs="+", default=[1, 8], help="questions a prompt; 1: alone")
    parser.add_argument("--per-criterion", type=int, default=120, help="balanced held-out questions")
    parser.add_argument("--config", type=Path, default=Path("configs/bench_demo.yaml"))
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/joint_mode.json"))
    return parser.parse_args()


def of_share(modes: dict[int, list[dict[str, Any]]], plain: list[dict[str, Any]] | None) -> dict[str, Any]:
    """What the judges of one share answer, asked together and alone; ``plain``: share 0, asked alone."""
    return {
        "asked": {str(joint): of_mode(one) for joint, one in modes.items()},
        "joint_minus_alone": {
            str(joint): {k: percent(difference(modes[joint], modes[1], k)) for k in KINDS}
            for joint in modes
            if joint > 1
        },
        "alone_minus_alone_of_share_0": {k: percent(difference(modes[1], plain, k)) for k in KINDS}
        if plain
        else None,
    }


def main() -> None:
    args = arguments()
    trained: dict[str, list[dict[str, Any]]] = {}
    found: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for seed in args.seeds:
        config, run = start_of(seed, args)
        for share in args.shares:
            ctx = context(run, config, share, args.per_criterion)
            trained.setdefault(f"{share:g}", []).append(train(ctx))
            for joint in args.asked:
                found.setdefault(f"{share:g}", {}).setdefault(joint, []).append(measured(ctx, joint))
                print(f"seed {seed} joint_share {share:g} asked {joint} together: measured", flush=True)
    plain = found.get("0", {}).get(1)
    result = {
        "seeds": args.seeds,
        "train_tokens": TOKENS,
        "threads": int(os.environ.get("OMP_NUM_THREADS", 0)) or None,
        "shares": {
            share: {"training": trained[share], **of_share(modes, plain)} for share, modes in found.items()
        },
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(args.out) as handle:
        handle.write(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
