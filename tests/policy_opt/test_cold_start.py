"""Fine-tuning of the start: both optimizers learn, and a killed one ends at the same weights."""

from pathlib import Path
from typing import Any

import pytest
import torch

from axiomrm.policy_opt.cold_start import IGNORED, ColdStartSettings, fine_tune
from axiomrm.rm.training.optimizer import Kind as OptimizerKind

ROWS = [([3, 4 + i % 5, 9, 4 + i % 5], [IGNORED, IGNORED, IGNORED, 4 + i % 5]) for i in range(20)]
"""The last token repeats the second."""


class Killed(Exception):
    pass


def settings(optimizer: OptimizerKind) -> ColdStartSettings:
    return ColdStartSettings(
        learning_rate=1e-2, optimizer=optimizer, max_epochs=4, tokens_per_step=32, warmup_steps=1
    )


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_it_learns_and_a_killed_run_ends_at_the_same_weights(
    toy: Any, tmp_path: Path, optimizer: OptimizerKind
) -> None:
    whole, again = toy.model(), toy.model()
    result = fine_tune(whole, ROWS, ROWS, settings(optimizer), tmp_path / "whole")
    assert min(result.dev_losses) < 0.7 * result.dev_losses[0]

    def dies(epoch: int, loss: float) -> None:
        if epoch == 2:
            raise Killed

    with pytest.raises(Killed):
        fine_tune(again, ROWS, ROWS, settings(optimizer), tmp_path / "again", on_epoch=dies)
    again = toy.model()
    assert fine_tune(again, ROWS, ROWS, settings(optimizer), tmp_path / "again") == result
    for mine, theirs in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_the_optimizers_differ(toy: Any, tmp_path: Path) -> None:
    losses = {
        kind: fine_tune(toy.model(), ROWS, ROWS, settings(kind), tmp_path / kind).dev_losses[-1]
        for kind in ("adamw", "muon")
    }
    assert losses["adamw"] != losses["muon"]
