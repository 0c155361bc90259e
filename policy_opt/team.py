"""Several processes on one run: the main one runs it, the others compute their share of each optimizer step.

A typed error of the main process ends the others with an error too. After any other one the launcher
(``accelerate launch``, ``torchrun``) stops them, because it may have struck in the middle of an exchange.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from axiomrm.errors import ConfigError, Error
from axiomrm.policy_opt.algorithms.base import ActorCritic, Algorithm, Minibatch
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.policy_opt.engines.config import MismatchLimits, VllmEngine
from axiomrm.policy_opt.replica import AcceleratedReplica, OwnReplica, Replica

Rows = list[dict[str, float]]
WAIT = timedelta(days=7)
"""How long a process waits for another; the launcher ends all of them once one has failed."""


@dataclass(frozen=True)
class Step:
    """One optimizer step for every process."""

    minibatch: Minibatch
    kl_beta: float
    admission: float | MismatchLimits | None


@dataclass(frozen=True)
class _Over:
    rows: Rows | None
    """``None``: the run failed."""


def accelerator_of(config: PolicyConfig) -> Any:
    """A new ``Accelerator`` where the configuration asks for one, else ``None``.

    Its processes wait as long as it takes for the main one, which rolls out and judges alone: NCCL's ten
    minutes are less than a long iteration.
    """
    if not config.accelerate:
        return None
    from accelerate import Accelerator, InitProcessGroupKwargs

    return Accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=WAIT)])


def join(
    accelerator: Any, model: Any, optimizer: Any, algorithm: Algorithm, config: PolicyConfig
) -> tuple[Replica, Any]:
    """This process's replica, and the optimizer to use from now on.

    Raises:
        ConfigError: several processes with an algorithm or an engine that they cannot share.
    """
    if accelerator is None:
        return OwnReplica(model), optimizer
    replica = AcceleratedReplica(accelerator, model, optimizer)
    if replica.processes > 1 and isinstance(algorithm, ActorCritic):
        raise ConfigError(
            f"accelerate: {replica.processes} processes, and {type(algorithm).__name__} has a value head "
            "whose gradient is not exchanged; use one process or another algorithm"
        )
    if replica.processes > 1 and isinstance(config.rollout.engine, VllmEngine):
        raise ConfigError(
            f"accelerate: {replica.processes} processes, and rollout.engine 'vllm' runs in the main one "
            "alone, where it would wait for the others forever; use one process, or kind 'transformers'"
        )
    return replica, replica.optimizer


def leads(replica: Replica) -> bool:
    """Whether this process runs the run."""
    return not isinstance(replica, AcceleratedReplica) or replica.main


def tell(replica: Replica, step: Step) -> Step:
    """``step``, once the other processes have it too."""
    if isinstance(replica, AcceleratedReplica):
        replica.tell(step)
    return step


def together(replica: Replica, run: Callable[[], Rows], step: Callable[[Step], object]) -> Rows:
    """``run`` in the main process, every ``step`` that it tells in the others; its rows in all of them.

    Raises:
        Error: the run failed; in another process the main one's message has the reason.
    """
    if not isinstance(replica, AcceleratedReplica) or replica.processes == 1:
        return run()
    replica.accelerator.wait_for_everyone()  # all have read the checkpoint
    return _lead(replica, run) if replica.main else _follow(replica, step)


def _lead(replica: AcceleratedReplica, run: Callable[[], Rows]) -> Rows:
    try:
        rows = run()
    except Error:
        replica.tell(_Over(None))
        raise
    replica.tell(_Over(rows))
    return rows


def _follow(replica: AcceleratedReplica, step: Callable[[Step], object]) -> Rows:
    failure: Error | None = None
    while not isinstance(message := replica.tell(None), _Over):
        try:
            step(message)
        except Error as error:  # the main process has it too and says so next
            failure = error
    if message.rows is None:
        raise failure or Error("the main process stopped this run; its message has the reason")
    return message.rows
