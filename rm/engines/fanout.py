"""Batches of families: which trunks and rows go through the model together, and what if memory runs out."""

from collections.abc import Callable, Iterator, Sequence

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.base import failure_of
from axiomrm.rm.engines.budget import Budget
from axiomrm.rm.engines.forward import Forward, Step, Trunks
from axiomrm.rm.engines.model_facts import cache_bytes, copying_work, out_of_memory, work_balance
from axiomrm.rm.engines.packing import Family, Ids, Row, buckets, families, rows_of

Work = Callable[[Step], None]
WRITING_WIDTH = 2
"""Prompts that go on writing share a row up to this multiple of their trunk: each pass reads all keys and
values of a row once, so that more prompts a row cost less until the masked pairs outweigh it."""


class Fanout:
    """Feeds prompts to one model, sharing what they begin with."""

    def __init__(self, forward: Forward, budget: Budget, *, share: bool) -> None:
        """``share``: False feeds every prompt alone, in padded batches."""
        self.forward, self.budget, self.share = forward, budget, share
        self._balance, self._column = work_balance(forward.model), cache_bytes(forward.model)
        self._copying = copying_work(forward.model)

    def run(
        self, sequences: Sequence[Ids], work: Work, fail: Callable[[int, Failed], None], *, new: int = 0
    ) -> None:
        """Hand every sequence's last logits to ``work``, batch by batch.

        A batch for which the memory runs out is halved until it fits; of one that fails otherwise the
        prompts without a result go to ``fail``.

        Args:
            sequences: non-empty ids, in any order.
            work: takes each step; it may go on from its cache.
            fail: takes a prompt's index and why it has no result.
            new: tokens that ``work`` will write after each; 0: no cache is kept.
        """
        queue = [(load, self.budget) for load in self._loads(sequences)]
        while queue:
            indices, budget = queue.pop(0)
            left = set(indices)
            try:
                for step in self._steps([sequences[i] for i in indices], budget, new):
                    step = step.renamed(indices)
                    work(step)
                    left -= step.indices
            except RuntimeError as error:
                rest = [i for i in indices if i in left]
                if out_of_memory(error) and len(rest) > 1:
                    half = len(rest) // 2
                    queue[:0] = [(rest[:half], budget.halved()), (rest[half:], budget.halved())]
                    continue
                for i in rest:
                    fail(i, failure_of(error))

    def _loads(self, sequences: Sequence[Ids]) -> list[list[int]]:
        """Indices in groups that succeed or fail together: families of a trunk batch, or strangers."""
        found = families(sequences, share=self.share)
        loads = [
            [i for family in batch for i in family.members]
            for batch in self._trunk_batches([f for f in found if f.trunk], self.budget)
        ]
        alone = sorted((f.members[0] for f in found if not f.trunk), key=lambda i: -len(sequences[i]))
        most = self.budget.decode_rows
        return loads + [alone[at : at + most] for at in range(0, len(alone), most)]

    def _steps(self, sequences: Sequence[Ids], budget: Budget, new: int) -> Iterator[Step]:
        found = families(sequences, share=self.share)
        shared, alone = [f for f in found if f.trunk], [f for f in found if not f.trunk]
        for batch in self._trunk_batches(shared, budget):
            trunks = self.forward.trunks([family.trunk for family in batch])
            copied = self._copying * trunks.length
            limit = budget.row_tokens(self._balance, len(batch), copied, self.forward.device.type)
            most = budget.decode_rows if new else budget.batch_tokens
            limit = max(limit, WRITING_WIDTH * trunks.length) if new else limit
            rows = [
                row
                for number, family in enumerate(batch)
                for row in rows_of(sequences, family, number=number, limit=limit, more=new, leaves=most)
            ]
            yield from self._row_steps(rows, trunks, budget, new)
        rows = [row for family in alone for row in rows_of(sequences, family, number=0, limit=0)]
        yield from self._row_steps(rows, None, budget, new)

    def _trunk_batches(self, shared: Sequence[Family], budget: Budget) -> Iterator[list[Family]]:
        most = max(1, min(budget.batch_tokens, budget.cache_bytes // self._column))
        for places in buckets([len(family.trunk) for family in shared], max_tokens=most):
            yield [shared[i] for i in places]

    def _row_steps(
        self, rows: Sequence[Row], trunks: Trunks | None, budget: Budget, new: int
    ) -> Iterator[Step]:
        before = trunks.length if trunks else 0
        # Longest first, so that rows of a batch have similar sizes; rows of one family stay neighbours.
        queue = sorted(rows, key=lambda row: -row.size)
        while queue:
            batch = [queue.pop(0)]
            while queue and self._fits([*batch, queue[0]], before, budget, new):
                batch.append(queue.pop(0))
            yield self.forward.step(batch, trunks, keep_cache=new > 0)

    def _fits(self, rows: Sequence[Row], before: int, budget: Budget, new: int) -> bool:
        n, leaves = rows[0].size, max(len(row.leaves) for row in rows)
        columns = before + n + leaves * new
        held = columns if before or new else 0
        return (
            len(rows) * n <= budget.batch_tokens
            and len(rows) * n * columns <= budget.mask_cells
            and len(rows) * held * self._column <= budget.cache_bytes
            and (not new or sum(len(row.leaves) for row in rows) <= budget.decode_rows)
            and rows[-1].size * 2 > n
        )
