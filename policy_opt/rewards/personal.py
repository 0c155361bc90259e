"""A reward from the criteria of each user's own profile, on that user's own scale.

A user is an opaque token in ``task.features["subject"]``; nothing here knows more than the token and the
slots that the user allowed for criteria, judging and training, each of them, as long as they have not ended.
Users use a scale differently, so raw rewards of two users are
never pooled: each is centred and divided by running statistics of its own user, as they were before the
batch. A user's first batch has none yet and uses its own; one single value has no scale and is missing.

A critique may quote the criteria, and with them the profile: none leaves this source.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from axiomrm.data.jsonl import Rejected, read_records
from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import ConfigError, DataError
from axiomrm.personalization.compile import compile_criteria
from axiomrm.personalization.profile import Clock, Profile, Purpose, moment, profile_of
from axiomrm.policy_opt.rewards.base import TurnScores
from axiomrm.policy_opt.rewards.judge import judged
from axiomrm.policy_opt.rewards.users import named_subject
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import ActiveRubric, Rubric

TOKEN = re.compile(r"[A-Za-z0-9._-]{8,64}")
USES: tuple[Purpose, ...] = ("judging", "policy_training")
"""What a slot value must be allowed for, beyond criteria, to shape a reward."""
DECAY = 0.95
FLOOR = 0.05
"""Least spread a reward is divided by, in reward units."""
CLIP = 3.0


@dataclass
class Scale:
    """Running mean and spread of one user's rewards of one kind."""

    mean: float = math.nan
    std: float = math.nan

    def after(self, values: Sequence[float]) -> "Scale":
        """The scale once a batch is taken in."""
        if not values:
            return self
        mean, std = float(np.mean(values)), float(np.std(values)) if len(values) > 1 else math.nan
        return Scale(_blend(self.mean, mean), _blend(self.std, std))

    def of(self, value: float) -> float:
        """``value`` in standard deviations of its user; NaN while the user has no scale."""
        if math.isnan(self.std):
            return math.nan
        return float(np.clip((value - self.mean) / max(self.std, FLOOR), -CLIP, CLIP))


