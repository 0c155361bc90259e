"""Stage ``rm_rubric``: many criteria, what cannot be told, and a replay of the stage before."""

import random

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.synthesis.judge_examples import dense, missing_evidence, turn_examples
from axiomrm.policy_opt.envs.service_desk.criteria import ASK
from axiomrm.rm.training.stages import train_stage
from axiomrm.stage_context import Metrics, StageContext
from axiomrm.stages import on_policy, rm_general
from axiomrm.stages.judging import TAGS, read, stage_config


def examples(ctx: StageContext, split: str) -> list[JudgeExample]:
    """Balanced examples of all criteria, some of them without their evidence, and general ones.

    Training examples may also come from the cold-started policy's own dialogues, see ``on_policy``.
    """
    settings = ctx.config.rm.rubric
    rng = random.Random(f"rubric/{split}/{ctx.seed}")
    found = dense(turn_examples(read(ctx, f"judge_{split}"), ASK, TAGS), settings.max_examples, rng)
    if split == "train":
        # Balanced apart from the scripted ones: an answer must not follow from who speaks.
        found += on_policy.examples(ctx, settings.max_examples, rng)
    hidden = missing_evidence(found, int(settings.missing_evidence_share * len(found)), rng)
    replay = rm_general.examples(ctx, split)
    found += [*hidden, *rng.sample(replay, min(len(replay), int(settings.replay_share * len(found))))]
    rng.shuffle(found)
    return found


def run(ctx: StageContext) -> Metrics:
    """Write ``judge/final/``, which goes on from the general judge."""
    result = train_stage(
        ctx.artifact("rm_general", "judge/final"),
        None,
        examples(ctx, "train"),
        examples(ctx, "dev")[:400],
        ctx.stage_dir / "judge",
        stage_config(ctx, "rm.rubric", ctx.config.rm.rubric.train),
    )
    return {**rm_general.summary(result), **on_policy.summary(ctx)}
