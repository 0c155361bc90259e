"""The weights that a sampler in another engine gets: those of the trained model, adapters merged."""

import copy
from collections.abc import Iterator
from typing import Any

from torch import Tensor


def published_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Name and value of every weight, as in a checkpoint of the model without adapters.

    Adapters are merged into a copy, one layer at a time; the trained model stays as it is. Tied weights come
    under each of their names.
    """
    if not hasattr(model, "get_base_model"):
        yield from _values(model, "")
        return
    from peft.tuners.tuners_utils import BaseTunerLayer
    from peft.utils import ModulesToSaveWrapper

    base = model.get_base_model()
    changed = {
        name: module
        for name, module in base.named_modules()
        if isinstance(module, BaseTunerLayer | ModulesToSaveWrapper)
    }
    for name, value in base.state_dict().items():
        owner = next((part for part in _ancestors(name) if part in changed), None)
        if owner is None:
            yield name, value.detach()
        elif (layer := changed[owner]) is not None:
            changed[owner] = None  # its other entries are adapters or the same weights again
            yield from _values(_merged(layer) if isinstance(layer, BaseTunerLayer) else _tuned(layer), owner)


def _values(module: Any, name: str) -> Iterator[tuple[str, Tensor]]:
    lead = f"{name}." if name else ""
    for key, value in module.state_dict().items():
        yield f"{lead}{key}", value.detach()


def _ancestors(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


def _merged(layer: Any) -> Any:
    copied = copy.deepcopy(layer)
    copied.merge()
    return copied.get_base_layer()


def _tuned(wrapper: Any) -> Any:
    """The copy of a module that is trained as a whole."""
    return wrapper.modules_to_save[wrapper.active_adapters[0]]
