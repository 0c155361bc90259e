"""Stage ``evaluate``: all held-out measurements as plain rows (``judges.json``, ``policies.json``)."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from axiomrm.config import COOL, START
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.writing import atomic_file, to_record
from axiomrm.policy_opt.rewards.base import Episode
from axiomrm.policy_opt.rewards.judge import rubric_judge
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.rubrics import Rubric
from axiomrm.stage_context import Metrics, StageContext
from axiomrm.stages import measure_judges
from axiomrm.stages.judging import judge_of
from axiomrm.stages.policy import MAIN, RUBRIC, arms
from axiomrm.stages.policy import evaluate as roll_policy
from axiomrm.stages.world import load_model, tasks


def run(ctx: StageContext) -> Metrics:
    """Measure judges, then policies; a part that is on disk is not measured again."""
    judges = _once(ctx.stage_dir / "judges.json", lambda: measure_judges.measure(ctx))
    ctx.kill_point("judges")
    policies = _once(ctx.stage_dir / "policies.json", lambda: _policies(ctx))
    rates = {name: _rate(p["outcomes"]) for name, p in policies.items()}
    return {"judges": list(judges["criteria"]), "heldout_success": rates}


def _once(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
    made = make()
    with atomic_file(path) as handle:
        json.dump(made, handle, ensure_ascii=False)
    return made


def _policies(ctx: StageContext) -> dict[str, Any]:
    folders = {START: ctx.artifact("cold_start", "policy"), COOL: ctx.artifact("cold_start", "policy")}
    folders |= {name: ctx.artifact("policy", f"{name}/policy") for name in arms(ctx.config)}
    warm = ctx.config.policy.train
    cool = {"rollout": warm.rollout.model_copy(update={"temperature": ctx.config.evaluate.cool_temperature})}
    held = tasks("heldout", "eval", ctx.config.evaluate.episodes, ctx.seed)
    found: dict[str, Any] = {}
    for i, (name, folder) in enumerate(folders.items()):
        ctx.progress(f"policy {name}", i, len(folders))
        model, tokenizer = load_model(folder)
        settings = warm.model_copy(update=cool) if name == COOL else warm
        episodes = roll_policy(model, TemplateChat(tokenizer), held, settings, ctx.seed)
        found[name] = {
            "outcomes": {
                e.trajectory.task_id: e.trajectory.outcome.score if e.trajectory.outcome else None
                for e in episodes
            },
            "types": {e.trajectory.task_id: e.record.task_type for e in episodes},
            "behaviour": [behaviour_of(e) for e in episodes],
        }
        if name in (START, MAIN):
            found[name]["transcripts"] = _transcripts(ctx, episodes, name)
    return found


def _transcripts(ctx: StageContext, episodes: list[Episode], name: str) -> list[dict[str, Any]]:
    share = ctx.config.evaluate.transcripts // 2
    failed = [e for e in episodes if e.record.outcome < 1]
    solved = [e for e in episodes if e.record.outcome >= 1]
    chosen = [*failed[: (share + 1) // 2], *solved[: share // 2]]
    chosen += [e for e in episodes if e not in chosen][: share - len(chosen)]
    judge = rubric_judge(judge_of(ctx.artifact("rm_personal", "judge/final")), Rubric.load(RUBRIC))
    scores = judge([e.trajectory for e in chosen])
    return [
        {
            "trajectory": to_record(_plain(e.trajectory)),
            "rewards": [None if math.isnan(r) else r for r in s.turns],
            "reasons": s.reasons,
            "oracle": [t.get("oracle_turn") for t in e.trajectory.metadata["turns"]],
            "policy": name,
        }
        for e, s in zip(chosen, scores, strict=True)
    ]


def _plain(trajectory: Trajectory) -> Trajectory:
    return trajectory.model_copy(update={"metadata": {}, "tools": ()})


def behaviour_of(episode: Episode) -> dict[str, float | None]:
    """Judge-independent facts of one rollout; ``None``: no opportunity."""
    infos = episode.trajectory.metadata["turns"]
    kinds = [i.get("assessment", "") for i in infos]
    calls = [k for t, k in zip(episode.trajectory.turns, kinds, strict=False) if t.action.tool_calls]
    errors = [i for i, info in enumerate(infos) if info.get("error_kind")]
    recovered = [
        any(
            infos[j].get("oracle_turn") == 1 and not infos[j].get("error_kind")
            for j in range(i + 1, min(i + 3, len(infos)))
        )
        for i in errors
    ]
    return {
        "turns": float(len(infos)),
        "right steps": _share([i.get("oracle_turn") == 1 for i in infos if i.get("oracle_turn")]),
        "redundant calls": _share([k == "redundant" for k in calls]),
        "wrong tool": _share([k in ("wrong_tool", "unverified", "breach") for k in calls]),
        "wrong argument": _share([k in ("wrong_argument", "bad_call") for k in calls]),
        "recovery from errors": _share(recovered),
    }


def _share(flags: list[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _rate(outcomes: dict[str, float | None]) -> float | None:
    return _share([o >= 1 for o in outcomes.values() if o is not None])
