"""What a run does about alarms and failures: warn, keep the evidence, guard the reward, or stop.

A guard leaves out of the turn reward what is gamed: the criteria that a divergence names, or, where it names
none or none would be left, turn rewards altogether.
"""

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
from axiomrm.policy_opt.rewards.narrowed import narrow

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
        self.left_out: set[str] = set()
        """Criteria that the turn reward does without; a ``Narrowed`` source reads it."""
        self._outcomes_alone = False

    def check_rollouts(self, episodes: list[Episode], iteration: int, accepted: float) -> None:
        """Keep the rollouts that an environment's fault ended; raises as ``failures.check_rollouts``."""
        write_rejected_rollouts(self.folder / "rejected.jsonl", iteration, episodes)
        check_rollouts(episodes, iteration, accepted)

    def look(self, iteration: int, episodes: list[Episode]) -> dict[str, float]:
        """Take in rollouts before they are trained on; returns ``monitor/<alarm>`` = 1 for each alarm,
        ``heldout/score``, if there is one, and what is guarded.

        A divergence writes the rollouts to read to ``alarms.jsonl``; a guard holds from these rollouts on,
        whose turn rewards change.

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
        gamed = [alarm for alarm in alarms if alarm.name in GAMED]
        if gamed:
            write_spot_checks(self.folder / "alarms.jsonl", iteration, episodes)
        seen = self.monitors.history[-1]
        score = {"heldout/score": seen["heldout"]} if "heldout" in seen else {}
        told = _told(iteration, alarms) | score
        return told | self._guarded(gamed, episodes, iteration) if self.on_hack == "guard" else told

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
                "'guard' (from the alarm on without what is gamed)"
            )

    def _guarded(self, gamed: Sequence[Alarm], episodes: list[Episode], iteration: int) -> dict[str, float]:
        before = len(self.left_out), self._outcomes_alone
        for alarm in () if self._outcomes_alone else gamed:
            if alarm.criteria:
                self._leave_out(alarm.criteria, episodes)
            else:
                self._trust_outcomes_alone()
        if before != (len(self.left_out), self._outcomes_alone):
            log.warning("iteration %d: on_hack guard: %s", iteration, self._guard_in_words())
        return {
            "guard/criteria_left_out": float(len(self.left_out)),
            "guard/outcomes_alone": float(self._outcomes_alone),
        }

    def _leave_out(self, criteria: Sequence[str], episodes: list[Episode]) -> None:
        self.left_out.update(criteria)
        self.monitors.narrow(criteria)
        records = [episode.record for episode in episodes]
        for record in records:
            narrow(record, self.left_out)
        if not any(step.r_parts for record in records for step in record.steps):
            self._trust_outcomes_alone()

    def _trust_outcomes_alone(self) -> None:
        self._outcomes_alone = True
        if isinstance(self.algorithm, Guardable):
            self.algorithm.guard()

    def _guard_in_words(self) -> str:
        if self._outcomes_alone:
            return "no turn reward is trained on from here on, outcomes alone teach"
        return f"the turn reward goes on without {', '.join(map(repr, sorted(self.left_out)))}"

    def state_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        own = {"left_out": sorted(self.left_out), "outcomes_alone": self._outcomes_alone}
        return self.monitors.state_dict() | {"verdicts": self.verdicts.reasons} | own

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``; earlier versions kept less, and their guard left outcomes alone."""
        self.monitors.load_state_dict(state)
        self.verdicts.reasons = list(state.get("verdicts", ()))
        self.left_out.clear()
        self.left_out.update(state.get("left_out", ()))
        if state.get("outcomes_alone", self.monitors.gamed and self.on_hack == "guard"):
            self._trust_outcomes_alone()


def _told(iteration: int, alarms: Sequence[Alarm]) -> dict[str, float]:
    for alarm in alarms:
        log.warning("iteration %d: %s: %s", iteration, alarm.name, alarm.message)
    return {f"monitor/{alarm.name}": 1.0 for alarm in alarms}
