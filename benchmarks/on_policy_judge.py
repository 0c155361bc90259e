"""Does a judge rank a policy's own turns better when it has learnt from rollouts of that policy?

    python benchmarks/on_policy_judge.py --run runs/NAME --work /tmp/on_policy [--tasks 256] [--tokens 500000]

The rubric stage is trained twice from the run's general judge with the same number of tokens: on scripted agents alone,
and with ``--tasks`` training tasks times 4 rollouts of the run's cold-started policy (``rm.on_policy_tasks``). Both judges,
the run's last one (``run``), and the desk's oracle (``oracle``; ``flipped``: 15% of its turns; ``oracle on …``: a judge with the oracle's word on one kind of turn) then score fresh rollouts of that policy on
dev tasks: balanced accuracy and AUC of ``sd.step``'s expected score for the oracle's label of the turn (AUC also among calls,
questions and closing texts), and how well
a rollout's mean turn score ranks the outcomes within a task's rollouts (Spearman, ``advantage/disc``). Intervals draw tasks;
they know nothing of other training seeds. On scripted held-out dialogues: balanced accuracy by kind of criterion.
The run is only read. Killed, it goes on from what lies in ``--work``.
"""

import argparse
import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from axiomrm.config import load_config
from axiomrm.data.trajectory import Trajectory, Turn
from axiomrm.data.writing import atomic_file, write_trajectories
from axiomrm.eval.bootstrap import Array, cluster_weights, from_draws
from axiomrm.eval.criterion import criterion_report
from axiomrm.policy_opt.advantages import group_discrimination
from axiomrm.policy_opt.association import known_mean
from axiomrm.policy_opt.engines.transformers import TransformersSampler
from axiomrm.policy_opt.envs.service_desk import ServiceDesk
from axiomrm.policy_opt.envs.service_desk.criteria import STEP
from axiomrm.policy_opt.envs.service_desk.judges import desk_oracle
from axiomrm.policy_opt.rewards.base import TurnJudge
from axiomrm.policy_opt.rewards.judge import rubric_judge
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.rm.training.stages import train_stage
from axiomrm.rubrics import Rubric
from axiomrm.runner import read_run
from axiomrm.stage_context import StageContext
from axiomrm.stages import on_policy, rm_rubric
from axiomrm.stages.judging import criterion_items, heldout_units, judge_of, stage_config
from axiomrm.stages.policy import RUBRIC
from axiomrm.stages.world import load_model, tasks

ARMS = ("scripted", "on_policy")
ACTS = ("call", "question", "closing")
DRAWS = 1000


def context(run: Path, folder: Path, on_policy_tasks: int, tokens: int) -> StageContext:
    """The run's settings with these changes; everything is written to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    config = load_config(run / "config.yaml")
    train = config.rm.rubric.train.model_copy(update={"max_train_tokens": tokens})
    rubric = config.rm.rubric.model_copy(update={"train": train})
    rm = config.rm.model_copy(update={"on_policy_tasks": on_policy_tasks, "rubric": rubric})
    finished = dict(read_run(run).records)
    return StageContext(run, folder, config.model_copy(update={"rm": rm}), config.seed, finished)


def train(ctx: StageContext) -> dict[str, Any]:
    """The rubric stage without its dev examples."""
    folder = ctx.stage_dir / "judge"
    if not (folder / "result.json").exists():
        settings = stage_config(ctx, "rm.rubric", ctx.config.rm.rubric.train)
        general = ctx.artifact("rm_general", "judge/final")
        train_stage(general, None, rm_rubric.examples(ctx, "train"), (), folder, settings)
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    told = {name: result[name] for name in ("steps", "tokens", "labels_per_1000_tokens")}
    return {**told, "rows": result["counts"]["source"], **on_policy.summary(ctx)}


def fresh_rollouts(ctx: StageContext, path: Path, count: int) -> list[Trajectory]:
    """Rollouts of the cold-started policy on dev tasks, rolled once."""
    if not path.exists():
        model, tokenizer = load_model(ctx.artifact("cold_start", "policy"))
        chat = TemplateChat(tokenizer)
        sampler = TransformersSampler(model, chat.end_ids)
        requests = group_requests(tasks("dev", "on_policy", count, ctx.seed), on_policy.GROUP, "fresh")
        limits = ctx.config.policy.train.rollout.limits()
        found = collect(sampler, chat, ServiceDesk, requests, limits=limits, seed=ctx.seed)
        write_trajectories(path, (on_policy.labelled(e.trajectory) for e in found))
    return list(Trajectory.read(path))


def outcome_of(trajectory: Trajectory) -> float:
    """NaN: the verifier said nothing."""
    outcome = trajectory.outcome
    return np.nan if outcome is None or outcome.score is None else outcome.score


def act(turn: Turn) -> str:
    """What kind of turn it is; a text without a question closes the request."""
    if turn.action.tool_calls:
        return "call"
    return "question" if "?" in turn.action.content else "closing"


def turn_scores(
    judge_of_turns: Callable[[], TurnJudge], rollouts: list[Trajectory], path: Path
) -> list[Array]:
    """A judge's scores of every turn, asked once; NaN = missing."""
    if not path.exists():
        said = [s.turns for s in judge_of_turns()(rollouts)]
        with atomic_file(path) as handle:
            json.dump([[None if math.isnan(v) else v for v in turns] for turns in said], handle)
    return [np.array(turns, dtype=float) for turns in json.loads(path.read_text(encoding="utf-8"))]


