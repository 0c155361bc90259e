"""One renderer for training rows, scoring prompts and serving.

Order, each part constant for longer than the next: rules, guidelines, reference, conversation, *end of the
shared prefix*, closing fence, which turn, criterion, labels, mode, form of the answer. N criteria then cost
one reading of the conversation, and the prefix for turn t begins the prefix for turn t + 1.

Ids are built piece by piece and a piece ends at a line break, so a piece always has the same ids.
"""

import hashlib
import hmac
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from axiomrm.data.trajectory import Trajectory, canonical_json
from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.rm.chat import FrameIds, added_tokens, chat_frame, frame_ids, tokenizer_hash
from axiomrm.rm.conversation import pieces
from axiomrm.rm.engines.base import Prompt
from axiomrm.rm.grammar import GRAMMAR_VERSION, Quote, lead_in, notes_text
from axiomrm.rm.labels import BINARY, LabelSet, LabelTable, label_table, level_labels, pair_labels
from axiomrm.rm.neutral import GENERIC, control_pattern, neutralise
from axiomrm.rm.templating import PromptTemplate, load_template

Mode = Literal["direct", "critique"]
DEFAULT_SECRET = "axiomrm"
"""Nonce secret of a run that sets none: repeatable, but known to whoever reads this file. Set your own where
the graded agent is trained against the judge."""
_CONSONANTS, _VOWELS = "bdfghjklmnprstvwz", "aeiou"
NONCE_LETTERS = {"compact": 4}
"""Letters of a nonce by template; 6 elsewhere. Syllables, because they cost a small vocabulary few tokens."""
_STANDARD = {"yes", "no", "the recording does not tell"}
_CACHED_PIECES = 32768
Ids = tuple[int, ...]


@dataclass(frozen=True)
class Criterion:
    """One question for the judge."""

    id: str
    ask: str
    labels: LabelSet = BINARY


@dataclass(frozen=True)
class TrainingRow:
    """A prompt with its completion, as the trainer eats it."""

    input_ids: list[int]
    completion_mask: list[int]
    """1 = counts for the loss."""
    label_at: int
    """Index of the label token."""


