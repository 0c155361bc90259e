import math

import pytest
import torch

from axiomrm.policy_opt.losses import clipped_surrogate
from axiomrm.policy_opt.replay.correction import (
    StepRatios,
    correction_weights,
    ess_fraction,
    reweighted,
    step_ratios,
    trust_mask,
)


def ratios(logp: list[float], behaviour: list[float], step: list[int]) -> StepRatios:
    return step_ratios(torch.tensor(logp), torch.tensor(behaviour), torch.tensor(step), max(step) + 1)


def test_ratio_and_moments_by_hand() -> None:
    got = ratios([-1.1, -2.3], [-1.0, -2.0], [0, 0])
    assert got.rho_S.item() == pytest.approx(math.exp(-0.4))
    assert got.m1_S.item() == pytest.approx(-0.2)
    assert got.m2_S.item() == pytest.approx((0.01 + 0.09) / 2)


def test_each_step_has_its_own_ratio() -> None:
    got = ratios([-1.0, -1.0, -3.0], [-2.0, -1.0, -1.0], [0, 0, 1])
    torch.testing.assert_close(got.rho_N, torch.tensor([math.e, math.e, math.exp(-2)]))


def test_long_actions_use_token_ratios() -> None:
    n = 65
    got = ratios([-1.0] * n, [-1.1] * n, [0] * n)
    torch.testing.assert_close(got.rho_N, torch.full((n,), math.exp(0.1)))


def test_a_huge_log_ratio_is_clamped() -> None:
    assert ratios([-0.1], [-95.0], [0]).rho_S.item() == pytest.approx(math.exp(20), rel=1e-5)


def test_the_taper_keeps_positives_and_bounds_negatives() -> None:
    rho = torch.tensor([0.5, 3.0, 0.5, 3.0])
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0])
    assert correction_weights(rho, advantage, "taper").tolist() == [1.0, 1.0, 0.5, 1.0]
    assert correction_weights(rho, advantage, "ratio").tolist() == [0.5, 2.0, 0.5, 1.0]
    assert correction_weights(rho, advantage, "none").tolist() == [1.0] * 4


def test_rare_tokens_are_damped_by_their_probability_when_sampled() -> None:
    behaviour = torch.tensor([math.log(0.5), math.log(0.1)])
    assert reweighted(behaviour, 0.0).tolist() == [1.0, 1.0]
    assert reweighted(behaviour, 1.0).tolist() == pytest.approx([0.5, 0.1])
    assert reweighted(behaviour, 0.5).tolist() == pytest.approx([0.75, 0.55])


def test_the_mask_is_one_sided() -> None:
    # one token: limits rho > 1.5 (log 0.405 -> 0.4) and rho < 0.5 (log -0.693 -> -0.7)
    got = ratios([0.45, 0.35, 0.45, -0.75, -0.65, -0.75], [0.0] * 6, [0, 1, 2, 3, 4, 5])
    advantage = torch.tensor([1.0, 1.0, -1.0, -1.0, -1.0, 1.0])
    assert trust_mask(got, advantage).tolist() == [False, True, True, False, True, True]


def test_the_limits_widen_for_short_actions() -> None:
    short = ratios([-0.7] * 1, [-1.0] * 1, [0])
    long = ratios([-0.7] * 16, [-1.0] * 16, [0] * 16)
    up = torch.tensor([1.0])
    assert trust_mask(short, up).item() and not trust_mask(long, up).item()


def test_a_wide_second_moment_drops_only_what_pushes_on() -> None:
    # mean +0.05 but tokens at +-0.9: second moment 0.81 > max(0.05, 0.5/8)
    log_ratio = [0.95, -0.85] * 4
    got = ratios(log_ratio, [0.0] * 8, [0] * 8)
    assert not trust_mask(got, torch.tensor([1.0])).item()
    assert trust_mask(got, torch.tensor([-1.0])).item()


def test_on_policy_everything_is_kept_and_the_gradient_is_that_of_the_ratio_form() -> None:
    torch.manual_seed(0)
    logp = torch.randn(6).abs().neg().requires_grad_()
    behaviour = logp.detach().clone()
    step = torch.tensor([0, 0, 1, 1, 2, 2])
    advantage_S = torch.tensor([1.5, -0.5, -2.0])
    got = step_ratios(logp, behaviour, step, 3)
    weights = correction_weights(got.rho_N, advantage_S[step], "taper")
    assert weights.tolist() == [1.0] * 6 and trust_mask(got, advantage_S).all()
    (ours,) = torch.autograd.grad((-(weights * advantage_S[step]) * logp).sum(), logp)
    (theirs,) = torch.autograd.grad(clipped_surrogate(logp, behaviour, advantage_S[step]).sum(), logp)
    torch.testing.assert_close(ours, theirs)


def test_effective_sample_share_by_hand() -> None:
    assert ess_fraction(torch.ones(5)) == pytest.approx(1.0)
    assert ess_fraction(torch.tensor([1.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)
    assert math.isnan(ess_fraction(torch.empty(0)))