class PersonalReward:
    """Asks a judge for each user's own rubric."""

    def __init__(
        self,
        reward_model: RewardModel,
        rubric: Rubric,
        profiles: Mapping[str, Profile],
        *,
        clock: Clock = moment,
    ) -> None:
        """Prepare.

        Args:
            reward_model: the judge.
            rubric: with personal templates.
            profiles: token → profile; only values that may serve criteria, judging and policy training are
                read, and only until they end.
            clock: gives the time, with a zone; by default the real one.

        Raises:
            ConfigError: a token is not opaque (8 to 64 letters, digits, ``. _ -``), or there is none.
        """
        bad = [token for token in profiles if not TOKEN.fullmatch(token)]
        if bad or not profiles:
            raise ConfigError(
                f"personal reward: {len(bad)} of {len(profiles)} subjects are no opaque tokens of 8 to 64 "
                "letters, digits, '.', '_', '-'; use random ids, never names or addresses"
            )
        self.reward_model, self.rubric = reward_model, rubric
        self._profiles, self._clock = dict(profiles), clock
        self._scales: dict[str, dict[str, Scale]] = {}
        self._compiled: dict[tuple[str, str], tuple[ActiveRubric, datetime | None]] = {}

    def __call__(self, trajectories: Sequence[Trajectory]) -> list[TurnScores]:
        """One answer a trajectory; missing where nobody, or a stranger, is named."""
        known = [t for t in trajectories if subject_of(t) in self._profiles]
        raw = judged(self.reward_model, known, self._active, "both") if known else []
        tokens = [subject_of(t) for t in known]
        scales = self._take_in(tokens, raw)
        answers = iter(_scaled(s, scales[token]) for s, token in zip(raw, tokens, strict=True))
        return [
            next(answers) if subject_of(t) in self._profiles else _absent(t, self.rubric.hash)
            for t in trajectories
        ]

    def _active(self, trajectory: Trajectory) -> ActiveRubric:
        token, features = subject_of(trajectory), trajectory.task.features
        key, now = (token, repr(sorted(features.items()))), moment(self._clock())
        active, ends = self._compiled.get(key, (None, None))
        if active is None or (ends is not None and ends <= now):
            view = self._profiles[token].view(also=USES, now=now)
            active = compile_criteria(view, self.rubric, features).active
            self._compiled[key] = active, view.ends
        return active

    def _take_in(self, tokens: Sequence[str], raw: Sequence[TurnScores]) -> dict[str, dict[str, Scale]]:
        """Scales to use for this batch; the memory moves on to those after it."""
        used: dict[str, dict[str, Scale]] = {}
        for token in sorted(set(tokens)):
            mine = [s for s, owner in zip(raw, tokens, strict=True) if owner == token]
            values = {
                "turn": [r for s in mine for r in s.turns if not math.isnan(r)],
                "trajectory": [s.trajectory for s in mine if not math.isnan(s.trajectory)],
            }
            before = self._scales.get(token, {"turn": Scale(), "trajectory": Scale()})
            after = {kind: scale.after(values[kind]) for kind, scale in before.items()}
            used[token] = {k: s if not math.isnan(s.std) else after[k] for k, s in before.items()}
            self._scales[token] = after
        return used

    def forget(self, subject: str) -> None:
        """Consent withdrawn: the user's profile and scale are gone; their rollouts have no reward here."""
        self._profiles.pop(subject, None)
        self._scales.pop(subject, None)
        self._compiled = {key: kept for key, kept in self._compiled.items() if key[0] != subject}

    def state_dict(self) -> dict[str, Any]:
        """Scales by token."""
        return {
            token: {kind: [scale.mean, scale.std] for kind, scale in scales.items()}
            for token, scales in self._scales.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The inverse of ``state_dict``; a subject without a profile any more is not taken back."""
        self._scales = {
            token: {kind: Scale(*values) for kind, values in scales.items()}
            for token, scales in state.items()
            if token in self._profiles
        }


def read_profiles(path: str | Path) -> tuple[dict[str, Profile], list[Rejected]]:
    """Profiles of a JSONL file: ``{"subject": token, "slots": {…}, "policy_training": true}`` a line.

    A line whose ``policy_training`` is not ``true``, or that refuses ``criteria_generation`` or ``judging``,
    has no consent. A subject with such a line is not used, whatever their other lines say and in which order.

    Returns:
        Profiles by token, and the lines that were not used with file, line and reason. A reason repeats
        nothing that could be about a person.

    Raises:
        DataError: there is no such file, or no line can be used; names the first.
    """
    profiles: dict[str, tuple[int, Profile]] = {}
    refused: dict[str, int] = {}
    rejected: list[Rejected] = []
    for item in read_records(path):
        if isinstance(item, Rejected):
            rejected.append(_quoting_nothing(item))
            continue
        lacking = _without_consent(item.value)
        if lacking:
            refused.setdefault(str(item.value.get("subject")), item.line)
        try:
            token = _token(item.value)
            if lacking:
                raise DataError(f"{lacking} is not true: no consent to train on this profile")
            if token in profiles:
                raise DataError(f"subject stands twice: first in line {profiles[token][0]}")
            profiles[token] = item.line, _profile(token, item.value)
        except (DataError, ConfigError) as error:
            rejected.append(Rejected(str(path), item.line, str(error)))
    for token in profiles.keys() & refused.keys():
        line, _ = profiles.pop(token)
        told = f"not used: line {refused[token]}, of the same subject, has no consent to train"
        rejected.append(Rejected(str(path), line, told))
    rejected.sort(key=lambda item: item.line)
    if not profiles:
        first = f"; first rejected: {rejected[0]}" if rejected else ""
        raise DataError(f"{path}: no usable profile among {len(rejected)} lines{first}")
    return {token: profile for token, (_, profile) in profiles.items()}, rejected


def subject_of(trajectory: Trajectory) -> str:
    """The user's token; empty where nobody is named."""
    return named_subject(trajectory.task.features) or ""


_SAFE = ("not valid JSON:", "not UTF-8:", "expected a JSON object")
"""How reasons of the reader begin that quote nothing of a line."""


def _quoting_nothing(item: Rejected) -> Rejected:
    told = item.reason if item.reason.startswith(_SAFE) else "not read; the reason could quote it"
    return item._replace(reason=told)


def _without_consent(row: Mapping[str, Any]) -> str:
    """The first purpose that a line does not allow; empty: it allows all that a reward needs."""
    asked: tuple[Purpose, ...] = ("criteria_generation", *USES)
    return next((p for p in asked if row.get(p, p != "policy_training") is not True), "")


def _token(row: Mapping[str, Any]) -> str:
    token = row.get("subject")
    if not isinstance(token, str) or not TOKEN.fullmatch(token):
        raise DataError("subject: expected an opaque token of 8 to 64 letters, digits, '.', '_', '-'")
    return token


def _profile(token: str, row: Mapping[str, Any]) -> Profile:
    slots = row.get("slots")
    if not isinstance(slots, dict):
        raise DataError("slots: expected an object of slot to value")
    values = {key: tuple(v) if isinstance(v, list) else v for key, v in slots.items()}
    return profile_of(token, values, purposes=("criteria_generation", *USES))


def _scaled(scores: TurnScores, scales: Mapping[str, Scale]) -> TurnScores:
    turns = [scales["turn"].of(value) for value in scores.turns]
    reasons = [
        reason or ("cannot_assess:the user has no scale yet" if math.isnan(value) else None)
        for value, reason in zip(turns, scores.reasons, strict=True)
    ]
    whole = scales["trajectory"].of(scores.trajectory)
    return replace(scores, turns=turns, reasons=reasons, trajectory=whole, parts=[], critiques=[])


def _absent(trajectory: Trajectory, rubric_hash: str) -> TurnScores:
    n = len(trajectory.turns)
    return TurnScores([math.nan] * n, ["cannot_assess:no profile"] * n, "personal", rubric_hash)


def _blend(old: float, new: float) -> float:
    if math.isnan(old) or math.isnan(new):
        return new if math.isnan(old) else old
    return DECAY * old + (1 - DECAY) * new
