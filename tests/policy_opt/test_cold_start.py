"""Fine-tuning of the start: both optimizers learn, and a killed one ends at the same weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.policy_opt.cold_start import IGNORED, ColdStartSettings, dialogue_row, fine_tune
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


class Symbols:
    """One id a digit; 100 opens an answer, 101 ends it."""

    def prompt_ids(self, messages: Sequence[Message], tools: Any, first: bool) -> list[int]:
        return [*(int(m.content) for m in messages), 100]

    def action_ids(self, message: Message) -> list[int]:
        return [int(message.content), 101]


def test_what_the_environment_says_in_the_agents_name_is_prompt() -> None:
    said = (
        Message(role="assistant", content="1").from_environment(),
        Message(role="user", content="2"),
        Message(role="assistant", content="3"),
    )
    ids, labels = dialogue_row(Symbols(), Trajectory(messages=said))  # type: ignore[arg-type]  # a chat format
    assert ids == [1, 2, 100, 3, 101]
    assert labels == [IGNORED, IGNORED, IGNORED, 3, 101]
