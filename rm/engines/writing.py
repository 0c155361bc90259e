"""Writing on after many prompts at once, in a batch that stays full.

A trunk is read when the first of its prompts gets a slot and dropped when its last one ends. A prompt that
ends leaves the batch at once and waiting ones take the free slots, so how many are written together depends
neither on how a conversation's criteria were packed nor on the longest answer.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.base import failure_of
from axiomrm.rm.engines.branching import Layers
from axiomrm.rm.engines.budget import Budget
from axiomrm.rm.engines.decoding import NO_TOKEN, Stop, Writer, ended
from axiomrm.rm.engines.forward import Forward, Read
from axiomrm.rm.engines.model_facts import out_of_memory
from axiomrm.rm.engines.packing import Family, Row
from axiomrm.rm.engines.slots import OnTrunk, Slots, Writing

Written = tuple[int, tuple[list[int], Stop] | Failed]
"""A prompt with its new ids and why they end, or why there are none."""
REFILL = 4
"""Waiting prompts are read when one in so many slots is free, or all that are needed."""


def fits(
    rows: Sequence[Row], families: Sequence[Family], budget: Budget, *, trunks: Sequence[int] = ()
) -> bool:
    """Whether one pass may read these rows; ``trunks``: families whose trunks are read with them."""
    tokens = sum(row.size for row in rows) + sum(len(families[f].trunk) for f in trunks)
    cells = 0
    for row in rows:
        cells += row.size**2 if len(row.leaves) > 1 else 0  # one prompt needs no mask
    return tokens <= budget.batch_tokens and cells <= budget.mask_cells


class Session:
    """Writes on after the prompts of a call; memory stays within the budget whatever their number."""

    def __init__(
        self,
        forward: Forward,
        writer: Writer,
        budget: Budget,
        families: Sequence[Family],
        rows: Sequence[Row],
        *,
        slots: int,
        column: int,
    ) -> None:
        """Plan a session.

        Args:
            forward: the model.
            writer: how the prompts go on.
            budget: of a reading pass, and of all keys and values together.
            families: whose trunks ``Row.family`` counts.
            rows: of prompts, none of more than ``slots``; neighbours share trunks.
            slots: prompts written together.
            column: bytes of keys and values for a token.
        """
        self.forward, self.writer, self.budget = forward, writer, budget
        self.families, self.waiting, self.size = families, list(rows), slots
        self.columns = writer.most + max(len(leaf.path) + 1 for row in rows for leaf in row.leaves)
        self.room = budget.cache_bytes // column - slots * self.columns
        """Tokens of trunks that may be held beside the slots."""
        self.trunks: dict[int, Layers] = {}
        self.left = Counter(row.family for row in rows for _ in row.leaves)
        self.slots: Slots | None = None
        device = forward.device
        self.prompts: list[int] = []
        self.at: list[int] = []
        """The family of each slot in use, as ``prompts`` names its prompt."""
        self.bases: list[int] = []
        self.tokens = torch.zeros(slots, writer.most, dtype=torch.long, device=device)
        self.draws = torch.zeros(slots, writer.most, dtype=torch.float64, device=device)
        self.counts = torch.zeros(slots, dtype=torch.long, device=device)
        self.positions = torch.zeros(slots, dtype=torch.long, device=device)
        """Of the last token of each slot that was written and not yet read."""
        self.ends = torch.as_tensor(sorted(writer.end_ids), device=device)

    @torch.inference_mode()
    def run(self) -> Iterator[Written]:
        """Every prompt once, when it ends.

        Raises:
            RuntimeError: the memory ran out. Other errors fail the prompts that were in the pass.
        """
        self.forward.forget_weights()
        while self.waiting or self.prompts:
            while batch := self._next_rows():
                try:
                    self._take(batch)
                except RuntimeError as error:
                    yield from self._failed([leaf.prompt for row in batch for leaf in row.leaves], error)
                    self._drop([row.family for row in batch for _ in row.leaves])
                yield from self._ended()
            if not self.prompts:
                continue
            try:
                self._step()
            except RuntimeError as error:
                yield from self._failed(self.prompts, error)
                self._drop(self.at)
                self.prompts, self.at, self.bases = [], [], []
                self.slots = None
            yield from self._ended()
        self.forward.forget_weights()

    def _next_rows(self) -> list[Row]:
        """Waiting rows for which there is room, as many as a pass may read; none while few slots are free."""
        free = self.size - len(self.prompts)
        needed = sum(len(row.leaves) for row in self.waiting[: self.size])
        if self.prompts and free < min(needed, self.size // REFILL or 1):
            return []
        taken: list[Row] = []
        held = set(self.trunks)
        for row in self.waiting:
            free -= len(row.leaves)
            fresh = row.family not in held and bool(self.families[row.family].trunk)
            held |= {row.family}
            crowded = fresh and sum(len(self.families[f].trunk) for f in held) > self.room
            new = [f for f in held if f not in self.trunks]
            if free < 0 or (taken and not fits([*taken, row], self.families, self.budget, trunks=new)):
                break
            if crowded and (taken or self.prompts):
                break
            taken.append(row)
        self.waiting = self.waiting[len(taken) :]
        return taken

    def _take(self, rows: Sequence[Row]) -> None:
        """Read rows into slots, with their trunks where those are new, and write a first token each."""
        new = [f for f in dict.fromkeys(row.family for row in rows) if f not in self.trunks]
        new = [f for f in new if self.families[f].trunk]
        if new:
            read = self.forward.trunks([self.families[f].trunk for f in new])
            self.trunks |= zip(new, read, strict=True)
        found = self.forward.read(rows, [self.trunks.get(row.family) for row in rows], keep=True)
        if self.slots is None:
            self.slots = Slots(self.size, self.columns, found.fresh)
        self.slots.take(found.fresh, found.columns)
        self._begin(found, [row.family for row in rows for _ in row.leaves])

    def _begin(self, found: Read, families: Sequence[int]) -> None:
        at = slice(len(self.prompts), len(self.prompts) + len(families))
        prompts = [leaf.prompt for leaf in found.leaves]
        self.prompts += prompts
        self.at += families
        self.bases += found.bases
        self.draws[at] = self.writer.draws(prompts, self.draws.device)
        self.tokens[at, 0] = self.writer.pick(found.logits, self.draws[at, 0])
        self.counts[at] = 1
        lengths = [base + len(own) for base, own in zip(found.bases, found.columns, strict=True)]
        self.positions[at] = torch.as_tensor(lengths, device=self.positions.device)

    def _step(self) -> None:
        """One more token for every slot in use."""
        assert self.slots is not None
        used = slice(0, len(self.prompts))
        rows = torch.arange(len(self.prompts), device=self.counts.device)
        last = self.tokens[rows, self.counts[used] - 1]
        how = Writing(self.slots, list(self._on_trunks()))
        logits = self.forward.next(last, self.positions[used], how)
        self.slots.lengths[used] += 1
        draws = self.draws[rows, self.counts[used]]
        self.tokens[rows, self.counts[used]] = self.writer.pick(logits, draws)
        self.counts[used] += 1
        self.positions[used] += 1

    def _on_trunks(self) -> Iterator[OnTrunk]:
        for family in dict.fromkeys(self.at):
            if family not in self.trunks:
                continue
            slots = [slot for slot, at in enumerate(self.at) if at == family]
            length = len(self.families[family].trunk)
            bases = [self.bases[slot] for slot in slots]
            every = None if len(slots) == len(self.at) else torch.as_tensor(slots, device=self.counts.device)
            yield OnTrunk(
                self.trunks[family], every, None if min(bases) == length else self._mask(bases, length)
            )

    def _mask(self, bases: Sequence[int], length: int) -> Tensor:
        device = self.counts.device
        seen = torch.arange(length, device=device) < torch.as_tensor(bases, device=device)[:, None]
        return torch.zeros(seen.shape, dtype=self.forward.model.dtype, device=device).masked_fill_(
            ~seen, -torch.inf
        )

    def _ended(self) -> Iterator[Written]:
        """Hand out the prompts that are done and give their slots to others."""
        used = len(self.prompts)
        rows = torch.arange(used, device=self.counts.device)
        last = self.tokens[rows, self.counts[:used] - 1]
        done = torch.isin(last, self.ends) | (last == NO_TOKEN) | (self.counts[:used] == self.writer.most)
        for slot in reversed(done.nonzero()[:, 0].tolist()):
            ids = self.tokens[slot, : int(self.counts[slot])].tolist()
            yield self.prompts[slot], ended(ids, self.writer.end_ids)
            self._leave(slot)

    def _leave(self, slot: int) -> None:
        assert self.slots is not None
        self.slots.give_back(slot)
        last = len(self.prompts) - 1
        self._drop([self.at[slot]])
        for tensor in (self.tokens, self.draws, self.counts, self.positions):
            tensor[slot] = tensor[last]
        for held in (self.prompts, self.at, self.bases):
            held[slot] = held[last]
            held.pop()

    def _drop(self, families: Sequence[int]) -> None:
        """Prompts of these families are done: forget the trunks of which none are left."""
        for family in families:
            self.left[family] -= 1
            if not self.left[family]:
                self.trunks.pop(family, None)

    def _failed(self, prompts: Sequence[int], error: RuntimeError) -> Iterator[Written]:
        if out_of_memory(error):
            raise error
        for prompt in list(prompts):
            yield prompt, failure_of(error)
