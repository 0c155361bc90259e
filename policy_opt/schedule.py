"""The learning rate over a run's iterations; a function of their number alone, so that nothing is stored."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # the configuration names the schedules, and does without torch
    from torch.optim import Optimizer

Schedule = Literal["constant", "linear"]
PEAK = "initial_lr"


def share_of_peak(schedule: Schedule, iteration: int, iterations: int) -> float:
    """Factor of the peak rate, in (0, 1].

    Args:
        schedule: ``linear`` is 1 in iteration 0 and ``1 / iterations`` in the last one.
        iteration: in ``[0, iterations)``.
        iterations: of the whole run.
    """
    return 1.0 if schedule == "constant" else (iterations - iteration) / iterations


def set_rates(optimizer: "Optimizer", share: float) -> None:
    """Give each parameter group its share of the rate it was made with."""
    for group in optimizer.param_groups:
        group["lr"] = group.setdefault(PEAK, group["lr"]) * share