def repaired(said: list[Array], oracle: list[Array], rollouts: list[Trajectory], which: str) -> list[Array]:
    """The scores with the oracle's word on one kind of turn: what reading these better could give."""
    return [
        np.array([o if act(turn) == which else v for turn, v, o in zip(t.turns, vs, os, strict=True)])
        for t, vs, os in zip(rollouts, said, oracle, strict=True)
    ]


class Scored:
    """One judge's turn scores of the fresh rollouts, and its statistics under any weights of tasks."""

    def __init__(self, said: list[Array], rollouts: list[Trajectory]) -> None:
        self.groups = sorted({t.group_id for t in rollouts})
        column = {g: i for i, g in enumerate(self.groups)}
        means = [known_mean(turns.tolist()) for turns in said]
        outcomes = [outcome_of(t) for t in rollouts]
        members = [[i for i, t in enumerate(rollouts) if t.group_id == g] for g in self.groups]
        self.disc = np.array(
            [group_discrimination([means[i] for i in m], [outcomes[i] for i in m]) for m in members]
        )
        rows = [
            (column[t.group_id], labels[STEP]["value"], value, kind, act(turn))
            for t, turns in zip(rollouts, said, strict=True)
            for turn, labels, kind, value in zip(
                t.turns, t.metadata["labels"], t.metadata["assessments"], turns, strict=True
            )
            if STEP in labels
        ]
        kept = [row for row in rows if not np.isnan(row[2])]
        self.missing = len(rows) - len(kept)
        columns = (np.array(x) for x in zip(*kept, strict=True))
        self.task, self.right, self.value, self.kind, self.act = columns
        self.mean_score = known_mean(means)

    def by_kind(self) -> dict[str, dict[str, float]]:
        """How many turns the oracle gave each name, and the share of them that the judge decides as it does."""
        agrees = (self.value >= 0.5) == self.right
        return {
            str(kind): {
                "n": int((self.kind == kind).sum()),
                "agrees": round(float(agrees[self.kind == kind].mean()), 4),
            }
            for kind in sorted(set(self.kind))
        }

    def statistics(self, weights: Array) -> dict[str, float]:
        """Under how often each task is drawn; a draw without what a statistic needs is NaN."""
        known = ~np.isnan(self.disc) & (weights > 0)
        w, yes, said = weights[self.task], self.right, self.value >= 0.5
        recalls = [
            float(np.average(said[gold] == yes[gold], weights=w[gold])) if w[gold].sum() else math.nan
            for gold in (yes, ~yes)
        ]
        found = {
            "balanced_accuracy": sum(recalls) / 2,
            "discrimination": float(np.average(self.disc[known], weights=weights[known]))
            if known.any()
            else math.nan,
            "auc": self.auc(w, np.ones_like(yes)),
        }
        return found | {f"auc_{name}": self.auc(w, self.act == name) for name in ACTS}

    def auc(self, w: Array, among: NDArray[np.bool_]) -> float:
        """Of the score for the oracle's label, on some of the turns."""
        some = among & (w > 0)
        yes = self.right[some]
        if yes.all() or not yes.any():
            return math.nan
        return float(roc_auc_score(yes, self.value[some], sample_weight=w[some]))


def estimates(scored: dict[str, Scored], tasks_drawn: int) -> dict[str, Any]:
    """Every judge's statistics with intervals, and the difference of the two arms, on the same draws of tasks."""
    drawn = cluster_weights(tasks_drawn, DRAWS, np.random.default_rng(0))
    whole = {n: s.statistics(np.ones(tasks_drawn)) for n, s in scored.items()}
    samples = {n: [s.statistics(w) for w in drawn] for n, s in scored.items()}
    whole["difference"] = {k: whole[ARMS[1]][k] - whole[ARMS[0]][k] for k in whole[ARMS[0]]}
    pairs = zip(samples[ARMS[0]], samples[ARMS[1]], strict=True)
    samples["difference"] = [{k: b[k] - a[k] for k in a} for a, b in pairs]
    found: dict[str, Any] = {}
    for name, values in whole.items():
        found[name] = {
            key: interval(value, np.array([row[key] for row in samples[name]]), tasks_drawn)
            for key, value in values.items()
        }
    return found


