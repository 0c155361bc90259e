"""Held-out criteria: a judge or rule that gives no reward looks at a sample of the rollouts."""

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

from axiomrm.data.jsonl import found_instead
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.arguments import check_source
from axiomrm.policy_opt.association import known_mean
from axiomrm.policy_opt.rewards.answers import ask
from axiomrm.policy_opt.rewards.base import Episode, TurnJudge
from axiomrm.policy_opt.seeds import generator

LEAST = 2
"""Rollouts of a sample."""


class HeldOutCriteria:
    """A sample's mean score; the monitors compare it with the reward that is trained on."""

    def __init__(self, judge: TurnJudge, share: float = 0.05, seed: int = 0) -> None:
        """Args:
        judge: another source than the reward; its turn rewards count, else that of the trajectory.
        share: share of an iteration's rollouts, in (0, 1].
        seed: of the sample.

        Raises:
            ConfigError: the judge cannot be one, or the share is no number in (0, 1].
        """
        check_source(judge, "held-out criteria: judge")
        found: Any = share
        if not isinstance(found, Real) or not 0 < float(found) <= 1:
            raise ConfigError(f"held-out criteria: share: {found_instead(share, 'a number in (0, 1]')}")
        self.judge, self.share, self.seed = judge, share, seed

    def __call__(self, episodes: Sequence[Episode], iteration: int) -> float:
        """NaN if the sample has no known score."""
        ran = [e for e in episodes if e.record.steps and e.record.ending != "env_error"]
        size = min(len(ran), max(LEAST, math.ceil(self.share * len(ran))))
        drawn = generator(self.seed, "heldout", iteration).permutation(len(ran))[:size]
        sample = [ran[i].trajectory for i in sorted(drawn.tolist())]
        answers = ask(self.judge, sample, source="held-out judge") if size else []
        turns = [known_mean(answer.turns) for answer in answers]
        wholes = [answer.trajectory for answer in answers]
        return known_mean([w if math.isnan(t) else t for t, w in zip(turns, wholes, strict=True)])
