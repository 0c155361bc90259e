"""The ceiling of personalisation in this world: perfect verdicts in place of a model's.

Whatever a judge reaches in per-user accuracy lies below this, because users choose by hidden mixtures and
noise, and state only part of them.
"""

import random
from collections.abc import Iterable, Mapping

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import CannotAssess, Scored, Verdict
from axiomrm.personalization.judging import PersonalScorer, Unit, UserRubrics, Verdicts
from axiomrm.personalization.learn import evaluate_personal
from axiomrm.personalization.report import PersonalReport
from axiomrm.personalization.simulate import POPULATION, Population, derangement, draw_pairs, draw_users
from axiomrm.policy_opt.envs.service_desk.criteria import ASK, STEP
from axiomrm.policy_opt.envs.service_desk.style import behaviour, style_label, styled_rollouts
from axiomrm.policy_opt.envs.service_desk.tasks import sample_task
from axiomrm.rubrics.rubric import Rubric


def oracle_verdict(trajectory: Trajectory, unit: Unit) -> Verdict:
    """What a perfect judge says; 0.5 where the dialogue is ambiguous.

    Args:
        trajectory: a rollout with the oracle's labels in its metadata.
        unit: a personal question on the whole dialogue, or a question of the desk on a turn.
    """
    if unit.turn is None:
        found = style_label(trajectory, unit.ask)
        if found is not None and found.label == "X":
            return CannotAssess(reason=found.note)
        return Scored(value=0.5 if found is None else float(found.label == "Y"), readout="exact")
    if unit.ask == ASK[STEP]:
        worth = trajectory.metadata["oracle"][unit.turn]
        return (
            Scored(value=float(worth > 0), readout="exact") if worth else CannotAssess(reason="neutral step")
        )
    label = trajectory.metadata["labels"][unit.turn].get(_IDS[unit.ask])
    if label is None:
        return CannotAssess(reason="the question does not apply to this turn")
    return Scored(value=float(label["value"]), readout="exact")


_IDS = {ask: name for name, ask in ASK.items()}


def oracle_verdicts(units: Iterable[Unit], recordings: Mapping[str, Trajectory]) -> Verdicts:
    """A perfect judge's table."""
    return {unit: oracle_verdict(recordings[unit.trajectory], unit) for unit in units}


def ceiling(
    seed: int = 0,
    *,
    users: int = 60,
    per_user: int = 20,
    history: int = 40,
    tasks: int = 40,
    rubric: Rubric | None = None,
    population: Population = POPULATION,
) -> PersonalReport:
    """Generic, personal and swapped accuracy with perfect verdicts.

    Args:
        seed: of rollouts, users, pairs and bootstrap.
        users: simulated users.
        per_user: held-out pairs of each.
        history: earlier choices of each, on dialogues of the train split; 0: stated slots alone.
        tasks: service-desk tasks of each of the two splits, six rollouts each.
        rubric: by default ``service_desk_steps``.
        population: how users are drawn.
    """
    rng = random.Random(seed)
    first = seed * 10_000
    past = styled_rollouts([sample_task("train", first + i) for i in range(tasks)], rng) if history else []
    held = styled_rollouts([sample_task("heldout", first + i) for i in range(tasks)], rng)
    people = draw_users(users, rng, population)
    before = draw_pairs(people, past, behaviour, rng, per_user=history) if history else []
    pairs = draw_pairs(people, held, behaviour, rng, per_user=per_user)
    swapped = derangement(people, rng)
    by_id = {t.id: t for t in (*past, *held)}
    rubrics = UserRubrics(rubric or Rubric.load("service_desk_steps"), people)
    table = oracle_verdicts(rubrics.units([*before, *pairs], by_id, swapped), by_id)
    return evaluate_personal(PersonalScorer(rubrics, by_id, table), before, pairs, swapped, seed=seed)
