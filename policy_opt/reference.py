"""The policy that a run starts from, frozen: what KL is measured to.

Fresh low-rank adapters change nothing yet, so the starting policy is the same model with its adapters off and
no second copy is kept. Every other model is copied.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

StartingPolicy = Callable[[], AbstractContextManager[Any]]


def starting_policy(model: Any) -> StartingPolicy:
    """A context that gives the model as it is now, whatever is trained later."""
    if has_fresh_adapters(model):
        return lambda: _adapters_off(model)
    copied = copy.deepcopy(model).requires_grad_(False)
    return lambda: nullcontext(copied)


def has_fresh_adapters(model: Any) -> bool:
    """Whether all that is trained are LoRA matrices, and each pair's second one is still 0."""
    if not hasattr(model, "disable_adapter"):
        return False
    trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    second = [p for name, p in trained if ".lora_B." in name]
    first = [p for name, p in trained if ".lora_A." in name]
    return (
        bool(second)
        and len(first) + len(second) == len(trained)
        and not any(p.detach().any() for p in second)
    )


@contextmanager
def _adapters_off(model: Any) -> Iterator[Any]:
    with model.disable_adapter():
        yield model
