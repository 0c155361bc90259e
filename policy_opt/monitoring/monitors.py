"""Alarms over a run: is the judge being gamed, is the policy collapsing? (POLICY.md section 20)

Fed twice an iteration: with its rollouts, before they are trained on, and with the metrics of the update.
Deterministic: nothing but its own memory decides. They warn; ``PolicyConfig.on_hack`` says what a divergence
leads to.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from axiomrm.policy_opt.monitoring.config import MonitorConfig
from axiomrm.policy_opt.monitoring.divergence import Divergence, PageHinkley, usual
from axiomrm.policy_opt.monitoring.observe import ERROR, Row, observe, observe_update
from axiomrm.policy_opt.rewards.answers import number
from axiomrm.policy_opt.rewards.base import Episode

BACK = 20
"""Iterations that a collapse is measured against."""
GAMED = frozenset({"divergence", "heldout_divergence"})
"""Alarms after which turn rewards are not to be trusted."""


class Alarm(NamedTuple):
    """One finding of one iteration."""

    name: str
    message: str
    criteria: tuple[str, ...] = ()
    """Of a divergence: the criteria that are gamed, where they are known."""


class Rise(NamedTuple):
    """An alarm on a number that rose against the warm-up."""

    alarm: str
    key: str
    level: float
    """What it must exceed in any case."""
    rise: float
    """How far it must lie above its warm-up mean."""
    factor: float
    """Times its warm-up mean that it must reach."""
    text: str


class HeldOut(Protocol):
    """Criteria that the policy is not rewarded for, asked about a sample of the rollouts."""

    def __call__(self, episodes: Sequence[Episode], iteration: int) -> float:
        """Mean score of the sample; NaN = none."""
        ...


@dataclass
class Monitors:
    """All alarms of a run."""

    config: MonitorConfig = field(default_factory=MonitorConfig)
    heldout: HeldOut | None = None
    history: list[Row] = field(default_factory=list)
    gamed: bool = False
    """A divergence has been found in this run."""
    divergence: Divergence = field(init=False)
    heldout_divergence: Divergence = field(init=False)

    def __post_init__(self) -> None:
        limits = self.config.warmup, self.config.divergence_slack, self.config.divergence_threshold
        self.divergence = Divergence("outcome", *limits)
        self.heldout_divergence = Divergence("heldout", *limits, criteria=False)

    def look(self, episodes: Sequence[Episode]) -> list[Alarm]:
        """Take in the fresh rollouts of an iteration.

        Raises:
            DataError: the held-out criteria answered with something that is no finite number or NaN.
        """
        row = observe(episodes)
        if self.heldout is not None:
            iteration = len(self.history)
            place = f"held-out criteria, iteration {iteration}"
            row["heldout"] = number(self.heldout(episodes, iteration), place)
        return self.look_at(row)

    def look_at(self, row: Row) -> list[Alarm]:
        """As ``look``, from numbers named as in ``observe``; one that is absent or NaN is unknown."""
        row = _known(row)
        self.history.append(row)
        if len(self.history) <= self.config.warmup:
            return []
        alarms = _raised(
            self._diverges("divergence", self.divergence),
            self._diverges("heldout_divergence", self.heldout_divergence),
            *(self._risen(rule, row) for rule in rises(self.config)),
            self._coverage(row),
            self._fallen("collapse", "group_std", "outcome spread within groups", row),
        )
        self.gamed = self.gamed or any(alarm.name in GAMED for alarm in alarms)
        return alarms

    def updated(self, metrics: Mapping[str, float]) -> list[Alarm]:
        """Take in the metrics of the update that the last rollouts led to."""
        self.history[-1] |= _known(observe_update(metrics))
        if len(self.history) <= self.config.warmup:
            return []
        row = self.history[-1]
        return _raised(
            self._fallen("entropy_collapse", "entropy", "entropy a token", row),
            self._gradient(row),
            self._replay(row),
            self._useless(row),
            self._clamped(row),
        )

    def narrow(self, left_out: Collection[str]) -> None:
        """From the next rollouts on the reward does without these criteria."""
        for test in (self.divergence, self.heldout_divergence):
            test.narrow(left_out, len(self.history))

    # --- one alarm each -------------------------------------------------------------------------------------

    def _diverges(self, name: str, test: Divergence) -> Alarm | None:
        found = test.look(self.history)
        return Alarm(name, *found) if found else None

    def _risen(self, rule: Rise, row: Row) -> Alarm | None:
        value, usual = row.get(rule.key, np.nan), self._usual(rule.key)
        # Written so that an unknown warm-up value does not hide a high one, and an unknown value is none.
        if not value > rule.level or value < usual + rule.rise or value <= rule.factor * usual:
            return None
        return Alarm(rule.alarm, rule.text.format(value=value, usual=usual))

    def _coverage(self, row: Row) -> Alarm | None:
        value, usual = row.get("coverage", np.nan), self._usual("coverage")
        if not value < usual - self.config.coverage_drop:
            return None
        return Alarm("coverage", f"{value:.0%} of the criteria's weight is assessed (start {usual:.0%})")

    def _fallen(self, name: str, key: str, what: str, row: Row) -> Alarm | None:
        past = [r[key] for r in self.history[-BACK - 1 : -1] if key in r]
        better = row.get("outcome", np.nan) > self._usual("outcome") + 0.1
        share = self.config.collapse_share
        if not past or better or not row.get(key, np.nan) < share * float(np.mean(past)):
            return None
        return Alarm(name, f"{what} fell to {row[key]:.3f} (before {np.mean(past):.3f})")

    def _gradient(self, row: Row) -> Alarm | None:
        past = [r["grad_norm"] for r in self.history[:-1] if "grad_norm" in r]
        usual = float(np.median(past)) if past else np.nan
        if not row.get("grad_norm", np.nan) > self.config.gradient_factor * usual:
            return None
        return Alarm("gradient", f"gradient norm {row['grad_norm']:.2f}, median so far {usual:.2f}")

    def _replay(self, row: Row) -> Alarm | None:
        last = [r.get("ess_frac", np.nan) for r in self.history[-2:]]
        if not all(value < self.config.ess_frac for value in last):
            return None
        return Alarm("replay_weights", f"effective share of replayed steps {last[0]:.2f}, then {last[1]:.2f}")

    def _useless(self, row: Row) -> Alarm | None:
        known = row.get("disc_groups", np.nan) >= 64 and row.get("beta_eff", np.nan) > 0
        if not known or not row.get("disc", np.nan) < self.config.disc_least:
            return None
        return Alarm("discrimination", f"turn rewards do not predict the outcome (disc {row['disc']:.2f})")

    def _clamped(self, row: Row) -> Alarm | None:
        iterations = row.get("kl_at_clamp", np.nan)
        if not iterations >= self.config.clamped_iterations:
            return None
        return Alarm("kl_clamped", f"KL coefficient at a bound for {iterations:.0f} iterations")

    # --- memory ---------------------------------------------------------------------------------------------

    def _usual(self, name: str) -> float:
        return usual(self.history, name, 0, self.config.warmup)

    def state_dict(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        sums = {
            name: {"low": test.low, "total": test.total, "anchor": test.anchor}
            for name, test in self._tests().items()
        }
        return {"history": self.history, "gamed": self.gamed, "sums": sums}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``; reads what earlier versions wrote too."""
        self.history = [renamed(row) for row in state["history"]]
        self.gamed = state.get("gamed", False)
        sums = state.get("sums") or {"divergence": {"low": state["low"], "total": state["total"]}}
        for name, values in sums.items():
            test = self._test(name)
            test.low, test.total, test.anchor = values["low"], values["total"], values.get("anchor", 0)

    def _tests(self) -> dict[str, PageHinkley]:
        """By name in a checkpoint: that of the alarm for the judge, of the row for a criterion."""
        criteria = {name: test for name, test in self.divergence.tests.items() if name != "judge"}
        return {name: self._test(name) for name in sorted(GAMED)} | criteria

    def _test(self, name: str) -> PageHinkley:
        if name == "heldout_divergence":
            return self.heldout_divergence.test("judge")
        return self.divergence.test("judge" if name == "divergence" else name)


