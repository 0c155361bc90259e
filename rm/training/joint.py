"""Joint rows: several questions about one unit in one prompt, with one verdict line for each.

At inference nothing forces a joint answer, so the whole of it is trained: lead-ins, line breaks, labels, end.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.rm.grammar import Quote
from axiomrm.rm.labels import LabelSet
from axiomrm.rm.prompt import Criterion, JudgePrompter, Mode

QUOTES = 3
"""At most so many stand in one answer."""


@dataclass(frozen=True)
class JointIds:
    """A joint prompt with its answer."""

    input_ids: tuple[int, ...]
    completion_mask: tuple[int, ...]
    labels_at: tuple[int, ...]
    """Index of each label token, in the order of the questions."""


def joint_groups(
    examples: Sequence[JudgeExample], share: float, sizes: tuple[int, int], seed: int
) -> list[tuple[int, ...]]:
    """Which examples are asked together, and in which order.

    Args:
        examples: all that rows are made of.
        share: wanted share of them in joint rows, at most one row a unit; fewer where units have too few
            questions.
        sizes: fewest and most questions of a row; sizes are drawn evenly, and the largest rows go to the
            units with most questions, which alone can fill them.
        seed: of the choice of units, questions and orders.

    Returns:
        Indices of the examples of each joint row.
    """
    rng = random.Random(f"joint {seed}")
    units = [members for members in _units(examples) if len(members) >= sizes[0]]
    left = round(share * len(examples))
    drawn: list[int] = []
    while left > 0 and len(drawn) < len(units):
        drawn.append(rng.randint(*sizes))
        left -= drawn[-1]
    rng.shuffle(units)
    units.sort(key=len, reverse=True)
    chosen = zip(sorted(drawn, reverse=True), units, strict=False)
    groups = [tuple(rng.sample(members, min(size, len(members)))) for size, members in chosen]
    rng.shuffle(groups)
    return groups


def _units(examples: Sequence[JudgeExample]) -> list[list[int]]:
    """Indices of the examples about one unit, of each question the first."""
    units: dict[tuple[str, str, int | None], dict[str, int]] = {}
    for index, example in enumerate(examples):
        unit = (example.trajectory.id, example.trajectory.content_hash, example.turn)
        units.setdefault(unit, {}).setdefault(example.ask, index)
    return [list(questions.values()) for questions in units.values()]


def joint_ids(
    examples: Sequence[JudgeExample],
    prompter: JudgePrompter,
    label_sets: Sequence[LabelSet],
    *,
    direct: bool,
    guidelines: str,
    nonce: str,
) -> JointIds:
    """The ids of the joint scoring prompt and of its gold answer.

    Args:
        examples: questions about one unit, numbered in this order.
        prompter: the one that scoring will use.
        label_sets: of each question.
        direct: verdict lines alone; else the notes of all questions before them.
        guidelines: the rubric's text for all criteria.
        nonce: of prompt and answer.

    Raises:
        ConfigError: the unit cannot be rendered.
    """
    first = examples[0]
    criteria = [
        Criterion(e.criterion_id, e.ask, labels) for e, labels in zip(examples, label_sets, strict=True)
    ]
    mode: Mode = "direct" if direct else "critique"
    prompt = prompter.render(first.trajectory, criteria, first.turn, mode, guidelines=guidelines, nonce=nonce)
    if isinstance(prompt, Failed):
        raise ConfigError(f"joint row for {[e.criterion_id for e in examples]}: {prompt.detail}")
    answer = [] if direct else list(_notes_ids(examples, prompter))
    labels_at = []
    for number, (example, labels) in enumerate(zip(examples, label_sets, strict=True), 1):
        table = prompter.table(labels, nonce, number)
        answer += prompter.encode("\n") if number > 1 else ()
        answer += table.lead_in_ids
        labels_at.append(len(prompt.ids) + len(answer))
        answer.append(table.label_ids[example.label])
    answer += prompter.end_ids
    mask = (0,) * len(prompt.ids) + (1,) * len(answer)
    return JointIds((*prompt.ids, *answer), mask, tuple(labels_at))


def _notes_ids(examples: Sequence[JudgeExample], prompter: JudgePrompter) -> tuple[int, ...]:
    notes = "; ".join(f"{number}. {example.notes}" for number, example in enumerate(examples, 1))
    quotes = [Quote(turn, text) for example in examples for turn, text in example.quotes]
    return prompter.notes_ids(notes, quotes[:QUOTES])
