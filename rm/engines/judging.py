"""How a model judges whatever else it is for: one call at a time, without dropout, in its own precision."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch

_LOCKS: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()
_MAKING = threading.Lock()


@contextmanager
def judging(model: Any) -> Iterator[None]:
    """Within it the model is this thread's, evaluates, and computes in its own type.

    A call changes how the model attends and multiplies, so another thread's call waits. A model that is being
    trained goes on training afterwards.
    """
    with _MAKING:
        lock = _LOCKS.setdefault(model, threading.RLock())
    with lock, torch.autocast(torch.device(model.device).type, enabled=False), evaluating(model):
        yield


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Within it the model has no dropout; what was in training is so afterwards."""
    training = [module for module in model.modules() if module.training]
    try:
        if training:
            model.eval()
        yield
    finally:
        for module in training:
            module.training = True
