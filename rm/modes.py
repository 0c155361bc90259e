"""What stands above one reading: several samples, calibration, the margin gate.

The order is sample, pool, read out, calibrate, gate; of an axiom with several readings each is read out and
calibrated alone, and then they vote. Only sampling touches the engine.
"""

import hashlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, get_args

from axiomrm.data.trajectory import canonical_json
from axiomrm.data.verdict import Verdict
from axiomrm.errors import ConfigError
from axiomrm.rm.asking import Asking, VerdictRequest, read, verdict_of, votes_of
from axiomrm.rm.calibration import Calibration
from axiomrm.rm.engines.base import Engine
from axiomrm.rm.gating import Answer, gated
from axiomrm.rm.prompt import JudgePrompter, Mode
from axiomrm.rm.sampling import Readings, Settled, Stop, round_seed, sample
from axiomrm.rm.voting import settled

log = logging.getLogger(__name__)
_SAID: set[str] = set()
"""Criteria whose votes were said to be taken once: said once, not once a conversation."""


@dataclass(frozen=True)
class Modes:
    """How readings are combined; none of it changes what one reading is."""

    gate: float | None = None
    """Gated mode: a direct verdict less confident than this is replaced by the critique's. ``None``: one
    mode for all."""
    n_samples: int | None = None
    """Samples of every question; ``None``: as many as its criterion has votes. A direct reading with
    probabilities is the same each time and is taken once."""
    stop: Stop = "never"
    """When fewer will do, see ``axiomrm.rm.sampling``."""
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        if self.gate is not None and not (self.gate >= 0 and math.isfinite(self.gate)):
            raise ConfigError(f"gate {self.gate!r} must be a confidence from 0 on (above 1: always critique)")
        if self.n_samples is not None and (type(self.n_samples) is not int or self.n_samples < 1):
            raise ConfigError(f"n_samples {self.n_samples!r} must be a whole number, at least 1")
        if self.stop not in get_args(Stop):
            raise ConfigError(f"stop {self.stop!r} must be one of {list(get_args(Stop))}")
        if not isinstance(self.calibration, Calibration | None):
            raise ConfigError(f"calibration {self.calibration!r}: read a file with read_calibration(path)")


def settings(asking: Asking, modes: Modes, changes: Mapping[str, Any]) -> tuple[Asking, Modes]:
    """Both with changes by name; ``mode="gated"`` needs a ``gate``, and another mode ends one.

    Raises:
        ConfigError: an unknown name, or a value that cannot be used.
    """
    own = {f.name for f in fields(Modes)}
    below = {f.name for f in fields(Asking)}
    unknown = sorted(set(changes) - own - below)
    if unknown:
        raise ConfigError(f"setting {unknown[0]!r} is none of {', '.join(sorted(own | below))}")
    changes = dict(changes)
    mode = changes.get("mode")
    if mode not in (None, "gated", *get_args(Mode)):
        raise ConfigError(f"mode {mode!r} must be 'direct', 'critique' or 'gated'")
    if mode == "gated":
        if changes.get("gate", modes.gate) is None:
            raise ConfigError("mode 'gated' needs gate=…: pick one with `axiomrm calibrate gate`")
        changes["mode"] = None
    elif "mode" in changes:
        changes.setdefault("gate", None)
    asking = replace(asking, **{k: v for k, v in changes.items() if k in below})
    modes = replace(modes, **{k: v for k, v in changes.items() if k in own})
    if modes.gate is not None and (asking.readout == "sampled" or asking.adapter != "own"):
        raise ConfigError(
            "a gate needs label probabilities, which readout 'sampled' and foreign adapters do not have: "
            f"found readout {asking.readout!r}, adapter {asking.adapter!r}"
        )
    return asking, modes


def spelled_out(asking: Asking, modes: Modes) -> dict[str, Any]:
    """All settings as plain values, the calibrator as its hash: equal for runs that may be mixed."""
    values = {f.name: getattr(part, f.name) for part in (asking, modes) for f in fields(part)}
    return {**values, "calibration": modes.calibration.hash if modes.calibration else ""}


