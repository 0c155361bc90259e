"""A reward from the criteria of each user's own profile, on that user's own scale.

A user is an opaque token in ``task.features["subject"]``; nothing here knows more than the token and the
slots that the user allowed for training. Users use a scale differently, so raw rewards of two users are
never pooled: each is centred and divided by running statistics of its own user, as they were before the
batch. A user's first batch has none yet and uses its own; one single value has no scale and is missing.

A critique may quote the criteria, and with them the profile: none leaves this source.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from axiomrm.data.jsonl import Rejected, read_records
from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import ConfigError, DataError
from axiomrm.personalization.compile import compile_criteria
from axiomrm.personalization.profile import Profile, profile_of
from axiomrm.policy_opt.rewards.base import TurnScores
from axiomrm.policy_opt.rewards.judge import judged
from axiomrm.rm.reward_model import RewardModel
from axiomrm.rubrics import ActiveRubric, Rubric

TOKEN = re.compile(r"[A-Za-z0-9._-]{8,64}")
PURPOSE = "policy_training"
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

    def __init__(self, reward_model: RewardModel, rubric: Rubric, profiles: Mapping[str, Profile]) -> None:
        """Prepare.

        Args:
            reward_model: the judge.
            rubric: with personal templates.
            profiles: token → profile; only values that may serve policy training are read.

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
        self._profiles = {token: _for_training(profile) for token, profile in profiles.items()}
        self._scales: dict[str, dict[str, Scale]] = {}
        self._compiled: dict[tuple[str, str], ActiveRubric] = {}

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
        key = (token, repr(sorted(features.items())))
        if key not in self._compiled:
            view = self._profiles[token].view()
            self._compiled[key] = compile_criteria(view, self.rubric, features).active
        return self._compiled[key]

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
        self._compiled = {key: active for key, active in self._compiled.items() if key[0] != subject}

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

    Returns:
        Profiles by token, and the lines that were not used with file, line and reason; a line whose
        ``policy_training`` is not ``true`` has no consent and is among them.

    Raises:
        DataError: there is no such file, or no line can be used; names the first.
    """
    profiles: dict[str, Profile] = {}
    rejected: list[Rejected] = []
    for item in read_records(path):
        if isinstance(item, Rejected):
            rejected.append(item)
            continue
        try:
            token, profile = _profile(item.value)
            if token in profiles:
                raise DataError("subject stands twice")
        except (DataError, ConfigError) as error:
            rejected.append(Rejected(str(path), item.line, str(error)))
            continue
        profiles[token] = profile
    if not profiles:
        first = f"; first rejected: {rejected[0]}" if rejected else ""
        raise DataError(f"{path}: no usable profile among {len(rejected)} lines{first}")
    return profiles, rejected


def subject_of(trajectory: Trajectory) -> str:
    """The user's token; empty where nobody is named."""
    return str(trajectory.task.features.get("subject") or "")


def _profile(row: Mapping[str, Any]) -> tuple[str, Profile]:
    token, slots = row.get("subject"), row.get("slots")
    if not isinstance(token, str) or not TOKEN.fullmatch(token):
        raise DataError("subject: expected an opaque token of 8 to 64 letters, digits, '.', '_', '-'")
    if not isinstance(slots, dict):
        raise DataError("slots: expected an object of slot to value")
    if row.get("policy_training") is not True:
        raise DataError("policy_training is not true: no consent to train on this profile")
    profile = profile_of(token, {key: tuple(v) if isinstance(v, list) else v for key, v in slots.items()})
    allowed = tuple(v.model_copy(update={"purposes": (*v.purposes, PURPOSE)}) for v in profile.values)
    return token, profile.model_copy(update={"values": allowed})


def _for_training(profile: Profile) -> Profile:
    kept = tuple(value for value in profile.values if PURPOSE in value.purposes)
    return profile.model_copy(update={"values": kept})


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
