"""The two TorchRL pieces of PPO behind plain tensors: GAE over ragged episodes, the clipped loss a token."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from axiomrm.errors import ConfigError

FloatArray = NDArray[np.float32]


def _torchrl() -> tuple[Any, Any, Any, Any]:
    """``tensordict``, ``tensordict.nn``, ``torchrl.objectives`` and its value estimators (a slow import)."""
    try:
        import tensordict
        import tensordict.nn
        import torchrl.objectives
        import torchrl.objectives.value
    except ImportError as error:
        raise ConfigError(f"ppo needs torchrl ({error}): pip install 'axiomrm[train]'") from error
    return tensordict, tensordict.nn, torchrl.objectives, torchrl.objectives.value


def generalised_advantages(
    values: Sequence[FloatArray], rewards: Sequence[FloatArray], *, gamma: float, lam: float
) -> tuple[list[FloatArray], list[FloatArray]]:
    """Advantages and value targets of episodes that end with their last entry.

    Args:
        values: value of the state before each action, one array an episode.
        rewards: reward of each action.
        gamma: discount an action.
        lam: GAE's lambda.
    """
    tensordict, _, _, estimators = _torchrl()
    width = max(len(row) for row in values)
    shape = (len(values), width, 1)
    value, reward = torch.zeros(shape), torch.zeros(shape)
    done = torch.ones(shape, dtype=torch.bool)
    for i, (v, r) in enumerate(zip(values, rewards, strict=True)):
        value[i, : len(v), 0], reward[i, : len(r), 0] = torch.from_numpy(v), torch.from_numpy(r)
        done[i, : len(v) - 1] = False
    following = torch.cat([value[:, 1:], torch.zeros(len(values), 1, 1)], dim=1)
    after = {"state_value": following, "reward": reward, "done": done, "terminated": done}
    data = tensordict.TensorDict({"state_value": value, "next": after}, batch_size=shape[:2])
    estimated = estimators.GAE(gamma=gamma, lmbda=lam, value_network=None, average_gae=False)(data)
    return _ragged(estimated["advantage"], values), _ragged(estimated["value_target"], values)


def _ragged(padded_BN1: Tensor, like: Sequence[FloatArray]) -> list[FloatArray]:
    return [padded_BN1[i, : len(row), 0].numpy() for i, row in enumerate(like)]


class KnownLogProb(torch.distributions.Distribution):
    """What is left of a policy once the log-probs of its actions are known."""

    arg_constraints: dict[str, Any] = {}  # noqa: RUF012  # torch's own spelling

    def __init__(self, logp: Tensor) -> None:
        self.logp = logp
        super().__init__(batch_shape=logp.shape, validate_args=False)

    def log_prob(self, value: Tensor) -> Tensor:
        """Of the actions taken, whatever stands in ``value``."""
        return self.logp


@functools.cache
def _loss_module(clip: float, value_coefficient: float) -> Any:
    """``ClipPPOLoss`` over log-probs and values that are in the data already; it holds no weights."""
    _, modules, objectives, _ = _torchrl()
    actor = modules.ProbabilisticTensorDictSequential(
        modules.TensorDictModule(lambda x: x, in_keys=["current_logp"], out_keys=["logp"]),
        modules.ProbabilisticTensorDictModule(
            in_keys=["logp"], out_keys=["action"], distribution_class=KnownLogProb
        ),
    )
    critic = modules.TensorDictModule(lambda x: x, in_keys=["current_value"], out_keys=["state_value"])
    return objectives.ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=clip,
        entropy_bonus=False,
        critic_coeff=value_coefficient,
        loss_critic_type="l2",
        reduction="none",
        functional=False,
        log_explained_variance=False,
    )


def clipped_loss(
    logp_N: Tensor,
    old_N: Tensor,
    value_N: Tensor,
    advantage_N: Tensor,
    target_N: Tensor,
    *,
    clip: float,
    value_coefficient: float,
) -> tuple[Tensor, Tensor]:
    """``ClipPPOLoss`` a token: the clipped objective and the squared value error times its coefficient."""
    tensordict = _torchrl()[0]
    data = {
        "current_logp": logp_N,
        "current_value": value_N[:, None],
        "action": torch.zeros_like(logp_N, dtype=torch.long),
        "action_log_prob": old_N,
        "advantage": advantage_N[:, None],
        "value_target": target_N[:, None],
    }
    out = _loss_module(clip, value_coefficient)(tensordict.TensorDict(data, batch_size=[len(logp_N)]))
    return out["loss_objective"].squeeze(-1), out["loss_critic"]