def revision(engine: Engine, prompter: JudgePrompter, asking: Asking, gate: float | None = None) -> str:
    """SHA-256 over all on the model's side that changes a verdict."""
    parts: dict[str, Any] = {
        "engine": dict(engine.identity),
        "prompt": prompter.fingerprint,
        **asking.revision,
    }
    if gate is not None:
        parts |= {"mode": "gated", "gate": float(gate)}
    return hashlib.sha256(canonical_json(parts).encode()).hexdigest()


def checked(engine: Engine, prompter: JudgePrompter, asking: Asking, modes: Modes) -> Modes:
    """``modes``, if their calibrator was fitted on this judge.

    Raises:
        ConfigError: it was fitted on another one.
    """
    if modes.calibration is not None:
        modes.calibration.check(
            lambda entry: revision(engine, prompter, replace(asking, mode=entry.mode, readout=entry.readout)),
            f"judge {dict(engine.identity).get('engine', '')}",
        )
    return modes


def answer(
    engine: Engine, prompter: JudgePrompter, requests: Sequence[VerdictRequest], how: Asking, modes: Modes
) -> list[Verdict]:
    """One verdict a request, in order; in the mode of ``how``, or in its own where that has none."""

    def in_mode(mode: Mode) -> Answer:
        def verdicts(asked: Sequence[VerdictRequest]) -> list[Verdict]:
            return _answered(engine, prompter, asked, replace(how, mode=mode), modes)

        return verdicts

    if modes.gate is not None:
        return gated(requests, in_mode("direct"), in_mode("critique"), modes.gate)
    found: dict[int, Verdict] = {}
    for mode in get_args(Mode):
        mine = [i for i, r in enumerate(requests) if (how.mode or r.mode or "direct") == mode]
        found |= zip(mine, in_mode(mode)([requests[i] for i in mine]), strict=True)
    return [found[i] for i in range(len(requests))]


def _answered(
    engine: Engine, prompter: JudgePrompter, requests: Sequence[VerdictRequest], how: Asking, modes: Modes
) -> list[Verdict]:
    several = _read(engine, prompter, requests, how, modes)
    return [
        verdict_of(found, r, how, _calibrator(r, modes)) for found, r in zip(several, requests, strict=True)
    ]


def _calibrator(request: VerdictRequest, modes: Modes) -> Callable[[Verdict], Verdict]:
    if modes.calibration is None:
        return lambda verdict: verdict
    return partial(modes.calibration.apply, labels=request.criterion.labels)


def _read(
    engine: Engine, prompter: JudgePrompter, requests: Sequence[VerdictRequest], how: Asking, modes: Modes
) -> list[Readings]:
    once = how.mode == "direct" and how.readout != "sampled" and how.adapter == "own"
    wanted = [1 if once else modes.n_samples or r.votes for r in requests]
    if once and modes.gate is None and modes.n_samples is None:
        _say_once({r.criterion.id for r in requests if r.votes > 1})

    def draw(counts: dict[int, int], number: int) -> dict[int, Readings]:
        # Criteria asked in one prompt change each other's answers, so they are drawn together to the end.
        if how.joint > 1:
            counts = {i: counts.get(i, max(counts.values())) for i in range(len(requests))}
        asked = [replace(requests[i], votes=count) for i, count in counts.items()]
        seeded = replace(how, seed=round_seed(how.seed, number))
        return dict(zip(counts, read(engine, prompter, asked, seeded), strict=True))

    def by_vote(request: VerdictRequest) -> Settled:
        def known(found: Readings, left: int) -> bool:
            votes = votes_of(found, request, how, _calibrator(request, modes))
            return settled(votes, left, request.criterion.labels)

        return known

    labels = [r.criterion.labels for r in requests]
    stop: Stop = modes.stop if how.adapter == "own" else "never"  # foreign numbers have no shares to lead by
    voting = {i: by_vote(r) for i, r in enumerate(requests) if r.majority}
    return sample(draw, wanted, labels, how.rule, stop=stop, voting=voting)


def _say_once(voting: set[str]) -> None:
    if fresh := voting - _SAID:
        _SAID.update(fresh)
        log.warning(
            "%s: the rubric asks for several votes, but a direct reading is the same each time and is taken "
            "once; mode 'critique' draws them",
            ", ".join(sorted(fresh)),
        )
