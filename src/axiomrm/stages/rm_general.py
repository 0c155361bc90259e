"""Stage ``rm_general``: does a step help, did the user get what was asked for."""

import random

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.synthesis.judge_examples import dense, goal_examples, turn_examples
from axiomrm.policy_opt.envs.service_desk.criteria import ASK, STEP
from axiomrm.rm.training.stages import train_stage
from axiomrm.stage_context import Metrics, StageContext
from axiomrm.stages.judging import TAGS, read, stage_config
from axiomrm.stages.world import base_folder


def examples(ctx: StageContext, split: str) -> list[JudgeExample]:
    """Balanced examples of one split."""
    rollouts = read(ctx, f"judge_{split}")
    rng = random.Random(f"general/{split}/{ctx.seed}")
    found = [*turn_examples(rollouts, {STEP: ASK[STEP]}, TAGS), *goal_examples(rollouts)]
    return dense(found, ctx.config.rm.general.max_examples, rng)


def run(ctx: StageContext) -> Metrics:
    """Write ``judge/final/``, the general judge."""
    result = train_stage(
        base_folder(ctx.config.base),
        None,
        examples(ctx, "train"),
        examples(ctx, "dev")[:200],
        ctx.stage_dir / "judge",
        stage_config(ctx, "rm.general", ctx.config.rm.general.train),
        base=ctx.config.base,
    )
    return summary(result)


def summary(result: object) -> Metrics:
    """What a judge stage reports."""
    names = (
        "counts",
        "direct_share",
        "packed",
        "labels_per_1000_tokens",
        "steps",
        "tokens",
        "dev_loss_before",
        "dev_loss_after",
    )
    return {name: getattr(result, name) for name in names}
