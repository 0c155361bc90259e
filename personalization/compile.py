"""Profile → criteria: reviewed templates filled from allow-listed slots, by a pure function (PRIVACY.md 3).

The result depends on the rubric, the slot values that some template may read, the task's features, n_eff and
the user's weights, and on nothing else: that a sensitive attribute never reaches the reward is an equality of
``compiled_hash``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from axiomrm.errors import ConfigError
from axiomrm.personalization.profile import ProfileView
from axiomrm.personalization.weights import KAPPA, LAMBDA_MAX, STATED_WORTH, share
from axiomrm.rubrics.bind import ActiveRubric, Personal
from axiomrm.rubrics.rubric import Rubric


@dataclass(frozen=True)
class PersonalCriterion:
    """One question that a profile added."""

    id: str
    """Of its template."""
    ask: str
    weight: float
    """Final, after the share."""
    reads: tuple[str, ...]


@dataclass(frozen=True)
class PersonalRubric:
    """A rubric bound to a task for one user."""

    rubric: Rubric = field(repr=False)
    personal: Personal = field(repr=False)
    """What ``rubric.bind(features, personal=…)`` takes."""
    active: ActiveRubric = field(repr=False)
    """Generic and personal criteria with final weights."""
    criteria: tuple[PersonalCriterion, ...]
    n_eff: float
    share: float
    """λ; 0: the generic rubric, byte for byte."""
    left_out: tuple[str, ...] = ()
    """Templates without a value here, or whose condition does not hold."""

    @property
    def compiled_hash(self) -> str:
        """SHA-256 over criteria, weights, λ and features; no slot version, no subject."""
        return self.active.compiled_hash


def compile_criteria(
    view: ProfileView,
    rubric: Rubric,
    features: Mapping[str, Any],
    n_events: float = 0.0,
    *,
    weights: Mapping[str, float] | None = None,
    lambda_max: float = LAMBDA_MAX,
    kappa: float = KAPPA,
) -> PersonalRubric:
    """The criteria of one user for one task.

    Args:
        view: what the profile shows for criteria generation.
        rubric: with personal templates.
        features: the task's features.
        n_events: what the user's choices so far are worth (``event_evidence``); each confirmed stated slot
            that is active here adds 2, which gives n_eff.
        weights: template → the user's own weight (``learn_weights``); the template's by default.
        lambda_max: bound of the share; the rubric's ``personal_budget`` bounds it too.
        kappa: see ``share``.

    Raises:
        ConfigError: a template reads a slot that is not there or does not list it as a reader, a number is
            out of range, or the view was opened for another purpose.
        DataError: a feature is missing, or a slot value has no entry in a template's map.
    """
    if view.purpose != "criteria_generation":
        raise ConfigError(f"criteria need a view for 'criteria_generation', this one is for {view.purpose!r}")
    _check_templates(view, rubric)
    share(n_events, maximum=lambda_max, kappa=kappa)  # refuses its arguments before anything is compiled
    budget = min(rubric.policy.personal_budget, lambda_max)
    reads, used = _active_here(view, rubric, features, budget)
    n_eff = n_events + STATED_WORTH * sum(_stated(view, key, features) for key in used)
    kept = {name: weight for name, weight in sorted((weights or {}).items()) if name in reads}
    personal = Personal(used, share(n_eff, maximum=budget, kappa=kappa), weights=kept)
    active = rubric.bind(features, personal)
    criteria = tuple(
        PersonalCriterion(i.id, i.statement, i.weight, reads[i.id]) for i in active.items if i.personal
    )
    return PersonalRubric(rubric, personal, active, criteria, n_eff, active.share, _left_out(rubric, reads))


def _left_out(rubric: Rubric, reads: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(template.id for template in rubric.templates if template.id not in reads)


def _active_here(
    view: ProfileView, rubric: Rubric, features: Mapping[str, Any], budget: float
) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
    """The slots that each template with a criterion here reads, and the values of all these slots."""
    wanted = {key for t in rubric.templates for key in t.reads}
    slots = {k: v for k, v in view.read(features).items() if k in wanted}
    found = {i.id for i in rubric.bind(features, Personal(slots, budget)).items if i.personal}
    reads = {t.id: t.reads for t in rubric.templates if t.id in found}
    return reads, {key: slots[key] for key in sorted({key for keys in reads.values() for key in keys})}


def _check_templates(view: ProfileView, rubric: Rubric) -> None:
    for template in rubric.templates:
        if template.dimension == "value" or template.polarity != "reward":
            raise ConfigError(
                f"{rubric.id}: template {template.id!r} has dimension {template.dimension!r} and polarity "
                f"{template.polarity!r}; only form and content may be personal, as rewards (E153)"
            )
        for key in template.reads:
            if not view.registry.readable_by(key, template.id):
                slot = view.registry.slots.get(key)
                listed = ", ".join(slot.readers) or "nobody" if slot is not None else "not in the registry"
                raise ConfigError(
                    f"{rubric.id}: template {template.id!r} reads slot {key!r}, whose readers are: {listed}; "
                    "name the template in the registry after review, or drop the read"
                )


def _stated(view: ProfileView, key: str, features: Mapping[str, Any]) -> bool:
    value = view.value(key, features)
    return value is not None and value.source == "stated"
