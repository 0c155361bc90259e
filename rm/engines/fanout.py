"""Which prompts go through the model together, and what if memory runs out."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from torch import Tensor

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.base import failure_of
from axiomrm.rm.engines.budget import Budget
from axiomrm.rm.engines.decoding import Stop, Writer
from axiomrm.rm.engines.forward import Forward
from axiomrm.rm.engines.model_facts import cache_bytes, out_of_memory, work_balance
from axiomrm.rm.engines.packing import Family, Ids, Row, buckets, families, rows_of, shared_length
from axiomrm.rm.engines.plain import Plain
from axiomrm.rm.engines.writing import Session, Written, fits

T = TypeVar("T")
LOGITS_SHARE = 4
"""Logits of a pass take at most one part in so many of the bytes that keys and values may take."""
Done = Callable[[int, T], None]
"""Takes a prompt's index and its result."""
Attempt = Callable[[Sequence[Ids], list[int], Budget], Iterator[tuple[int, T | Failed]]]


class Fanout:
    """Feeds prompts to one model, sharing what they begin with where ``forward`` can."""

    def __init__(self, forward: Forward | Plain, budget: Budget) -> None:
        """A ``Plain`` forward shares nothing."""
        self.forward, self.budget = forward, budget
        self.shares = isinstance(forward, Forward)
        model = forward.model
        self._balance, self._column = work_balance(model), cache_bytes(model)
        vocabulary = int(model.config.get_text_config().vocab_size)
        self._logits = vocabulary * model.dtype.itemsize

    def read(self, sequences: Sequence[Ids], done: Done[Tensor], fail: Done[Failed]) -> None:
        """Hand every sequence's last logits ``(vocabulary,)`` to ``done``, or why there are none to ``fail``.

        A batch for which the memory runs out is halved until it fits; of one that fails otherwise the
        prompts without a result fail.
        """
        found = families(sequences, share=self.shares)
        loads = [
            [i for family in batch for i in family.members]
            for batch in self._trunk_batches([f for f in found if f.trunk], self.budget)
        ]
        alone = sorted((f.members[0] for f in found if not f.trunk), key=lambda i: -len(sequences[i]))
        most = self.budget.decode_rows
        loads += [alone[at : at + most] for at in range(0, len(alone), most)]
        self._each(sequences, loads, self._read, done, fail)

    def write(
        self,
        sequences: Sequence[Ids],
        writer: Writer,
        done: Done[tuple[list[int], Stop]],
        fail: Done[Failed],
    ) -> None:
        """Hand what follows every sequence to ``done``, as :meth:`read` does; all go into one session."""

        def attempt(those: Sequence[Ids], prompts: list[int], budget: Budget) -> Iterator[Written]:
            own = writer.of(prompts)
            if isinstance(self.forward, Plain):
                for batch in self.forward.batches(those, budget, self._column, new=writer.most):
                    yield from self.forward.write(batch, own)
            else:
                yield from self._session(self.forward, those, own, budget).run()

        if self.shares:
            loads = [[i for family in families(sequences) for i in family.members]]
        else:
            order = sorted(range(len(sequences)), key=lambda i: -len(sequences[i]))
            most = self.budget.decode_rows
            loads = [order[at : at + most] for at in range(0, len(order), most)]
        self._each(sequences, [load for load in loads if load], attempt, done, fail)

    def _each(
        self,
        sequences: Sequence[Ids],
        loads: Sequence[list[int]],
        attempt: Attempt[T],
        done: Done[T],
        fail: Done[Failed],
    ) -> None:
        queue = [(load, self.budget) for load in loads]
        while queue:
            indices, budget = queue.pop(0)
            left = dict.fromkeys(indices)
            try:
                for place, result in attempt([sequences[i] for i in indices], indices, budget):
                    index = indices[place]
                    if isinstance(result, Failed):
                        fail(index, result)
                    else:
                        done(index, result)
                    del left[index]
            except RuntimeError as error:
                rest = list(left)
                if out_of_memory(error) and len(rest) > 1:
                    half = len(rest) // 2
                    queue[:0] = [(rest[:half], budget.halved()), (rest[half:], budget.halved())]
                    continue
                for i in rest:
                    fail(i, failure_of(error))

    def _read(
        self, sequences: Sequence[Ids], prompts: list[int], budget: Budget
    ) -> Iterator[tuple[int, Tensor | Failed]]:
        if isinstance(self.forward, Plain):
            for batch in self.forward.batches(sequences, budget, self._column, new=0):
                yield from zip(batch.prompts, batch.logits, strict=True)
            return
        found = families(sequences)
        for some in self._trunk_batches([f for f in found if f.trunk], budget):
            trunks = self.forward.trunks([family.trunk for family in some])
            for rows in self._row_batches(self._rows(sequences, some, budget), some, budget):
                read = self.forward.read(rows, [trunks[row.family] for row in rows], keep=False)
                yield from zip((leaf.prompt for leaf in read.leaves), read.logits, strict=True)
        alone = [family for family in found if not family.trunk]
        for rows in self._row_batches(self._rows(sequences, alone, budget), alone, budget):
            read = self.forward.read(rows, [None] * len(rows), keep=False)
            yield from zip((leaf.prompt for leaf in read.leaves), read.logits, strict=True)

    def _session(self, forward: Forward, sequences: Sequence[Ids], writer: Writer, budget: Budget) -> Session:
        found = families(sequences)
        own = writer.most + max(
            len(sequences[i]) - shared_length(family.trunk, sequences[i][:-1])
            for family in found
            for i in family.members
        )
        trunk = sum(len(family.trunk) for family in found) / len(sequences)
        fitting = int(budget.cache_bytes // self._column // (own + trunk))
        slots = max(1, min(budget.decode_rows, len(sequences), fitting))
        rows = self._rows(sequences, found, budget, leaves=slots)
        # Rows of a trunk stay neighbours; those without one are written beside others of their length.
        rows.sort(key=lambda row: 0 if found[row.family].trunk else -row.size)
        return Session(forward, writer, budget, found, rows, slots=slots, column=self._column)

    def _rows(
        self, sequences: Sequence[Ids], found: Sequence[Family], budget: Budget, *, leaves: int = 2**31
    ) -> list[Row]:
        limit = budget.row_tokens(self._balance, self.forward.model.device.type)
        return [
            row
            for number, family in enumerate(found)
            for row in rows_of(sequences, family, number=number, limit=limit, leaves=leaves)
        ]

    def _row_batches(
        self, rows: Sequence[Row], found: Sequence[Family], budget: Budget
    ) -> Iterator[list[Row]]:
        """Rows in their order, in passes within the budget."""
        batch: list[Row] = []
        for row in rows:
            more = [*batch, row]
            over = not fits(more, found, budget) or (
                sum(len(r.leaves) for r in more) * self._logits > budget.cache_bytes // LOGITS_SHARE
            )
            if batch and over:
                yield batch
                more = [row]
            batch = more
        if batch:
            yield batch

    def _trunk_batches(self, shared: Sequence[Family], budget: Budget) -> Iterator[list[Family]]:
        most = max(1, min(budget.batch_tokens, budget.cache_bytes // self._column))
        for places in buckets([len(family.trunk) for family in shared], max_tokens=most):
            yield [shared[i] for i in places]
