"""Stage ``rm_personal``: questions that profiles compile to, with a replay of both earlier stages."""

import random

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.synthesis.judge_examples import whole_dialogues
from axiomrm.personalization.examples import personal_examples
from axiomrm.personalization.simulate import draw_users
from axiomrm.policy_opt.envs.service_desk.style import style_label
from axiomrm.rm.training.stages import train_stage
from axiomrm.rubrics import Rubric
from axiomrm.stage_context import Metrics, StageContext
from axiomrm.stages import rm_general, rm_rubric
from axiomrm.stages.judging import read, stage_config

RUBRIC = "service_desk_steps"


def examples(ctx: StageContext, per_label: int) -> list[JudgeExample]:
    """Style questions of training users on training dialogues, and replay."""
    settings = ctx.config.rm.personal
    rng = random.Random(f"personal/{ctx.seed}")
    users = draw_users(settings.train_users, rng, prefix="train")
    recordings = [*read(ctx, "styles_train"), *read(ctx, "judge_train")]
    found = personal_examples(
        recordings, users, rng, rubric=Rubric.load(RUBRIC), label_of=style_label, per_label=per_label
    )
    replay = whole_dialogues(rm_rubric.examples(ctx, "train"), int(settings.replay_share * len(found)), rng)
    found += replay
    rng.shuffle(found)
    return found


def run(ctx: StageContext) -> Metrics:
    """Write ``judge/final/``, the judge of the run."""
    found = examples(ctx, ctx.config.rm.personal.per_label)
    cut = max(1, len(found) // 20)
    result = train_stage(
        ctx.artifact("rm_rubric", "judge/final"),
        None,
        found[cut:],
        found[:cut],
        ctx.stage_dir / "judge",
        stage_config(ctx, "rm.personal", ctx.config.rm.personal.train),
    )
    return rm_general.summary(result)
