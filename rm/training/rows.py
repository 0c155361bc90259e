"""Judge examples become token rows: the ids of the scoring prompt, then the answer, which alone is trained.

Direct rows train the label and the end token (engines force the lead-in, so it belongs to the prompt);
critique rows train notes, quotes, lead-in, label and end; joint rows ask several questions about one unit and
train every line of the answer. Nothing is ever cut: a row that is too long, or
that says again what another row says, is dropped and counted.
"""

import hashlib
import random
from collections.abc import Callable, Mapping, Sequence

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.trajectory import Trajectory, canonical_json
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.grammar import Quote
from axiomrm.rm.labels import BINARY, Label, LabelSet, label_set
from axiomrm.rm.prompt import Criterion, JudgePrompter
from axiomrm.rm.training.joint import joint_groups, joint_ids
from axiomrm.rm.training.row_set import DropReason, Item, JudgeRow, RowSet


def make_rows(
    examples: Sequence[JudgeExample],
    prompter: JudgePrompter,
    *,
    direct_share: float = 0.5,
    joint_share: float = 0.0,
    joint_size: tuple[int, int] = (2, 8),
    max_tokens: int = 2048,
    seed: int = 0,
    guidelines: str = "",
    label_sets: Mapping[str, LabelSet] | None = None,
    label_weight: float = 1.0,
) -> RowSet:
    """One row an example, or several examples about one unit in a joint row; in the order of the examples.

    Args:
        examples: examples without notes always make direct rows.
        prompter: the one that scoring will use.
        direct_share: wanted share of direct rows in [0, 1] (half: arXiv:2510.17793); met exactly, up to
            rounding, as long as enough examples have notes.
        joint_share: wanted share of examples in joint rows, in [0, 1]; a joint row has notes only if all its
            examples do.
        joint_size: fewest and most questions of a joint row.
        max_tokens: longest row.
        seed: decides modes and nonces.
        guidelines: the rubric's text for all criteria.
        label_sets: by criterion id, where labels carry texts or values of their own.
        label_weight: how much a label token counts beside a token of a note.

    Raises:
        ConfigError: a share lies outside [0, 1], or the template takes no joint questions.
        DataError: an example's label is none of its labels.
    """
    _check_shares(direct_share=direct_share, joint_share=joint_share)
    groups = _groups(examples, prompter, joint_share, joint_size, seed)
    asked = [(e, _checked_labels(e, index, label_sets or {})) for index, e in enumerate(examples)]
    direct = _direct_groups(examples, groups, direct_share, seed)

    def row_of(number: int) -> JudgeRow:
        own = [asked[i] for i in groups[number]]
        return _row(own, prompter, number in direct, seed, guidelines, label_weight)

    return _collected(groups, row_of, max_tokens)


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise ConfigError(f"{name} {share!r} must lie in [0, 1]")


def _collected(groups: Sequence[Sequence[int]], row_of: Callable[[int], JudgeRow], max_tokens: int) -> RowSet:
    """The rows of all groups; those that cannot be are dropped with the reason."""
    made = RowSet()
    for number, members in enumerate(groups):
        try:
            row = row_of(number)
        except ConfigError as error:
            made.drop(members, "bad_input", str(error))
        else:
            made.take(members, row, max_tokens)
    return made


def _groups(
    examples: Sequence[JudgeExample],
    prompter: JudgePrompter,
    share: float,
    sizes: tuple[int, int],
    seed: int,
) -> list[tuple[int, ...]]:
    """The examples of each row, joint rows where their first member stands."""
    if not share:
        return [(index,) for index in range(len(examples))]
    if not 2 <= sizes[0] <= sizes[1]:
        raise ConfigError(f"joint_size {list(sizes)}: expected 2 or more, and the smaller number first")
    prompter.check_joint(sizes[1])
    joint = joint_groups(examples, share, sizes, seed)
    together = {index for members in joint for index in members}
    alone = [(index,) for index in range(len(examples)) if index not in together]
    return sorted([*joint, *alone], key=min)