class _Shared:
    """A trajectory's prefix, up to the end of each turn and of the whole."""

    def __init__(self, key: tuple[Any, ...], ids: list[Ids], texts: list[str]) -> None:
        self.key, self.ids, self.texts = key, ids, texts


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
        self._shared: _Shared | None = None
        self._encode: Callable[[str], Ids] = lru_cache(_CACHED_PIECES)(self._encode_data)
        self._control = control_pattern(added_tokens(tokenizer)) if tokenizer is not None else GENERIC
        self._neutral = lru_cache(_CACHED_PIECES)(lambda text: neutralise(text, self._control))
        self.table: Callable[[LabelSet, str], LabelTable] = lru_cache(_CACHED_PIECES)(self._table)
        self._block = lru_cache(_CACHED_PIECES)(self._block_text)
        arguments = {"enable_thinking": False, **(chat_arguments or {})}
        self.frame = None if tokenizer is None else chat_frame(tokenizer, arguments)
        self._around = frame_ids(self.frame, tokenizer) if self.frame is not None else FrameIds()
        self.end_ids = self._around.end
        for labels in (BINARY, level_labels([(i / 6, "") for i in range(7)]), pair_labels()):
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

    def nonce(self, trajectory: Trajectory) -> str:
        """The conversation's nonce: equal for all its criteria, turns and continuations."""
        root = []
        for message in trajectory.messages:
            if message.role == "assistant":
                break
            root.append(message.model_dump(mode="json"))
        return self.nonce_of(canonical_json(root))

    def nonce_of(self, root: str) -> str:
        """Letters of HMAC(secret, root)."""
        digest = hmac.new(
            self.secret.encode(), root.encode("utf-8", "surrogatepass"), hashlib.sha256
        ).digest()
        letters = NONCE_LETTERS.get(self.template.name, 6)
        return "".join(_syllable(digest[i], i) for i in range(letters))

    def random_nonce(self, rng: random.Random) -> str:
        """A nonce for a training row."""
        return self.nonce_of(f"training {rng.getrandbits(64)}")

    def render(
        self,
        trajectory: Trajectory,
        criterion: Criterion,
        turn: int | None = None,
        mode: Mode = "direct",
        *,
        guidelines: str = "",
        nonce: str | None = None,
    ) -> Prompt | Failed:
        """The prompt for one criterion on one unit.

        Args:
            trajectory: the recording; a string in ``task.reference`` is shown before it.
            criterion: the question and its labels.
            turn: 0-based; the judge sees the history up to the end of this turn. ``None``: all of it.
            mode: verdict alone, or notes before it.
            guidelines: the rubric's text for all criteria.
            nonce: fixed by training rows; by default the conversation's own.

        Returns:
            The prompt, or ``Failed("bad_input")`` where there is no such turn to judge.
        """
        nonce = nonce or self.nonce(trajectory)
        shared = self._prefixes(trajectory, guidelines, nonce)
        turns = len(shared.ids) - 1
        if turns == 0 or not (turn is None or 0 <= turn < turns):
            where = "an agent message" if turn is None else f"turn t{turn + 1}"
            return Failed(kind="bad_input", detail=f"no {where} to judge: the recording has {turns} turns")
        at = turns if turn is None else turn
        parts = (
            self._block("close", nonce=nonce),
            self._block("look", turn=0 if turn is None else turn + 1),
            self._block(
                "question", ask=criterion.ask, labels=criterion.labels, mode=mode, nonce=nonce
            ).rstrip("\n"),
        )
        text = "".join(parts)
        suffix = tuple(i for part in parts for i in self._encode(part)) + self._around.tail
        return Prompt(shared.ids[at], suffix, self._messages(guidelines, shared.texts[at] + text), nonce)

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
        before = () if notes is None else self._encode(self._neutral(notes_text(notes, quotes)))
        ids = (*before, *table.lead_in_ids, table.label_ids[label], *self.end_ids)
        return ids, len(before) + len(table.lead_in_ids)

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
            lead_in_loss: whether the lead-in counts. Local engines force it, so by default it does not and
                the loss of a direct row is the label's; a judge for chat servers must learn to write it.

        Raises:
            ConfigError: the unit cannot be rendered or the label is illegal.
        """
        mode: Mode = "direct" if notes is None else "critique"
        prompt = self.render(trajectory, criterion, turn, mode, guidelines=guidelines, nonce=nonce)
        if isinstance(prompt, Failed):
            raise ConfigError(f"training row for {criterion.id!r}: {prompt.detail}")
        completion, at = self.completion_ids(prompt.nonce, criterion.labels, label, notes, quotes)
        forced = len(self.table(criterion.labels, prompt.nonce).lead_in_ids)
        mask = [1] * len(completion)
        if not lead_in_loss:
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
        return str(self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def _prefixes(self, trajectory: Trajectory, guidelines: str, nonce: str) -> _Shared:
        # Callers walk one trajectory after the other, so remembering the last one is enough.
        key = (trajectory, guidelines, nonce)
        if self._shared and self._shared.key[0] is trajectory and self._shared.key[1:] == key[1:]:
            return self._shared
        reference = trajectory.task.reference
        system = self._system(guidelines)
        opening = self._block("open", nonce=nonce, reference=reference if isinstance(reference, str) else "")
        ids = self._around.head + self._encode(system) + self._around.middle + self._encode(opening)
        text, cuts = opening, [t.end for t in trajectory.turns]
        all_ids: list[Ids] = []
        all_texts: list[str] = []
        lines = pieces(trajectory, self._control)
        for piece in lines:
            while len(all_ids) < len(cuts) and piece.message >= cuts[len(all_ids)]:
                all_ids.append(ids)
                all_texts.append(text)
            ids += self._encode(piece.line)
            text += piece.line
        missing = len(cuts) + 1 - len(all_ids)
        self._shared = _Shared(key, all_ids + [ids] * missing, all_texts + [text] * missing)
        return self._shared

    def _system(self, guidelines: str) -> str:
        return self._block("system", guidelines=guidelines).rstrip("\n")

    def _messages(self, guidelines: str, user: str) -> tuple[Mapping[str, str], ...]:
        system, user = self._system(guidelines), user.rstrip("\n")
        if self.frame and self.frame.folded:
            return ({"role": "user", "content": f"{system}\n\n{user}"},)
        return ({"role": "system", "content": system}, {"role": "user", "content": user})

    def _block_text(
        self,
        name: str,
        *,
        nonce: str = "",
        turn: int = 0,
        guidelines: str = "",
        reference: str = "",
        ask: str = "",
        labels: LabelSet = BINARY,
        mode: Mode = "direct",
    ) -> str:
        shown = [
            {"token": label.token, "text": self._neutral(label.text), "standard": label.text in _STANDARD}
            for label in labels.labels
        ]
        return self.template.block(
            name,
            nonce=nonce,
            turn=turn,
            guidelines=self._neutral(guidelines).strip(),
            reference=self._neutral(reference).strip(),
            ask=self._neutral(ask).strip(),
            labels=shown,
            mode="notes" if mode == "critique" else "direct",
        )

    def _encode_data(self, text: str) -> Ids:
        if self.tokenizer is None or not text:
            return ()
        return tuple(self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))

    def _table(self, labels: LabelSet, nonce: str) -> LabelTable:
        opening = lead_in(nonce)
        if self.tokenizer is None:
            return LabelTable(opening, (), dict.fromkeys(labels.tokens, -1))
        return label_table({token: self._encode_data(opening + token) for token in labels.tokens}, opening)


def _syllable(byte: int, place: int) -> str:
    letters = _VOWELS if place % 2 else _CONSONANTS
    return letters[byte % len(letters)]
