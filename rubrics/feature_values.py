"""Facts of the task and of the prefix, checked against their declaration."""

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import DataError
from axiomrm.rubrics.expr import Expr, Value, names_of
from axiomrm.rubrics.model import Feature, TurnFeature
from axiomrm.rubrics.probes import PROBES


def feature_values(declared: Mapping[str, Feature], given: Mapping[str, Any], task: str) -> dict[str, Value]:
    """Value of each declared feature; what data libraries fill in for absent keys (``None``, NaN) is missing.

    Raises:
        DataError: missing without default, or a value that does not fit; names task and feature.
    """
    where = f"task {task!r}" if task else "task"
    out: dict[str, Value] = {}
    for name, spec in declared.items():
        value = _present(given.get(name), spec.default)
        if value is None:
            lacks = f": found {given[name]!r}, and it" if name in given else " is missing and"
            raise DataError(f"{where}: feature {name!r}{lacks} has no default; accepted: {accepted(spec)}")
        if not fits(value, spec):
            raise DataError(f"{where}: feature {name!r} is {value!r}; accepted: {accepted(spec)}")
        out[name] = value
    return out


def turn_values(
    declared: Mapping[str, TurnFeature], conditions: Iterable[Expr], prefix: Trajectory, task: str
) -> dict[str, Value]:
    """Value of each turn feature that ``conditions`` mention; counts saturate at the ends of their range.

    Raises:
        DataError: the probe finds no record and there is no default, or the value does not fit.
    """
    where = f"task {task!r}" if task else "prefix"
    used = {n for c in conditions for n in names_of(c)}
    out: dict[str, Value] = {}
    for name, spec in declared.items():
        if name not in used:
            continue
        value = _present(PROBES[spec.probe].measure(prefix, None, spec.args), spec.default)
        if value is None:
            raise DataError(
                f"{where}: turn feature {name!r}: probe {spec.probe!r} finds no record before this turn; "
                "record it in the environment or give the feature a default"
            )
        if spec.type == "int" and spec.range is not None and _finite(value):
            value = min(max(int(value), spec.range[0]), spec.range[1])
        if not fits(value, spec):
            raise DataError(f"{where}: turn feature {name!r} is {value!r}; accepted: {accepted(spec)}")
        out[name] = value
    return out


def fits(value: Any, spec: Feature | TurnFeature) -> bool:
    """Whether ``value`` has the declared type and lies in the declared domain."""
    if spec.type == "bool":
        return isinstance(value, bool)
    if spec.type == "enum":
        return isinstance(value, str) and value in spec.values
    if isinstance(value, bool) or not _finite(value) or value != int(value):
        return False
    return spec.range is None or spec.range[0] <= value <= spec.range[1]


def _present(value: Any, default: Any) -> Any:
    """``value``, or the default where it is missing; a default is never NaN (E106)."""
    missing = value is None or (isinstance(value, float | Decimal) and math.isnan(value))
    return default if missing else value


def _finite(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, float | Decimal) and math.isfinite(value))


def accepted(spec: Feature | TurnFeature) -> str:
    """The domain in words."""
    if spec.type == "bool":
        return "true or false"
    if spec.type == "enum":
        return ", ".join(spec.values)
    return f"whole number in {list(spec.range)}" if spec.range is not None else "whole number"