def renamed(row: Mapping[str, float | None]) -> Row:
    """A row of a checkpoint, of an earlier version too; what is unknown is left out."""
    known = {name: value for name, value in row.items() if value is not None and not np.isnan(value)}
    old = {f"{name}_error": ERROR + name for name in known}
    return {old.get(name, name): value for name, value in known.items()}


def _known(row: Row) -> Row:
    return {key: value for key, value in row.items() if not np.isnan(value)}


def _raised(*found: Alarm | None) -> list[Alarm]:
    return [alarm for alarm in found if alarm is not None]


def rises(config: MonitorConfig) -> tuple[Rise, ...]:
    """The alarms on numbers that rise."""
    more, refusal, near = config.repetition_rise, config.refusal_rise, config.length_correlation
    start = "(start {usual:.0%})"
    return (
        Rise(
            "canned_text", "canned", config.canned_share, 0, 2, "{value:.0%} of turns say the same " + start
        ),
        Rise("repetition", "repetition", more, more, 0, "{value:.0%} of phrases are repeated " + start),
        Rise("duplicate_turns", "duplicates", more, more, 0, "{value:.0%} of turns repeat one " + start),
        Rise("no_effect", "no_effect", more, more, 0, "{value:.0%} of calls change nothing " + start),
        Rise("refusals", "refusals", refusal, refusal, 0, "{value:.0%} of turns refuse " + start),
        Rise("length", "length_correlation", near, 0.3, 0, "reward and length correlate {value:.2f}"),
        Rise(
            "turns",
            "turns_correlation",
            near,
            0.3,
            0,
            "reward and turns correlate {value:.2f} beside outcome",
        ),
        Rise(
            "abstention", "abstained", 0, config.abstention_rise, 0, "{value:.0%} cannot be assessed " + start
        ),
        Rise("failures", "failed", config.failed_share, 0, 0, "{value:.0%} of verdicts failed"),
        Rise(
            "one_criterion", "dominant", config.dominant_share, 0, 0, "one gives {value:.0%} of the variance"
        ),
    )
