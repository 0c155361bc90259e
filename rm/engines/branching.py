"""Attention for prompts that share what they begin with, all tokens of a pass in one row.

Tokens of many branches go through the layers side by side without padding; only attention knows where each
branch begins. A branch sees its trunk, whose keys and values are held once whatever the number of branches,
and itself. Both are attended to apart and merged by their log-sum-exp, as in Hydragen (arXiv:2402.05099), so
the queries of all branches meet the trunk in one product.

The function is registered with transformers' ``AttentionInterface`` and serves every model that takes its
attention from there; a model that wants more of it (soft caps, sinks, windows) is refused.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AttentionInterface

from axiomrm.rm.engines.linears import onednn_serves, product

NAME = "axiomrm_branching"
UNKNOWN = ("softcap", "sliding_window", "position_bias", "s_aux")
"""What a model may ask of its attention and does not get here."""
CELLS = 4_000_000
"""Scores that are held at once where no kernel spares them."""
TALL, BLOCK = 128, 512
"""Queries from which on a pass over a trunk is two products a block, and queries of all heads in a block."""
Layers = list[tuple[Tensor, Tensor]]
"""Keys and values of each layer, ``(kv heads, T, width)``."""
Attending = Callable[[int, Tensor, Tensor, Tensor, float], Tensor]
"""Layer, queries ``(heads, N, width)``, keys and values ``(kv heads, N, width)``, scale; gives the queries'
shape."""
_NOW: ContextVar[Attending] = ContextVar("attending")


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """As transformers calls it: ``(1, heads, N, width)``; gives ``(1, N, heads, width)``."""
    if asked := [name for name in UNKNOWN if options.get(name) is not None]:
        raise NotImplementedError(f"{type(module).__name__} attends with {', '.join(asked)}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = _NOW.get()(module.layer_idx, query[0], key[0], value[0], scale)
    return out.transpose(0, 1)[None], None


AttentionInterface.register(NAME, _attention)


@contextmanager
def attending(configs: Sequence[Any], how: Attending) -> Iterator[None]:
    """Within it the models of these configurations attend like ``how``."""
    before = [config._attn_implementation for config in configs]
    token = _NOW.set(how)
    try:
        for config in configs:
            config._attn_implementation = NAME
        yield
    finally:
        for config, name in zip(configs, before, strict=True):
            config._attn_implementation = name
        _NOW.reset(token)


def configs_of(model: Any) -> list[Any]:
    """Configurations that say how parts of the model attend."""
    every = [getattr(module, "config", None) for module in model.modules()]
    return list({id(config): config for config in every if hasattr(config, "_attn_implementation")}.values())


def attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, *, mask: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Attention of ``q`` over ``k``, and the log-sum-exp of its scores.

    Args:
        q: ``(heads, N, width)``; heads that share keys are neighbours.
        k: ``(kv heads, T, width)``.
        v: likewise.
        scale: of the scores.
        mask: ``(N, T)``, added to the scores.
        causal: query i sees keys up to i, and there is no mask.

    Returns:
        ``(heads, N, width)`` in the type of ``q``, and ``(heads, N)`` in fp32.
    """
    group = q.shape[0] // k.shape[0]
    if mask is None and not causal and q.shape[1] >= TALL and onednn_serves(q) and onednn_serves(k):
        out, total = _tall(q.reshape(k.shape[0], -1, q.shape[-1]) * scale, k.contiguous(), v)
        return out.view(*q.shape[:2], -1), total.view(q.shape[:2])
    q = q.view(k.shape[0], group, *q.shape[1:])
    k, v = (t[:, None].expand(-1, group, -1, -1) for t in (k, v))
    out, total = attend_all(q, k, v, scale, mask=mask, causal=causal)
    return out.flatten(0, 1), total.flatten(0, 1)


