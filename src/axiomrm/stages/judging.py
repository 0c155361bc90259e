"""What the three judge stages share: settings, balanced held-out units, verdicts of a checkpoint."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from axiomrm.config import JudgeStageConfig
from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.synthesis.judge_examples import balanced, goal_examples, turn_examples
from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Verdict
from axiomrm.eval.criterion import CriterionItem, Kind
from axiomrm.policy_opt.envs.service_desk.criteria import ASK, RELATIONAL, STEP, SURFACE
from axiomrm.rm import Criterion, RewardModel, VerdictRequest
from axiomrm.rm.training.config import StageConfig
from axiomrm.stage_context import StageContext

TEMPLATE = "compact"
TAGS = {c: "surface" for c in SURFACE} | {c: "relational" for c in RELATIONAL} | {STEP: "other"}


def stage_config(ctx: StageContext, name: str, settings: JudgeStageConfig) -> StageConfig:
    """The trainer's settings of a judge stage."""
    return StageConfig(
        stage=name,
        template=TEMPLATE,
        direct_share=ctx.config.rm.direct_share,
        joint_share=ctx.config.rm.joint_share,
        joint_size=ctx.config.rm.joint_size,
        max_tokens=settings.max_length,
        row_tokens=settings.row_tokens,
        batch_tokens=settings.batch_tokens,
        epochs=settings.epochs,
        max_train_tokens=settings.max_train_tokens,
        learning_rate=settings.learning_rate,
        optimizer=settings.optimizer,
        label_weight=settings.label_weight,
        save_steps=settings.checkpoint_every,
        accumulate=settings.accumulate,
        precision=settings.precision,
        gradient_checkpointing=settings.gradient_checkpointing,
        lora=settings.lora,
        seed=ctx.seed,
    )


def read(ctx: StageContext, name: str) -> list[Trajectory]:
    """Rollouts that ``synthesize`` wrote."""
    return list(Trajectory.read(ctx.artifact("synthesize", f"{name}.jsonl")))


def heldout_units(ctx: StageContext, per_criterion: int) -> list[JudgeExample]:
    """Balanced held-out questions on turns and whole dialogues; the same for every judge of a run."""
    heldout = read(ctx, "judge_heldout")
    rng = random.Random(f"heldout/{ctx.seed}")
    return balanced(
        [*turn_examples(heldout, ASK, TAGS), *goal_examples(heldout)], per_criterion, rng, ratio=2.0
    )


def judge_of(folder: Path, **options: Any) -> RewardModel:
    """The judge in a folder, with the short template that these stages train."""
    return RewardModel.from_pretrained(folder, template=TEMPLATE, **options)


def verdicts(judge: RewardModel, units: Sequence[JudgeExample]) -> list[Verdict]:
    """One verdict a unit, in order."""
    return judge.verdicts(
        [VerdictRequest(u.trajectory, Criterion(u.criterion_id, u.ask), u.turn) for u in units]
    )


def criterion_items(judge: RewardModel, units: Sequence[JudgeExample]) -> list[CriterionItem]:
    """The judge's verdicts beside the oracle's answers."""
    return [
        CriterionItem(u.criterion_id, u.label == "Y", v, kind_of(u), u.trajectory.id)
        for u, v in zip(units, verdicts(judge, units), strict=True)
    ]


def kind_of(unit: JudgeExample) -> Kind:
    """``surface``, ``relational`` or ``other``."""
    kinds: tuple[Kind, ...] = get_args(Kind)
    return next((k for k in kinds if k in unit.tags), "other")
