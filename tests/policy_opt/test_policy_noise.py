"""The signal in a gradient, from cosines that are worked by hand."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
noise: Any = importlib.import_module("policy_noise")


def test_a_cosine_of_a_half_asks_for_as_many_rollouts_as_a_batch_has() -> None:
    pair = [torch.tensor([2.0, 0.0]), torch.tensor([1.0, 3.0**0.5])]  # 60 degrees apart
    assert noise.summary(pair, 128) == {
        "cosine": 0.5,
        "standard_error": None,
        "rollouts_for_half_signal": 128,
    }


def test_three_batches_have_an_error_and_disagreement_has_no_answer() -> None:
    found = noise.summary([torch.tensor(v) for v in ([1.0, 0.0], [0.0, 1.0], [0.0, 2.0])], 10)
    assert found["cosine"] == pytest.approx(0.333) and found["standard_error"] == pytest.approx(0.333)
    assert found["rollouts_for_half_signal"] == 20  # 10 (1 - 1/3) / (1/3)
    against = noise.summary([torch.tensor([1.0, 0.0]), torch.tensor([-1.0, 0.1])], 10)
    assert against["rollouts_for_half_signal"] is None
