"""Training rows for the personal stage: the questions that profiles compile to, on whole dialogues."""

import random
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, NamedTuple

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.trajectory import Trajectory
from axiomrm.personalization.judging import UserRubrics
from axiomrm.personalization.profile import Purpose
from axiomrm.personalization.simulate import SimulatedUser
from axiomrm.rubrics.rubric import Rubric


class OracleLabel(NamedTuple):
    """A right answer with the note and quotes of a perfect critic."""

    label: Literal["Y", "N", "X"]
    """``X``: the dialogue holds nothing to judge it by."""
    note: str
    quotes: tuple[tuple[int, str], ...] = ()
    """0-based turn and words copied from it."""


USES: tuple[Purpose, ...] = ("judging", "rm_training")
"""What a slot value must be allowed for, beyond criteria, to make a training row."""
LabelOf = Callable[[Trajectory, str], OracleLabel | None]
"""Right answer to a question on a dialogue; ``None``: ambiguous, no row is made of it."""


def personal_examples(
    recordings: Sequence[Trajectory],
    users: Sequence[SimulatedUser],
    rng: random.Random,
    *,
    rubric: Rubric,
    label_of: LabelOf,
    per_label: int = 100,
    na_share: float = 0.5,
    now: datetime | None = None,
) -> list[JudgeExample]:
    """Rows for the questions of these users, as many of Y as of N for each question, in random order.

    All questions take their rows from the recordings in one random order, so that few recordings get many
    questions: questions about one recording share a single reading of it in training.

    Args:
        recordings: of the train split.
        users: training users; only what they allowed for ``rm_training`` makes a question.
        rng: draws the order.
        rubric: with the personal templates.
        label_of: the right answers.
        per_label: most rows of one label of one question.
        na_share: most rows labelled X, in units of the rows labelled Y.
        now: when the profiles are read, with a zone; by default the real time.

    Raises:
        DataError: ``now`` has no time zone.
    """
    asked = _questions(recordings, UserRubrics(rubric, users, uses=USES, now=now))
    shuffled = rng.sample(recordings, len(recordings))
    out: list[JudgeExample] = []
    for ask in sorted(asked):
        rows: dict[str, list[JudgeExample]] = {"Y": [], "N": [], "X": []}
        for trajectory in shuffled:
            found = label_of(trajectory, ask)
            if found is not None:
                rows[found.label].append(_example(trajectory, asked[ask], ask, found))
        count = min(per_label, len(rows["Y"]), len(rows["N"]))
        out += rows["Y"][:count] + rows["N"][:count] + rows["X"][: int(count * na_share)]
    rng.shuffle(out)
    return out


def _questions(recordings: Sequence[Trajectory], rubrics: UserRubrics) -> dict[str, str]:
    """Question → template, over the kinds of tasks that occur."""
    kinds = {repr(sorted(t.task.features.items())): t for t in recordings}
    return {
        criterion.ask: criterion.id
        for user in rubrics.users
        for trajectory in kinds.values()
        for criterion in rubrics.compiled(user.id, trajectory).criteria
    }


def _example(trajectory: Trajectory, criterion_id: str, ask: str, found: OracleLabel) -> JudgeExample:
    return JudgeExample(
        trajectory=trajectory,
        turn=None,
        criterion_id=criterion_id,
        ask=ask,
        label=found.label,
        notes=found.note,
        quotes=found.quotes,
        source="oracle",
        tags=("personal", "surface"),
    )
