import math

import pytest
import torch

from axiomrm.policy_opt.kl import KLController, k1, k2, k3, kl_surrogate


def logits(seed: int) -> torch.Tensor:
    return torch.randn(6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def analytic_gradient(theta: torch.Tensor, ref: torch.Tensor) -> torch.Tensor:
    theta = theta.clone().requires_grad_()
    logp = theta.log_softmax(0)
    (gradient,) = torch.autograd.grad((logp.exp() * (logp - ref)).sum(), theta)
    return gradient


def expected_surrogate_gradient(theta: torch.Tensor, mu: torch.Tensor, ref: torch.Tensor) -> torch.Tensor:
    """Exact expectation over actions drawn from ``mu``."""
    theta = theta.clone().requires_grad_()
    logp = theta.log_softmax(0)
    rho = (logp - mu).exp().detach()
    assert rho.max() < 2.0, "the cap would bias the check"
    (gradient,) = torch.autograd.grad((mu.exp() * kl_surrogate(logp, ref, rho)).sum(), theta)
    return gradient


@pytest.mark.parametrize("shift", [0.0, 0.25])
def test_the_gradient_is_the_reverse_kl_on_and_off_policy(shift: float) -> None:
    theta, ref = logits(0), logits(1).log_softmax(0)
    mu = (theta + shift * logits(2)).log_softmax(0)
    torch.testing.assert_close(
        expected_surrogate_gradient(theta, mu, ref), analytic_gradient(theta, ref), atol=1e-6, rtol=1e-5
    )


def test_k3_as_a_loss_has_another_gradient() -> None:
    theta, ref = 2 * logits(0), (2 * logits(2)).log_softmax(0)
    t = theta.clone().requires_grad_()
    logp = t.log_softmax(0)
    (gradient,) = torch.autograd.grad((logp.exp().detach() * k3(logp, ref)).sum(), t)
    cosine = torch.nn.functional.cosine_similarity(gradient, analytic_gradient(theta, ref), dim=0)
    assert cosine < 0.5


def test_the_estimators_by_hand() -> None:
    a, b = torch.tensor([-1.0]), torch.tensor([-1.5])
    assert k1(a, b).item() == pytest.approx(0.5)
    assert k2(a, b).item() == pytest.approx(0.125)
    assert k3(a, b).item() == pytest.approx(math.exp(-0.5) - 1 + 0.5)


def test_a_huge_gap_stays_finite_in_value_and_gradient() -> None:
    logp = torch.tensor([-0.1, -95.0], requires_grad=True)
    value = k3(logp, torch.tensor([-0.1, -0.5]))
    value.sum().backward()  # type: ignore[no-untyped-call]  # torch
    assert value[0].item() == 0.0
    assert torch.isfinite(value).all() and torch.isfinite(logp.grad).all()  # type: ignore[arg-type]  # set by backward
    assert value[1].item() == pytest.approx(math.exp(20) - 21, rel=1e-6)


def test_the_controller_moves_two_percent_at_most_and_stays_in_its_bounds() -> None:
    controller = KLController(beta=0.02, target_nats_per_token=0.1)
    controller.update(10.0)
    assert controller.beta == pytest.approx(0.02 * 1.02)
    controller = KLController(beta=0.02)
    controller.update(0.09)  # error -0.1
    assert controller.beta == pytest.approx(0.02 * 0.99)
    controller.update(float("nan"))
    assert controller.beta == pytest.approx(0.02 * 0.99)
    controller = KLController(beta=1.0)
    controller.update(10.0)
    assert controller.beta == 1.0 and controller.at_clamp == 1


def test_a_coefficient_of_zero_means_no_kl_term_and_stays_zero() -> None:
    controller = KLController(beta=0.0, target_nats_per_token=0.1)
    for _ in range(20):
        controller.update(10.0)
    assert controller.beta == 0.0 and controller.at_clamp == 0
    assert controller.error == 0.2, "KL itself is still measured"


def test_the_controller_survives_a_checkpoint() -> None:
    one, two = KLController(), KLController()
    one.update(0.3)
    two.load_state_dict(one.state_dict())
    one.update(0.2)
    two.update(0.2)
    assert one == two
