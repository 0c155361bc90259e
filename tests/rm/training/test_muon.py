import copy
from typing import Any

import pytest
import torch
from torch import nn

from axiomrm.rm.training.muon import Muon, orthogonal
from axiomrm.rm.training.optimizer import make_optimizer


@pytest.mark.parametrize("shape", [(32, 32), (48, 16), (16, 48)])
def test_an_update_is_that_of_torch(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    start = torch.randn(shape)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    mine = Muon([ours], 0.01, weight_decay=0.1)
    reference = torch.optim.Muon([theirs], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        ours.grad = torch.randn(shape)
        theirs.grad = ours.grad.clone()
        mine.step()
        reference.step()  # type: ignore[no-untyped-call]
    moved = (theirs - start).abs().max()
    # torch iterates in bfloat16, which has 8 bits of mantissa
    assert (ours - theirs).abs().max() < 0.02 * moved


def test_singular_values_become_one_and_vectors_stay() -> None:
    torch.manual_seed(1)
    matrices = [torch.randn(6, 10), torch.randn(10, 6), torch.randn(6, 10)]
    for before, after in zip(matrices, orthogonal(matrices), strict=True):
        assert after.shape == before.shape
        values = torch.linalg.svdvals(after)
        assert ((values > 0.6) & (values < 1.3)).all()
        u, _, vh = torch.linalg.svd(before, full_matrices=False)
        core = u.T @ after @ vh.T
        torch.testing.assert_close(core, torch.diag(torch.diag(core)), atol=1e-4, rtol=0)


def test_a_vector_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        Muon([nn.Parameter(torch.zeros(3))], 0.1)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(5, 4)
        self.inner = nn.Linear(4, 4)
        self.lm_head = nn.Linear(4, 5, bias=False)

    def forward(self, ids: torch.Tensor) -> Any:
        return self.lm_head(torch.tanh(self.inner(self.embed_tokens(ids))))


def _train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    ids = torch.arange(5)
    for _ in range(steps):
        nn.functional.cross_entropy(model(ids), ids.flip(0)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()


def test_only_hidden_matrices_get_orthogonal_steps_and_a_schedule_reaches_all() -> None:
    model = Small()
    optimizer = make_optimizer(model, "muon", learning_rate=0.1, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step else 1.0)
    before = copy.deepcopy(model.state_dict())
    _train(model, optimizer, 1)
    step = model.inner.weight.detach() - before["inner.weight"]
    values = torch.linalg.svdvals(step) / (0.1 * 0.2 * 2)
    assert ((values > 0.6) & (values < 1.3)).all()
    assert all((model.state_dict()[k] != v).any() for k, v in before.items())
    schedule.step()
    after = copy.deepcopy(model.state_dict())
    _train(model, optimizer, 1)
    assert all(torch.equal(model.state_dict()[k], v) for k, v in after.items())


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_resumed_optimizer_goes_on_as_if_nothing_had_happened(kind: Any) -> None:
    torch.manual_seed(0)
    whole = Small()
    halves = copy.deepcopy(whole)
    _train(whole, make_optimizer(whole, kind, learning_rate=0.05, weight_decay=0.01), 6)
    first = make_optimizer(halves, kind, learning_rate=0.05, weight_decay=0.01)
    _train(halves, first, 3)
    second = make_optimizer(halves, kind, learning_rate=0.05, weight_decay=0.01)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    _train(halves, second, 3)
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(halves.state_dict()[name], value, msg=name)
