"""What an optimizer step saw of each drawn step, and the metrics of it: entropy by turn, masks, replay.

Shares are over drawn steps, means over them too unless they say "a token". A number that nothing was drawn
for is absent, never 0; a share of 0 is one that was counted. Everything under ``replay/`` is about the
passes after the first, where old steps stand beside fresh ones: absent for an algorithm without them.

Deviations from POLICY.md section 21, numbered: (1) lags, uses, turns and group sizes go into four classes or
fewer instead of a full histogram, so that the number of columns does not depend on the data; (2) the loss of
fresh and replayed steps is the policy term a token, before aggregation and without the KL term, over the
steps that the mask kept; stored successes (``replay/rescued``) are drawn in the first pass and are not in
it; (3) no tokens a second: ``policy/tokens`` and ``time/update_s`` give it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axiomrm.policy_opt.algorithms.base import LossParts
from axiomrm.policy_opt.packing import TokenBatch

Classes = tuple[tuple[float, str], ...]
"""Upper ends, ascending, and their names."""
INFINITE = float("inf")
TURNS: Classes = ((1, "1"), (4, "2to4"), (8, "5to8"), (INFINITE, "9up"))
"""Of turns, counted from 1, as of group sizes."""
LAGS: Classes = ((1, "1"), (2, "2"), (4, "3to4"), (INFINITE, "5up"))
USES: Classes = ((0, "0"), (1, "1"), (2, "2"), (INFINITE, "3up"))


class Drawn(NamedTuple):
    """One step in one optimizer step."""

    turn: int
    """0-based."""
    tokens: int
    entropy: float
    """Mean over its action tokens, nats."""
    advantage: float
    fresh: bool
    version: int
    """Of the policy that sampled the trajectory."""
    uses: int
    """Passes before this one."""
    m1: float
    """Mean log-ratio of its tokens to the policy that sampled it."""
    kept: bool
    """The trust mask left its policy term in."""
    term: float
    """Policy term a token, before the mask."""


def class_of(value: float, classes: Classes) -> str:
    """Name of the first class that ``value`` does not exceed."""
    return next(name for end, name in classes if value <= end)


def drawn_steps(batch: TokenBatch, parts: LossParts, entropy_N: Tensor) -> list[Drawn]:
    """The steps of one micro-batch, in its order."""
    length_S = parts.ratios.length_S

    def step_mean(values_N: Tensor) -> list[float]:
        sums_S = torch.zeros_like(length_S).index_add(0, batch.step_N, values_N.detach().to(length_S))
        found: list[float] = (sums_S / length_S).tolist()
        return found

    numbers = zip(
        step_mean(entropy_N), step_mean(parts.loss_N), parts.ratios.m1_S.tolist(), parts.keep_S.tolist(),
        strict=True,
    )  # fmt: skip
    return [
        Drawn(
            item.step.turn, item.step.n_tokens, entropy, item.advantage, item.fresh,
            item.record.policy_version, item.step.uses, m1, kept, term,
        )
        for item, (entropy, term, m1, kept) in zip(batch.steps, numbers, strict=True)
    ]  # fmt: skip


def entropy_by_turn(first: Sequence[Drawn]) -> dict[str, float]:
    """Entropy a token in the passes over fresh rollouts, by class of turns."""
    out = {}
    for _, name in TURNS:
        mine = [step for step in first if class_of(step.turn + 1, TURNS) == name]
        if mine:
            weights = [step.tokens for step in mine]
            out[f"policy/entropy_turn_{name}_nats"] = float(
                np.average([step.entropy for step in mine], weights=weights)
            )
    return out


def mask_metrics(every: Sequence[Drawn]) -> dict[str, float]:
    """Mean log-ratio; the masked share of the steps that the update pulls up, and of those it pushes down."""
    positive = [step for step in every if step.advantage > 0]
    negative = [step for step in every if step.advantage < 0]
    return _present(
        {
            "offpolicy/m1": _mean([step.m1 for step in every]),
            "offpolicy/masked_positive_share": _share([not step.kept for step in positive]),
            "offpolicy/masked_negative_share": _share([not step.kept for step in negative]),
        }
    )


def replay_metrics(first: Sequence[Drawn], again: Sequence[Drawn]) -> dict[str, float]:
    """What the passes after the first were made of.

    Args:
        first: steps of the passes over fresh rollouts; they say what the version is.
        again: steps of all later passes.
    """
    if not again:
        return {}
    fresh, old = [s for s in again if s.fresh], [s for s in again if not s.fresh]
    out = {"replay/fresh_share": len(fresh) / len(again)}
    for _, name in USES:
        out[f"replay/uses_{name}_share"] = _share([class_of(step.uses, USES) == name for step in again])
    now = max((step.version for step in (*first, *again) if step.fresh), default=None)
    if now is not None:
        for _, name in LAGS:
            out[f"replay/lag_{name}_share"] = _share(
                [not step.fresh and class_of(now - step.version, LAGS) == name for step in again]
            )
    if old:
        for name, steps in (("fresh", fresh), ("replayed", old)):
            out[f"replay/advantage_mean_{name}"] = _mean([step.advantage for step in steps])
            out[f"replay/loss_{name}"] = _mean([step.term for step in steps if step.kept])
    return _present(out)


def evenness(p: NDArray[np.float64]) -> float:
    """Entropy of a draw over that of an even one: 1 = every candidate alike; NaN for one candidate or none.

    Args:
        p: probabilities, summing to 1.
    """
    if len(p) < 2:
        return float("nan")
    known = p[p > 0]
    return float(-(known * np.log(known)).sum() / np.log(len(p)))


def _share(flags: Sequence[bool]) -> float:
    return _mean([float(flag) for flag in flags])


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _present(numbers: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if not np.isnan(value)}
