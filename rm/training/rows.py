"""Judge examples become token rows: the ids of the scoring prompt, then the answer, which alone is trained.

Direct rows train the label and the end token (engines force the lead-in, so it belongs to the prompt);
critique rows train notes, quotes, lead-in, label and end. Nothing is ever cut: a row that is too long, or
that says again what another row says, is dropped and counted.
"""

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.trajectory import Trajectory, canonical_json
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm.grammar import Quote
from axiomrm.rm.labels import BINARY, Label, LabelSet, label_set
from axiomrm.rm.prompt import Criterion, JudgePrompter, Mode

DropReason = Literal["too_long", "identical", "bad_input"]
IGNORED = -100
"""Label of a token that is not trained, as torch and transformers have it."""


@dataclass(frozen=True)
class JudgeRow:
    """One question with its answer, as ids."""

    input_ids: tuple[int, ...]
    completion_mask: tuple[int, ...]
    """1 = trained."""
    label_at: int
    """Index of the label token."""
    mode: Mode
    criterion_id: str = ""
    label: str = ""
    source: str = ""
    unit: str = ""
    """Rows with equal units show recordings that start alike, so they can share a prefix."""
    weight: float = 1.0
    label_weight: float = 1.0
    """How much the label token counts beside any other trained token."""

    @property
    def start(self) -> int:
        """Index of the first trained token; what stands before it is the prompt."""
        return self.completion_mask.index(1)


@dataclass(frozen=True)
class Dropped:
    """An example that made no row."""

    index: int
    """Its place among the examples."""
    reason: DropReason
    detail: str


@dataclass
class RowSet:
    """Rows and what became of the other examples."""

    rows: list[JudgeRow] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    _seen: set[tuple[int, ...]] = field(default_factory=set, repr=False, compare=False)

    def take(self, index: int, row: JudgeRow, max_tokens: int) -> None:
        """Keep the row of an example unless it is too long or its ids are there already."""
        if len(row.input_ids) > max_tokens:
            detail = f"{len(row.input_ids)} tokens, at most {max_tokens}"
            self.dropped.append(Dropped(index, "too_long", detail))
        elif row.input_ids in self._seen:
            self.dropped.append(Dropped(index, "identical", "an earlier row has the same ids"))
        else:
            self._seen.add(row.input_ids)
            self.rows.append(row)

    @property
    def direct_share(self) -> float | None:
        """Real share of direct rows; ``None``: no rows."""
        return sum(row.mode == "direct" for row in self.rows) / len(self.rows) if self.rows else None

    def counts(self) -> dict[str, dict[str, int]]:
        """Rows by mode, source, label and criterion, and dropped examples by reason."""
        fields = ("mode", "source", "label", "criterion_id")
        counts = {name: dict(Counter(str(getattr(row, name)) for row in self.rows)) for name in fields}
        return counts | {"dropped": dict(Counter(d.reason for d in self.dropped))}

    def data_hash(self) -> str:
        """SHA-256 over ids, masks and weights, in order."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(repr((row.input_ids, row.completion_mask, row.weight)).encode())
        return digest.hexdigest()


def make_rows(
    examples: Sequence[JudgeExample],
    prompter: JudgePrompter,
    *,
    direct_share: float = 0.5,
    max_tokens: int = 2048,
    seed: int = 0,
    guidelines: str = "",
    label_sets: Mapping[str, LabelSet] | None = None,
    label_weight: float = 1.0,
) -> RowSet:
    """One row an example, in order.

    Args:
        examples: examples without notes always make direct rows.
        prompter: the one that scoring will use.
        direct_share: wanted share of direct rows in [0, 1] (half: arXiv:2510.17793); met exactly, up to
            rounding, as long as enough examples have notes.
        max_tokens: longest row.
        seed: decides modes and nonces.
        guidelines: the rubric's text for all criteria.
        label_sets: by criterion id, where labels carry texts or values of their own.
        label_weight: how much a label token counts beside a token of a note.

    Raises:
        ConfigError: ``direct_share`` lies outside [0, 1].
        DataError: an example's label is none of its labels.
    """
    if not 0 <= direct_share <= 1:
        raise ConfigError(f"direct_share {direct_share!r} must lie in [0, 1]")
    sets = label_sets or {}
    direct = _direct_examples(examples, direct_share, seed)
    made = RowSet()
    for index, example in enumerate(examples):
        labels = _checked_labels(example, index, sets)
        try:
            row = _row(example, prompter, labels, index in direct, seed, guidelines)
        except ConfigError as error:
            made.dropped.append(Dropped(index, "bad_input", str(error)))
        else:
            made.take(index, replace(row, label_weight=label_weight), max_tokens)
    return made


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


def _direct_examples(examples: Sequence[JudgeExample], share: float, seed: int) -> set[int]:
    silent = {i for i, example in enumerate(examples) if not example.notes}
    free = [i for i in range(len(examples)) if i not in silent]
    wanted = min(len(free), max(0, round(share * len(examples)) - len(silent)))
    return silent | set(random.Random(f"modes {seed}").sample(free, wanted))


def _row(
    example: JudgeExample, prompter: JudgePrompter, labels: LabelSet, direct: bool, seed: int, guidelines: str
) -> JudgeRow:
    unit = _root(example.trajectory)
    made = prompter.training_row(
        example.trajectory,
        Criterion(example.criterion_id, example.ask, labels),
        example.label,
        example.turn,
        notes=None if direct else example.notes,
        quotes=[Quote(turn, text) for turn, text in example.quotes],
        guidelines=guidelines,
        # One nonce for what starts alike, as in scoring: these rows share a prefix.
        nonce=prompter.random_nonce(random.Random(f"nonce {seed} {unit}")),
        lead_in_loss=not direct,
    )
    return JudgeRow(
        tuple(made.input_ids),
        tuple(made.completion_mask),
        made.label_at,
        "direct" if direct else "critique",
        example.criterion_id,
        example.label,
        example.source,
        unit,
        example.weight,
    )


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
