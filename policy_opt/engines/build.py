"""The sampler that a configuration names, and what a sampler with its own copy of the weights is asked."""

from typing import Any, Protocol, runtime_checkable

from axiomrm.policy_opt.config import RolloutConfig
from axiomrm.policy_opt.engines.config import MismatchLimits, VllmEngine
from axiomrm.policy_opt.engines.options import check_options
from axiomrm.policy_opt.engines.transformers import Sampler, TransformersSampler


@runtime_checkable
class Published(Protocol):
    """A sampler that does not see the trainer's updates until it is told."""

    version: int | None
    """Policy version of its weights; ``None``: it has none."""

    def publish(self, model: Any, version: int) -> None:
        """Use the weights of ``model`` from now on."""
        ...

    def close(self) -> None:
        """Release the engine; ``publish`` starts it again."""
        ...


def build_sampler(settings: RolloutConfig, model: Any, end_ids: frozenset[int]) -> Sampler:
    """A sampler for ``model``; nothing is started yet.

    Raises:
        ConfigError: the installed vLLM does not know an option.
    """
    if isinstance(settings.engine, VllmEngine):
        from axiomrm.policy_opt.engines.vllm import VllmSampler

        check_options(settings.engine, "rollout.engine.options")
        limit = settings.max_episode_tokens
        return VllmSampler(end_ids, settings.engine, temperature=settings.temperature, max_tokens=limit)
    return TransformersSampler(model, end_ids, temperature=settings.temperature)


def admission_of(settings: RolloutConfig, max_gap: float) -> float | MismatchLimits:
    """What the admission test of fresh tokens accepts: ``max_gap`` nats of one engine, limits of another."""
    return settings.engine.mismatch if isinstance(settings.engine, VllmEngine) else max_gap
