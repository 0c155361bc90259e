"""Held-out measurements of every judge of a run, as plain rows that several runs can be pooled from."""

import random
from itertools import combinations
from pathlib import Path
from typing import Any

from axiomrm.data.synthesis.judge_examples import GOAL, GOAL_ASK
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Scored
from axiomrm.personalization.judging import PersonalScorer, Unit, UserRubrics
from axiomrm.personalization.learn import learn_weights
from axiomrm.personalization.simulate import derangement, draw_pairs, draw_users
from axiomrm.policy_opt.envs.service_desk.style import behaviour
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rubrics import Rubric
from axiomrm.stage_context import StageContext
from axiomrm.stages.judging import criterion_items, heldout_units, judge_of, read
from axiomrm.stages.rm_personal import RUBRIC
from axiomrm.stages.world import base_folder

JUDGES = ("base", "general", "rubric", "personal")
MAX_PAIRS = 300


def judge_folders(ctx: StageContext) -> dict[str, Path]:
    """Checkpoint of each judge, in training order."""
    stages = {name: ctx.artifact(f"rm_{name}", "judge/final") for name in JUDGES[1:]}
    return {"base": base_folder(ctx.config.base), **stages}


def measure(ctx: StageContext) -> dict[str, Any]:
    """Criteria and goal pairs for every judge, users for the last one."""
    units = heldout_units(ctx, ctx.config.rm.eval_per_criterion)
    styles = read(ctx, "styles_heldout")
    found: dict[str, Any] = {"criteria": {}, "pairs": {}}
    for i, (name, folder) in enumerate(judge_folders(ctx).items()):
        ctx.progress(f"judge {name}", i, len(JUDGES))
        judge = judge_of(folder)
        found["criteria"][name] = [
            {
                "criterion": c,
                "gold": gold,
                "verdict": verdict.model_dump(mode="json"),
                "kind": kind,
                "group": group,
            }
            for c, gold, verdict, kind, group in criterion_items(judge, units)
        ]
        found["pairs"][name] = goal_pairs(judge, styles, ctx.seed)
        if name == JUDGES[-1]:
            found["personal"] = personal_pairs(ctx, judge, styles)
    return found


def goal_pairs(judge: RewardModel, rollouts: list[Trajectory], seed: int) -> list[dict[str, Any]]:
    """Pairs of one task of which one reached the goal: the judge's score of both."""
    by_task: dict[str, list[Trajectory]] = {}
    for t in rollouts:
        by_task.setdefault(t.task_id, []).append(t)
    pairs = [
        (a, b) if _reached(a) else (b, a)
        for group in by_task.values()
        for a, b in combinations(group, 2)
        if _reached(a) != _reached(b)
    ]
    rng = random.Random(f"goal/{seed}")
    pairs = rng.sample(pairs, min(len(pairs), MAX_PAIRS))
    shown = {t.id: t for pair in pairs for t in pair}
    asked = judge.verdicts([VerdictRequest(t, Criterion(GOAL, GOAL_ASK)) for t in shown.values()])
    scores = {i: v.value if isinstance(v, Scored) else None for i, v in zip(shown, asked, strict=True)}
    rows = []
    for won, lost in pairs:
        flip = rng.random() < 0.5
        a, b = (lost, won) if flip else (won, lost)
        rows.append({"label": "b" if flip else "a", "a": scores[a.id], "b": scores[b.id], "group": a.task_id})
    return rows


def personal_pairs(ctx: StageContext, judge: RewardModel, heldout: list[Trajectory]) -> list[dict[str, Any]]:
    """Held-out users' choices between held-out dialogues; only verdicts read from the model count."""
    settings = ctx.config.rm.personal
    rng = random.Random(f"users/{ctx.seed}")
    users = draw_users(settings.heldout_users, rng, prefix="held")
    past = read(ctx, "styles_train")
    history = (
        draw_pairs(users, past, behaviour, rng, per_user=settings.history_pairs)
        if settings.history_pairs
        else []
    )
    pairs = draw_pairs(users, heldout, behaviour, rng, per_user=settings.eval_pairs)
    swapped = derangement(users, rng)
    by_id = {t.id: t for t in (*past, *heldout)}
    rubrics = UserRubrics(Rubric.load(RUBRIC), users)
    units = rubrics.units([*history, *pairs], by_id, swapped)
    ctx.progress(f"{len(units)} personal and generic questions", 0, None)
    scorer = PersonalScorer(rubrics, by_id, dict(zip(units, _ask(judge, units, by_id), strict=True)))
    after = PersonalScorer(rubrics.with_learned(learn_weights(scorer, history)), by_id, scorer.verdicts)
    rows = []
    for pair in pairs:
        found = after.pair(pair, swapped)
        rows.append(
            {
                "user": pair.user,
                "personal": found.personal,
                "generic": found.generic,
                "swapped": found.swapped,
                "equal_quality": pair.equal_quality,
            }
        )
    return rows


def _ask(judge: RewardModel, units: list[Unit], by_id: dict[str, Trajectory]) -> list[Any]:
    return judge.verdicts(
        [VerdictRequest(by_id[u.trajectory], Criterion("personal", u.ask), u.turn) for u in units]
    )


def _reached(t: Trajectory) -> bool:
    return t.outcome is not None and t.outcome.score is not None and t.outcome.score >= 1
