"""The checks that every rubric must pass to be loaded; ``lint.py`` runs them and the searches."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from axiomrm.rubrics import lint_ids, lint_types, lint_values
from axiomrm.rubrics.findings import Finding

if TYPE_CHECKING:
    from axiomrm.rubrics.rubric import Rubric

Check = Callable[["Rubric"], Iterator[Finding]]

STRUCTURAL: tuple[Check, ...] = (
    lint_ids.e101_unknown_names,
    lint_ids.e102_ids,
    lint_ids.e103_cycles,
    lint_ids.e104_unfounded,
    lint_types.e106_conditions,
    lint_values.e100_policy,
    lint_values.e130_weights,
    lint_values.e132_budget,
    lint_values.e140_caps,
    lint_values.e141_anchors,
    lint_values.e142_turn_level,
    lint_values.e143_arguments,
)


def structural(rubric: "Rubric") -> list[Finding]:
    """Findings of all files of a rubric."""
    return [finding for part in rubric.parts for check in STRUCTURAL for finding in check(part)]
