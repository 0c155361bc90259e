"""What a run does about alarms and failures: warn, keep the evidence, go on with outcomes alone, or stop."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from axiomrm.errors import ConfigError, JudgeError
from axiomrm.policy_opt.algorithms.base import Algorithm, Guardable
from axiomrm.policy_opt.config import cannot_guard
from axiomrm.policy_opt.monitoring.failures import VerdictWindow, check_rollouts
from axiomrm.policy_opt.monitoring.monitors import GAMED, Alarm, Monitors
from axiomrm.policy_opt.monitoring.rejected import write_rejected_rollouts
from axiomrm.policy_opt.monitoring.signals import warn_of_idleness, warn_of_nothing
from axiomrm.policy_opt.monitoring.spot_checks import write_spot_checks
from axiomrm.policy_opt.rewards.base import Episode

log = logging.getLogger(__name__)
OnHack = Literal["warn", "guard", "stop"]


class Watch:
    """The monitors of a run and what follows from them."""

    def __init__(self, monitors: Monitors, on_hack: OnHack, folder: Path, algorithm: Algorithm) -> None:
        """Args:
        monitors: the alarms.
        on_hack: what a divergence leads to.
        folder: for ``alarms.jsonl`` and ``rejected.jsonl``.
        algorithm: what is guarded.

        Raises:
            ConfigError: ``guard`` with an algorithm that cannot go on without turn rewards.
        """
        if on_hack == "guard" and not isinstance(algorithm, Guardable):
            raise ConfigError(cannot_guard(type(algorithm).__name__))
        self.monitors, self.on_hack = monitors, on_hack
        self.folder, self.algorithm = folder, algorithm
        self.verdicts = VerdictWindow()

    def check_rollouts(self, episodes: list[Episode], iteration: int, accepted: float) -> None:
        """Keep the rollouts that an environment's fault ended; raises as ``failures.check_rollouts``."""
        write_rejected_rollouts(self.folder / "rejected.jsonl", iteration, episodes)
        check_rollouts(episodes, iteration, accepted)

    def look(self, iteration: int, episodes: list[Episode]) -> dict[str, float]:
        """Take in rollouts before they are trained on; returns ``monitor/<alarm>`` = 1 for each alarm and
        ``heldout/score``, if there is one.

        A divergence writes the rollouts to read to ``alarms.jsonl``; a guard holds from these rollouts on.

        Raises:
            ConfigError: ``guard`` with a reward that holds the judge in the outcome too.
        """
        if self.on_hack == "guard" and any(episode.record.mixed for episode in episodes):
            raise ConfigError(
                "on_hack 'guard': the reward source mixes the outcome with what is judged, so dropping turn "
                "rewards would leave the judge in; use a source of turn rewards alone, or 'warn' or 'stop'"
            )
        warn_of_nothing(episodes, iteration)
        alarms = self.monitors.look(episodes)
        if any(alarm.name in GAMED for alarm in alarms):
            write_spot_checks(self.folder / "alarms.jsonl", iteration, episodes)
        self._guard_if_gamed()
        seen = self.monitors.history[-1]
        score = {"heldout/score": seen["heldout"]} if "heldout" in seen else {}
        return _told(iteration, alarms) | score

    def updated(self, iteration: int, metrics: dict[str, float]) -> dict[str, float]:
        """Take in what the update on them showed; returns as ``look``."""
        warn_of_idleness(metrics, type(self.algorithm).__name__, iteration)
        return _told(iteration, self.monitors.updated(metrics))

    @property
    def must_stop(self) -> bool:
        """Whether the run is over because of a divergence."""
        return self.monitors.gamed and self.on_hack == "stop"

    def stop_if_gamed(self, iteration: int) -> None:
        """Before an iteration.

        Raises:
            JudgeError: a divergence was found and ``on_hack`` is ``stop``.
        """
        if self.must_stop:
            raise JudgeError(
                f"{self.folder}: stopped before iteration {iteration}: the judge's reward rises, the outcome "
                "does not; read alarms.jsonl, then train in a new folder with another judge, or with on_hack "
                "'guard' (outcomes alone from the alarm on)"
            )

    def _guard_if_gamed(self) -> None:
        if self.monitors.gamed and self.on_hack == "guard" and isinstance(self.algorithm, Guardable):
            self.algorithm.guard()

    def state_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        return self.monitors.state_dict() | {"verdicts": self.verdicts.reasons}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``."""
        self.monitors.load_state_dict(state)
        self.verdicts.reasons = list(state.get("verdicts", ()))  # earlier versions kept none
        self._guard_if_gamed()


def _told(iteration: int, alarms: Sequence[Alarm]) -> dict[str, float]:
    for alarm in alarms:
        log.warning("iteration %d: %s: %s", iteration, alarm.name, alarm.message)
    return {f"monitor/{alarm.name}": 1.0 for alarm in alarms}
