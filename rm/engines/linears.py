"""Linear layers for few tokens at a time, on a CPU in fp32.

A decoding step multiplies every weight with as many rows as there are prompts, and torch's own product packs
the weight anew each time. oneDNN multiplies with a copy that was packed once; with 8 rows SmolLM2's layers
take 32 ms instead of 59, with 32 rows 57 instead of 111 (AMD Zen 5, one thread).
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]


def product(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x @ weight.T + bias`` by oneDNN; a packed weight is multiplied faster with few rows."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


class PackedLinears:
    """Packed copies of a model's linear layers for a session of writing; changed weights are packed again."""

    def __init__(self, model: Any, most_bytes: int) -> None:
        """Nothing is copied yet, and nothing ever where the copies would take more than ``most_bytes``."""
        self._modules = [module for module in plain_linears(model) if onednn_serves(module.weight)]
        size = sum(m.weight.numel() * m.weight.itemsize for m in self._modules)
        if size > most_bytes:
            self._modules = []
        self._packed: dict[int, tuple[tuple[int, int], Product]] = {}

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Within it the layers multiply with their packed copies."""
        free = [(number, module) for number, module in enumerate(self._modules) if _is_free(module)]
        with multiplying([(module, self._current(number, module)) for number, module in free]):
            yield

    def forget(self) -> None:
        """Drop the copies. A change through ``weight.data``, as by merged adapters, leaves no other trace."""
        self._packed.clear()

    def _current(self, number: int, module: Any) -> Product:
        weight = module.weight
        state = (weight.data_ptr(), 0 if weight.is_inference() else weight._version)
        held = self._packed.get(number)
        if held is None or held[0] != state:
            packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
            held = (state, partial(product, weight=packed, bias=module.bias))
            self._packed[number] = held
        return held[1]


def plain_linears(model: Any) -> list[Any]:
    """A model's linear layers, none of a subclass: that may multiply otherwise (quantised, adapted)."""
    return [module for module in model.modules() if type(module) is torch.nn.Linear]


@contextmanager
def by_onednn(linears: Sequence[Any]) -> Iterator[None]:
    """Within it these layers multiply by oneDNN with their own weights, where it serves."""
    free = [module for module in linears if _is_free(module)]
    with multiplying([(m, partial(product, weight=m.weight, bias=m.bias)) for m in free]):
        yield


@contextmanager
def multiplying(products: Sequence[tuple[Any, Product]]) -> Iterator[None]:
    """Within it each layer multiplies as its product does."""
    try:
        for module, own in products:
            module.__dict__["forward"] = own
        yield
    finally:
        for module, _ in products:
            module.__dict__.pop("forward", None)


def _is_free(module: Any) -> bool:
    # A layer with a forward of its own (hooks of other libraries) keeps it; one may have moved elsewhere.
    return "forward" not in module.__dict__ and onednn_serves(module.weight)


def onednn_serves(tensor: Tensor) -> bool:
    """Whether oneDNN was measured to multiply such tensors faster than torch's own product: fp32 on x86."""
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and _here()


@cache
def _here() -> bool:
    known = platform.machine() in ("x86_64", "AMD64")
    # Private operations of torch 2.13: another version may lack them, and torch's own product serves there.
    there = all(hasattr(torch.ops.mkldnn, name) for name in ("_linear_pointwise", "_reorder_linear_weight"))
    return known and there and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
