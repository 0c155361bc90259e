"""One row a trajectory segment: drawn steps of one row share one forward (POLICY.md section 11).

If the prompt of turn t+1 begins with exactly the ids of turn t, the episode is one row; the mask decides
what is trained, never an id and never a role.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord


@dataclass(frozen=True)
class DrawnStep:
    """A step chosen for one optimizer pass."""

    record: TrajectoryRecord
    step: StepRecord
    advantage: float
    weight: float = 1.0
    """Importance weight of a prioritised draw, at most 1."""
    fresh: bool = True
    rescued: bool = False
    """A stored success replayed for a group that failed: imitation, weight at most 1."""


@dataclass(frozen=True)
class TokenBatch:
    """Padded rows plus a flat view of the action tokens. ``_N`` tokens, ``_S`` steps, ``_R`` rows."""

    input_ids_RL: Tensor
    attention_mask_RL: Tensor
    row_N: Tensor
    column_N: Tensor
    step_N: Tensor
    """Index into ``steps`` and the ``_S`` tensors."""
    behaviour_N: Tensor
    reference_N: Tensor | None
    advantage_S: Tensor
    weight_S: Tensor
    """Aggregation weight times draw weight, a token."""
    fresh_S: Tensor
    temperature: float
    steps: tuple[DrawnStep, ...]
    value_N: Tensor | None = None
    """A critic's value of the state before each token, with gradient; filled by the update."""


def extends(prompt: Sequence[int], seen: Sequence[int]) -> bool:
    """Whether ``prompt`` begins with exactly ``seen``; if not, a new segment starts (a fork)."""
    return len(prompt) >= len(seen) and list(prompt[: len(seen)]) == list(seen)


def action_mask(length: int, spans: Iterable[tuple[int, int]]) -> list[int]:
    """1 on sampled spans, 0 elsewhere; a pad id equal to an end id changes nothing."""
    mask = [0] * length
    for start, end in spans:
        mask[start:end] = [1] * (end - start)
    return mask


def micro_batches(
    drawn: Sequence[DrawnStep], token_weight: Sequence[float], *, token_budget: int, pad_id: int = 0
) -> list[TokenBatch]:
    """Group drawn steps by row, rows of like length by batch.

    Args:
        drawn: steps of one optimizer step.
        token_weight: aggregation weight of a token of each drawn step (``losses.step_weights``).
        token_budget: rows times padded length of one forward, at most (a longer single row still runs).
        pad_id: any id; padding is masked.
    """
    rows: dict[tuple[str, int], list[int]] = {}
    for i, item in enumerate(drawn):
        rows.setdefault((item.record.traj_id, item.step.segment), []).append(i)
    lengths = {key: max(drawn[i].step.end for i in members) for key, members in rows.items()}
    batches: list[list[tuple[str, int]]] = []
    for key in sorted(rows, key=lambda k: (lengths[k], k)):
        widest = lengths[key]
        if not batches or (len(batches[-1]) + 1) * widest > token_budget:
            batches.append([])
        batches[-1].append(key)
    return [_pack([rows[key] for key in keys], drawn, token_weight, pad_id) for keys in batches]


def _pack(
    rows: list[list[int]], drawn: Sequence[DrawnStep], token_weight: Sequence[float], pad_id: int
) -> TokenBatch:
    length = max(drawn[i].step.end for members in rows for i in members)
    ids = np.full((len(rows), length), pad_id, dtype=np.int64)
    mask = np.zeros((len(rows), length), dtype=np.int64)
    order = [(r, i) for r, members in enumerate(rows) for i in members]
    for r, members in enumerate(rows):
        first = drawn[members[0]]
        end = max(drawn[i].step.end for i in members)
        ids[r, :end] = first.record.segments[first.step.segment][:end]
        mask[r, :end] = 1
    steps = tuple(drawn[i] for _, i in order)
    sizes = [item.step.n_tokens for item in steps]
    references = [item.step.ref_logprobs for item in steps]
    has_reference = all(ref is not None for ref in references)
    return TokenBatch(
        input_ids_RL=torch.from_numpy(ids),
        attention_mask_RL=torch.from_numpy(mask),
        row_N=torch.repeat_interleave(torch.tensor([r for r, _ in order]), torch.tensor(sizes)),
        column_N=torch.cat([torch.arange(s.step.start, s.step.end) for s in steps]),
        step_N=torch.repeat_interleave(torch.arange(len(steps)), torch.tensor(sizes)),
        behaviour_N=torch.from_numpy(np.concatenate([s.step.behaviour_logprobs for s in steps])),
        reference_N=torch.from_numpy(np.concatenate([r for r in references if r is not None]))
        if has_reference
        else None,
        advantage_S=torch.tensor([s.advantage for s in steps], dtype=torch.float32),
        weight_S=torch.tensor([token_weight[i] * drawn[i].weight for _, i in order], dtype=torch.float32),
        fresh_S=torch.tensor([s.fresh for s in steps]),
        temperature=steps[0].record.temperature,
        steps=steps,
    )