def attend_all(
    q: Tensor, k: Tensor, v: Tensor, scale: float, *, mask: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """:func:`attend` in four dimensions, ``(a, b, N, width)`` over ``(a, b, T, width)``."""
    kernel = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    if kernel is not None and q.device.type == "cpu" and q.shape[-1] == v.shape[-1]:
        added = mask if mask is None or mask.dim() == 4 else mask[None, None]
        out, total = kernel(q, k, v, 0.0, causal, attn_mask=added, scale=scale)
        return out, total
    return in_blocks(q, k, v, scale, mask=mask, causal=causal)


def _tall(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Many queries over few keys, ``(kv heads, N, width)``: a quarter faster than the kernel on our CPU."""
    across = v.transpose(1, 2).contiguous()
    out, total = torch.empty_like(q), q.new_empty(q.shape[:2])
    for head in range(len(q)):
        for at in range(0, q.shape[1], BLOCK):
            block = slice(at, at + BLOCK)
            scores = product(q[head, block], k[head])
            most = scores.amax(dim=-1, keepdim=True)
            mass = scores.sub_(most).exp_().sum(dim=-1, keepdim=True)
            out[head, block] = product(scores, across[head]).div_(mass)
            total[head, block] = most.add_(mass.log_())[:, 0]
    return out, total


def in_blocks(
    q: Tensor, k: Tensor, v: Tensor, scale: float, *, mask: Tensor | None, causal: bool
) -> tuple[Tensor, Tensor]:
    """:func:`attend_all` by plain products, some queries at a time."""
    n, keys = q.shape[-2], k.shape[-2]
    rows = max(1, CELLS // (keys * q.shape[0] * q.shape[1]))
    outs, totals = [], []
    for at in range(0, n, rows):
        scores = (q[..., at : at + rows, :] * scale @ k.transpose(-1, -2)).float()
        if mask is not None:
            scores = scores + (mask[at : at + rows] if mask.dim() == 2 else mask)
        if causal:
            later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(at + 1)
            scores = scores.masked_fill(later, -torch.inf)
        total = scores.logsumexp(dim=-1, keepdim=True)
        outs.append((scores - total).exp().to(v.dtype) @ v)
        totals.append(total[..., 0])
    return torch.cat(outs, dim=-2), torch.cat(totals, dim=-1)


def merged(a: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]) -> Tensor:
    """Attention over the keys of ``a`` and ``b`` together, from both outputs and log-sum-exps."""
    return torch.lerp(b[0], a[0], torch.sigmoid(a[1] - b[1])[..., None].to(b[0].dtype))


class Own(NamedTuple):
    """Tokens ``start`` to ``stop`` of a pass see themselves: causally, or as an additive mask says."""

    start: int
    stop: int
    mask: Tensor | None


class OfTrunk(NamedTuple):
    """Tokens ``start`` to ``stop`` of a pass see the first ``length`` tokens of a trunk."""

    start: int
    stop: int
    trunk: Layers
    length: int


class Reading:
    """How the tokens of a reading pass attend; keeps their keys and values where they are needed again."""

    def __init__(self, own: Sequence[Own], trunks: Sequence[OfTrunk], *, keep: bool) -> None:
        """Both in the order of the tokens; every token is in one ``Own``."""
        self.own, self.trunks = own, trunks
        self.kept: Layers | None = [] if keep else None

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """One layer's attention."""
        if self.kept is not None:
            self.kept.append((k, v))
        out = q.new_empty(q.shape[1], q.shape[0], v.shape[-1]).transpose(0, 1)
        total = torch.empty(q.shape[:2], device=q.device)
        for start, stop, mask in self.own:
            at = slice(start, stop)
            out[:, at], total[:, at] = attend(
                q[:, at], k[:, at], v[:, at], scale, mask=mask, causal=mask is None
            )
        for start, stop, trunk, length in self.trunks:
            at = slice(start, stop)
            keys, values = trunk[layer]
            seen = attend(q[:, at], keys[:, :length], values[:, :length], scale)
            out[:, at] = merged(seen, (out[:, at], total[:, at]))
        return out
