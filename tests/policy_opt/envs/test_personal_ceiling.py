import random
from dataclasses import replace

import pytest

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import CannotAssess, Scored
from axiomrm.personalization.examples import personal_examples
from axiomrm.personalization.judging import Unit
from axiomrm.personalization.simulate import POPULATION, draw_users
from axiomrm.policy_opt.envs.service_desk import sample_task
from axiomrm.policy_opt.envs.service_desk.ceiling import ceiling, oracle_verdict
from axiomrm.policy_opt.envs.service_desk.criteria import ASK, STEP
from axiomrm.policy_opt.envs.service_desk.style import style_label, styled_rollouts
from axiomrm.rubrics.rubric import Rubric


def test_with_perfect_verdicts_personal_beats_generic_and_a_swapped_profile_does_not() -> None:
    report = ceiling(1, users=40, per_user=12, history=16, tasks=16)
    assert report.unscored == 0
    assert report.all.gain.value > 0.10
    assert report.all.swapped_gain.value < report.all.gain.value / 3
    assert 0.55 < report.all.generic.value < 0.70
    assert 0.70 < report.all.personal.value < 0.90  # far from certain: users are noisy and state only a part
    assert report.equal_quality.generic.value == 0.5  # equal steps: the generic rubric cannot tell them apart
    assert report.equal_quality.personal.value > 0.7


def test_users_without_tastes_gain_nothing() -> None:
    indifferent = replace(POPULATION, quality_low=1.0, quality_high=1.0)
    report = ceiling(2, users=30, per_user=10, history=0, tasks=12, population=indifferent)
    assert abs(report.all.gain.value) < 0.04  # noise on ties, nothing more
    assert report.all.generic.value > 0.7


def _rollout() -> Trajectory:
    return styled_rollouts([sample_task("train", 3, "cancel")], random.Random(0), per_task=1, rates=(0.0,))[0]


def test_oracle_verdicts_say_what_the_recording_says() -> None:
    rollout = _rollout()
    step = oracle_verdict(rollout, Unit(rollout.id, ASK[STEP], 0))
    assert isinstance(step, Scored) and step.value == float(rollout.metadata["oracle"][0] > 0)
    calls = [t.index for t in rollout.turns if t.action.tool_calls]
    polite = oracle_verdict(rollout, Unit(rollout.id, ASK["sd.polite"], calls[0]))
    assert isinstance(polite, CannotAssess)  # a call has no tone


def test_the_full_rubric_scores_too_with_perfect_verdicts() -> None:
    report = ceiling(3, users=6, per_user=5, history=0, tasks=6, rubric=Rubric.load("service_desk"))
    assert report.unscored == 0 and report.all.pairs == 30


def test_the_desk_makes_balanced_training_rows_for_every_question() -> None:
    rollouts = styled_rollouts([sample_task("train", i) for i in range(30)], random.Random(2))
    users = draw_users(40, random.Random(3))
    rows = personal_examples(
        rollouts,
        users,
        random.Random(4),
        rubric=Rubric.load("service_desk_steps"),
        label_of=style_label,
        per_label=20,
    )
    assert len({r.ask for r in rows}) == 10
    assert sum(r.label == "Y" for r in rows) == sum(r.label == "N" for r in rows) == 200
    assert all(r.notes and len(r.notes.split()) <= 8 for r in rows)


@pytest.mark.slow
def test_the_ceiling_at_full_size_is_where_the_documentation_says() -> None:
    report = ceiling(0)
    assert report.passes
    assert report.all.personal.value == pytest.approx(0.80, abs=0.03)
    assert report.all.generic.value == pytest.approx(0.60, abs=0.03)
