"""Equal states are equal, different ones differ, whatever they are written with."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from axiomrm.policy_opt.rollouts.infos import plain_info
from axiomrm.policy_opt.rollouts.state_keys import anchor


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ((1, "x"), [1, "x"]),
        (np.array([1, 2]), [1, 2]),
        (torch.tensor([[0.5]]), [[0.5]]),
        (np.int64(3), 3),
        (np.float64(0.5), 0.5),
        ({"at": (np.float32(0.5), None)}, {"at": [0.5, None]}),
    ],
)
def test_equal_states(one: Any, other: Any) -> None:
    assert anchor(one) == anchor(other) is not None


def test_long_arrays_that_differ_in_the_middle_are_two_states() -> None:
    for zeros in (np.zeros(2000), torch.zeros(2000)):
        moved: Any = zeros.clone() if isinstance(zeros, torch.Tensor) else zeros.copy()
        moved[1000] = 1
        assert anchor(zeros) != anchor(moved)


def test_a_number_and_its_kinds_are_three_states_and_none_is_no_state() -> None:
    assert len({anchor(1), anchor(1.0), anchor(True), anchor("1")}) == 4
    assert anchor(None) is None


def test_another_process_gives_the_same_number() -> None:
    code = (
        "from axiomrm.policy_opt.rollouts.state_keys import anchor; print(anchor({'a': [1, 'ü'], 'b': None}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == anchor({"b": None, "a": (1, "ü")})


def test_files_hold_the_whole_state() -> None:
    assert plain_info({"state_key": torch.arange(3)}) == {"state_key": [0, 1, 2]}
