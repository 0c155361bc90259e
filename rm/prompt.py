"""One renderer for training rows, scoring prompts and serving.

Order, each part constant for longer than the next: rules, guidelines, reference, conversation, *end of the
shared prefix*, closing fence, which turn, criterion, labels, mode, form of the answer. N criteria then cost
one reading of the conversation, and the prefix for turn t begins the prefix for turn t + 1.

Ids are built piece by piece and a piece ends at a line break, so a piece always has the same ids.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.rm.blocks import Blocks
from axiomrm.rm.blocks import Criterion as Criterion
from axiomrm.rm.blocks import Mode as Mode
from axiomrm.rm.chat import FrameIds, added_tokens, chat_frame, data_ids, frame_ids, text_of, tokenizer_hash
from axiomrm.rm.conversation import no_unit
from axiomrm.rm.engines.base import Prompt
from axiomrm.rm.grammar import GRAMMAR_VERSION, Quote, lead_in, notes_text
from axiomrm.rm.labels import BINARY, LabelSet, LabelTable, label_table, level_labels, pair_labels
from axiomrm.rm.neutral import GENERIC, control_pattern
from axiomrm.rm.nonce import DEFAULT_SECRET as DEFAULT_SECRET
from axiomrm.rm.nonce import nonce_letters, nonce_of, opening_of
from axiomrm.rm.prefixes import Elided, Ids, Prefixes
from axiomrm.rm.templating import PromptTemplate, load_template

View = Literal["causal", "hindsight"]
_CHECKED = (BINARY, level_labels([(i / 6, "") for i in range(7)]), pair_labels())
_CACHED_PIECES = 32768


@dataclass(frozen=True)
class TrainingRow:
    """A prompt with its completion, as the trainer eats it."""

    input_ids: list[int]
    completion_mask: list[int]
    """1 = counts for the loss."""
    label_at: int
    """Index of the label token."""


class JudgePrompter:
    """Renders judge prompts for one tokenizer, one template and one nonce secret."""

    def __init__(
        self,
        tokenizer: Any | None,
        *,
        template: str | PromptTemplate = "default",
        secret: str = DEFAULT_SECRET,
        chat_arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Load the template and prove that its labels are single tokens.

        Args:
            tokenizer: a transformers tokenizer with a chat template; ``None`` for engines that take
                messages (prompts then hold no ids).
            template: a shipped name, a ``.j2`` path or a loaded template.
            secret: key of the nonces; a run with the same secret repeats exactly.
            chat_arguments: arguments of the chat template; thinking is off unless they say otherwise.

        Raises:
            ConfigError: template, chat template or labels cannot be used.
        """
        self.template = load_template(template) if isinstance(template, str) else template
        self.secret = secret
        self.tokenizer = tokenizer
        self._encode: Callable[[str], Ids] = lru_cache(_CACHED_PIECES)(self._encode_data)
        self.control = control_pattern(added_tokens(tokenizer)) if tokenizer is not None else GENERIC
        self._blocks = Blocks(self.template, self.control)
        self.table: Callable[..., LabelTable] = lru_cache(_CACHED_PIECES)(self._table)
        self.frame = None if tokenizer is None else chat_frame(tokenizer, chat_arguments or {})
        self._around = frame_ids(self.frame, tokenizer) if self.frame is not None else FrameIds()
        self.end_ids = self._around.end
        self._prefixes = Prefixes(self._encode, self._blocks, self._around, self.control)
        for labels in _CHECKED:
            self.table(labels, self.nonce_of("load check"))

    @property
    def fingerprint(self) -> dict[str, str]:
        """Hashes of all that shapes a prompt; part of the judge revision."""
        return {
            "template": self.template.name,
            "template_hash": self.template.hash,
            "grammar": GRAMMAR_VERSION,
            "chat_template_hash": self.frame.hash if self.frame else "",
            "tokenizer_hash": tokenizer_hash(self.tokenizer) if self.tokenizer is not None else "",
        }

    def check_joint(self, joint: int) -> None:
        """Raise unless ``joint`` criteria fit into one prompt of this template and tokenizer.

        Raises:
            ConfigError: the template has no block ``joint``, or some label is not one token in its line.
        """
        if joint > 1:
            self.template.require("joint")
            for labels in _CHECKED:
                for item in {1, joint}:
                    self.table(labels, self.nonce_of("load check"), item)

    def nonce(self, trajectory: Trajectory) -> str:
        """The conversation's nonce: equal for all its criteria, turns and continuations."""
        return self.nonce_of(opening_of(trajectory))

    def nonce_of(self, root: str) -> str:
        """Letters of HMAC(secret, root)."""
        return nonce_of(self.secret, root, nonce_letters(self.template.name))

    def random_nonce(self, rng: random.Random) -> str:
        """A nonce for a training row."""
        return self.nonce_of(f"training {rng.getrandbits(64)}")

    def render(
        self,
        trajectory: Trajectory,
        criterion: Criterion | Sequence[Criterion],
        turn: int | None = None,
        mode: Mode = "direct",
        *,
        guidelines: str = "",
        nonce: str | None = None,
        view: View = "causal",
        elided: Elided = frozenset(),
    ) -> Prompt | Failed:
        """The prompt for one criterion, or for several together, on one unit.

        Args:
            trajectory: the recording; a string in ``task.reference`` is shown before it.
            criterion: the question and its labels; several are numbered from 1, in this order.
            turn: 0-based; the judge sees the history up to the end of this turn. ``None``: all of it.
            mode: verdict alone, or notes before it.
            guidelines: the rubric's text for all criteria.
            nonce: fixed by training rows; by default the conversation's own.
            view: ``hindsight`` shows the turns after ``turn`` too.
            elided: indices of tool messages whose content gives way to a mark.

        Returns:
            The prompt, or ``Failed("bad_input")`` where there is no such turn to judge.
        """
        criteria = [criterion] if isinstance(criterion, Criterion) else list(criterion)
        if failure := no_unit(trajectory, turn):
            return failure
        nonce = nonce or self.nonce(trajectory)
        shared = self._prefixes.of(trajectory, nonce, guidelines=guidelines, elided=elided)
        at = shared.turns if turn is None or view == "hindsight" else turn
        parts = self._blocks.closing(nonce, 0 if turn is None else turn + 1)
        parts.append(self._blocks.question(criteria, mode, nonce))
        suffix = tuple(i for part in parts for i in self._encode(part)) + self._around.tail
        user = shared.texts[at] + "".join(parts)
        return Prompt(shared.ids[at], suffix, self._messages(self._blocks.system(guidelines), user), nonce)

    def plain(self, system: str, user: str, nonce: str = "") -> Prompt:
        """A prompt of two texts that follows no template; control tokens never come out of them."""
        ids = self._around.head + self._encode(system) + self._around.middle + self._encode(user)
        return Prompt(ids + self._around.tail, (), self._messages(system, user), nonce)

    def completion_ids(
        self, nonce: str, labels: LabelSet, label: str, notes: str | None = None, quotes: Sequence[Quote] = ()
    ) -> tuple[Ids, int]:
        """A training completion and the index of its label token.

        Args:
            nonce: as in the prompt.
            labels: the criterion's labels.
            label: the gold label.
            notes: ``None`` for direct mode.
            quotes: at most three are written.

        Raises:
            ConfigError: ``label`` is none of ``labels``.
        """
        table = self.table(labels, nonce)
        if label not in table.label_ids:
            raise ConfigError(f"label {label!r} is none of {list(table.label_ids)}")
        before = () if notes is None else self.notes_ids(notes, quotes)
        ids = (*before, *table.lead_in_ids, table.label_ids[label], *self.end_ids)
        return ids, len(before) + len(table.lead_in_ids)

    def notes_ids(self, notes: str, quotes: Sequence[Quote] = ()) -> Ids:
        """Ids of the lines before the verdict line; at most three quotes are written."""
        return self._encode(self._blocks.neutral(notes_text(notes, quotes)))

    def training_row(
        self,
        trajectory: Trajectory,
        criterion: Criterion,
        label: str,
        turn: int | None = None,
        *,
        notes: str | None = None,
        quotes: Sequence[Quote] = (),
        guidelines: str = "",
        nonce: str | None = None,
        lead_in_loss: bool = False,
    ) -> TrainingRow:
        """A row with the ids of the scoring prompt and its gold completion.

        Args:
            trajectory: as in :meth:`render`, like ``criterion``, ``turn``, ``guidelines`` and ``nonce``.
            criterion: the question.
            label: the gold label.
            turn: 0-based, ``None`` for the whole conversation.
            notes: a gold critique; ``None`` makes a direct row.
            quotes: its quotes.
            guidelines: the rubric's text for all criteria.
            nonce: draw one with :meth:`random_nonce`; by default the conversation's own.
            lead_in_loss: whether the lead-in counts. Local engines force it, so by default the loss of a
                direct row is the label's alone; a judge for chat servers must learn to write it.

        Raises:
            ConfigError: the unit cannot be rendered or the label is illegal.
        """
        mode: Mode = "direct" if notes is None else "critique"
        prompt = self.render(trajectory, criterion, turn, mode, guidelines=guidelines, nonce=nonce)
        if isinstance(prompt, Failed):
            raise ConfigError(f"training row for {criterion.id!r}: {prompt.detail}")
        completion, at = self.completion_ids(prompt.nonce, criterion.labels, label, notes, quotes)
        forced = 0 if lead_in_loss else len(self.table(criterion.labels, prompt.nonce).lead_in_ids)
        mask = [1] * len(completion)
        mask[at - forced : at] = [0] * forced
        n = len(prompt.ids)
        return TrainingRow([*prompt.ids, *completion], [0] * n + mask, n + at)

    def encode(self, text: str) -> Ids:
        """Ids of a piece of data; control tokens never come out of it."""
        return self._encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated ids, control tokens shown."""
        if self.tokenizer is None:
            return ""
        return text_of(self.tokenizer, ids)

    def _messages(self, system: str, user: str) -> tuple[Mapping[str, str], ...]:
        user = user.rstrip("\n")
        if self.frame and self.frame.folded:
            return ({"role": "user", "content": f"{system}\n\n{user}"},)
        return ({"role": "system", "content": system}, {"role": "user", "content": user})

    def _encode_data(self, text: str) -> Ids:
        if self.tokenizer is None or not text:
            return ()
        return data_ids(self.tokenizer, text)

    def _table(self, labels: LabelSet, nonce: str, item: int | None = None) -> LabelTable:
        opening = lead_in(nonce, item)
        if self.tokenizer is None:
            return LabelTable(opening, (), dict.fromkeys(labels.tokens, -1))
        return label_table({token: self._encode_data(opening + token) for token in labels.tokens}, opening)