def _checked_labels(example: JudgeExample, index: int, sets: Mapping[str, LabelSet]) -> LabelSet:
    labels = sets.get(example.criterion_id) or _labels(example.labels)
    if example.label not in labels.tokens:
        place = f"example {index} ({example.criterion_id!r})"
        raise DataError(f"{place}: label {example.label!r} is none of {labels.tokens}")
    return labels


def usable_pair(chosen: Sequence[int], rejected: Sequence[int], max_tokens: int) -> DropReason | None:
    """Why a pair cannot train a judge, or ``None``: too long, or nothing tells its sides apart.

    Sides that were cut to the same ids would train the model to contradict itself.
    """
    if list(chosen) == list(rejected):
        return "identical"
    return "too_long" if max(len(chosen), len(rejected)) > max_tokens else None


def _direct_groups(
    examples: Sequence[JudgeExample], groups: Sequence[Sequence[int]], share: float, seed: int
) -> set[int]:
    silent = {n for n, members in enumerate(groups) if not all(examples[i].notes for i in members)}
    free = [n for n in range(len(groups)) if n not in silent]
    wanted = min(len(free), max(0, round(share * len(groups)) - len(silent)))
    return silent | set(random.Random(f"modes {seed}").sample(free, wanted))


def _row(
    asked: Sequence[tuple[JudgeExample, LabelSet]],
    prompter: JudgePrompter,
    direct: bool,
    seed: int,
    guidelines: str,
    label_weight: float,
) -> JudgeRow:
    example, labels = asked[0]
    unit = _root(example.trajectory)
    # One nonce for what starts alike, as in scoring: these rows share a prefix.
    nonce = prompter.random_nonce(random.Random(f"nonce {seed} {unit}"))
    if len(asked) == 1:
        ids, mask, place = _alone(example, labels, prompter, direct, guidelines, nonce)
        at: tuple[int, ...] = (place,)
    else:
        several, sets = [e for e, _ in asked], [s for _, s in asked]
        found = joint_ids(several, prompter, sets, direct=direct, guidelines=guidelines, nonce=nonce)
        ids, mask, at = found.input_ids, found.completion_mask, found.labels_at
    items = [Item(e.criterion_id, e.label, place) for (e, _), place in zip(asked, at, strict=True)]
    return JudgeRow(
        ids,
        mask,
        items[0].at,
        "direct" if direct else "critique",
        items[0].criterion_id,
        items[0].label,
        example.source,
        unit,
        sum(e.weight for e, _ in asked) / len(asked),
        label_weight=label_weight,
        others=tuple(items[1:]),
    )


def _alone(
    example: JudgeExample,
    labels: LabelSet,
    prompter: JudgePrompter,
    direct: bool,
    guidelines: str,
    nonce: str,
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    made = prompter.training_row(
        example.trajectory,
        Criterion(example.criterion_id, example.ask, labels),
        example.label,
        example.turn,
        notes=None if direct else example.notes,
        quotes=[Quote(turn, text) for turn, text in example.quotes],
        guidelines=guidelines,
        nonce=nonce,
        lead_in_loss=not direct,
    )
    return tuple(made.input_ids), tuple(made.completion_mask), made.label_at


def _root(trajectory: Trajectory) -> str:
    first = next((t.start for t in trajectory.turns), len(trajectory.messages))
    opening = [message.model_dump(mode="json") for message in trajectory.messages[:first]]
    payload = canonical_json([trajectory.task.reference, opening])
    return hashlib.sha256(payload.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _labels(tokens: tuple[str, ...]) -> LabelSet:
    if tokens == ("Y", "N"):
        return BINARY
    values = [i / max(1, len(tokens) - 1) for i in range(len(tokens))]
    return label_set([Label(token, value) for token, value in zip(tokens, values, strict=True)])