def interval(value: float, sampled: Array, units: int) -> dict[str, float | None]:
    found = from_draws(value, sampled, n=units, missing=0, confidence=0.95, units=units, unit="tasks")
    return {
        k: None if v is None else round(v, 4)
        for k, v in (("value", found.value), ("low", found.low), ("high", found.high))
    }


def heldout(ctx: StageContext, folder: Path, per_criterion: int) -> dict[str, Any]:
    """Balanced accuracies on scripted held-out units, by kind and for each criterion; measured once."""
    path = ctx.stage_dir / f"heldout_{per_criterion}.json"
    if not path.exists():
        items = criterion_items(judge_of(folder), heldout_units(ctx, per_criterion))
        report = criterion_report([items], draws=DRAWS)
        kinds = {
            kind: {"value": e.value, "low": e.low, "high": e.high}
            for kind, e in report.balanced_accuracy.items()
        }
        criteria = {m.criterion: m.balanced_accuracy.value for m in report.criteria}
        with atomic_file(path) as handle:
            json.dump({"kinds": kinds, "criteria": criteria}, handle)
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def trained_judge(folder: Path, rubric: Rubric) -> TurnJudge:
    """As the policy stage asks it."""
    return rubric_judge(judge_of(folder), rubric, "turn")


def measure(run: Path, work: Path, args: argparse.Namespace) -> dict[str, Any]:
    contexts = {
        arm: context(run, work / arm, args.tasks if arm == "on_policy" else 0, args.tokens) for arm in ARMS
    }
    fresh = fresh_rollouts(contexts["scripted"], work / "fresh.jsonl", args.dev_tasks)
    trained = {arm: train(ctx) for arm, ctx in contexts.items()}
    folders = {arm: ctx.stage_dir / "judge" / "final" for arm, ctx in contexts.items()}
    if (run / "rm_personal" / "done.json").exists():
        folders["run"] = run / "rm_personal" / "judge" / "final"
    rubric = Rubric.load(RUBRIC)
    judges: dict[str, Callable[[], TurnJudge]] = {
        name: functools.partial(trained_judge, folder, rubric) for name, folder in folders.items()
    }
    judges["oracle"] = desk_oracle
    judges["flipped"] = functools.partial(desk_oracle, noise=0.15)
    said = {name: turn_scores(judge, fresh, work / f"scores_{name}.json") for name, judge in judges.items()}
    for arm in [name for name in ("on_policy", "run") if name in said]:
        for which in ACTS:
            said[f"{arm}, oracle on {which}s"] = repaired(said[arm], said["oracle"], fresh, which)
    scored = {name: Scored(scores, fresh) for name, scores in said.items()}
    first = scored["scripted"]
    return {
        "fresh": {
            "tasks": len(first.groups),
            "rollouts": len(fresh),
            "success": known_mean([outcome_of(t) for t in fresh]),
            "labelled_turns": len(first.task) + first.missing,
            "right_share": float(first.right.mean()),
            "informative_tasks": int((~np.isnan(first.disc)).sum()),
        },
        "trained": trained,
        "on_fresh_rollouts": estimates(scored, len(first.groups)),
        "by_kind": {n: s.by_kind() for n, s in scored.items() if n in folders},
        "missing_scores": {n: s.missing for n, s in scored.items()},
        "mean_score": {n: round(s.mean_score, 4) for n, s in scored.items()},
        "on_scripted_heldout": {
            arm: heldout(contexts[arm], folders[arm], args.per_criterion) for arm in ARMS
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", type=Path, required=True, action="append", help="A run folder; may be repeated."
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=256, help="rm.on_policy_tasks of the second judge.")
    parser.add_argument("--dev-tasks", type=int, default=96)
    parser.add_argument("--tokens", type=int, default=500_000)
    parser.add_argument("--per-criterion", type=int, default=80)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/on_policy_judge.json"))
    args = parser.parse_args()
    torch.set_num_threads(1)
    settings = {k: v for k, v in vars(args).items() if k not in ("run", "work", "out")}
    found = {run.name: measure(run, args.work / run.name, args) for run in args.run}
    with atomic_file(args.out) as handle:
        json.dump({"settings": settings, "runs": found}, handle, indent=1)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
