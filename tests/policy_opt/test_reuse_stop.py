"""When re-use ends, by hand."""

import pytest
import torch

from axiomrm.policy_opt.reuse_stop import moved_too_far
from axiomrm.policy_opt.update import UpdateStats

USUAL = [1.0] * 10


def step(norm: float = 1.0, kl: float = 0.1, weights: tuple[float, ...] = (1.0, 1.0)) -> UpdateStats:
    return UpdateStats(grad_norm=norm, fresh_k3=[torch.tensor([kl])], correction=list(weights))


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([], False),
        ([step()], False),
        ([step(5.0)], False),
        ([step(5.1)], True),
        ([step(9.0), step(), step()], False),  # one minibatch of three
        ([step(9.0), step(9.0), step()], True),
        ([step(kl=0.29)], False),  # three times the target is too far
        ([step(kl=0.31)], True),
        ([step(kl=0.5), step(kl=0.05)], False),  # 0.275 over the tokens of both
        ([step(weights=(1.0, *[0.0] * 3))], False),  # one of four counts
        ([step(weights=(1.0, *[0.0] * 5))], True),
    ],
)
def test_a_pass_is_judged_as_a_whole(seen: list[UpdateStats], expected: bool) -> None:
    assert moved_too_far(seen, USUAL, 0.1) is expected


def test_a_large_gradient_means_nothing_before_ten_are_known() -> None:
    assert not moved_too_far([step(100.0)], USUAL[:9], 0.1) and moved_too_far([step(100.0)], USUAL, 0.1)
