"""What an environment told about an episode, as files, judges and rules read it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from axiomrm.data.synthesis.rollouts import plain_labels
from axiomrm.policy_opt.rollouts.state_keys import plain_key

INFO_KEYS = (
    "state_key",
    "outcome",
    "parts",
    "oracle_turn",
    "progress",
    "error_kind",
    "metrics",
    "assessment",
    "labels",
)
"""What of an environment's info is kept in ``trajectory.metadata["turns"]``: plain values only."""
EXPECTED = "expected_tools"
JSON: TypeAdapter[Any] = TypeAdapter(Any)


def plain_info(info: Mapping[str, Any]) -> dict[str, Any]:
    """The part of an environment's info that belongs into a file."""
    kept = {key: info[key] for key in INFO_KEYS if info.get(key) is not None}
    if "labels" in kept:
        kept["labels"] = plain_labels(kept["labels"])
    if "parts" in kept:
        kept["parts"] = {str(name): part for name, part in kept["parts"].items()}
    return {key: (plain_key if key == "state_key" else plain_value)(value) for key, value in kept.items()}


def plain_value(value: Any) -> Any:
    """``value`` as JSON can hold it: NumPy as Python, a sequence as a list, anything else as its ``repr``."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain_value(item) for item in value]
    try:
        JSON.dump_json(value)
    except ValueError:  # as pydantic says it
        return repr(value)
    return value


def outcome_metrics(reset: Mapping[str, Any], infos: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The last turn's metrics, with ``expected_tools`` as programmatic rules read it: one entry a turn.

    An environment tells after each turn which tools are right *next*; a rule asks which were right *at* a
    turn. ``None`` where it did not tell.
    """
    metrics = infos[-1].get("metrics") if infos else None
    found = dict(metrics) if isinstance(metrics, Mapping) else {}
    told = [info.get("metrics") or {} for info in (reset, *infos)][: len(infos)]
    table = [metrics.get(EXPECTED) if isinstance(metrics, Mapping) else None for metrics in told]
    return found | ({EXPECTED: table} if any(entry is not None for entry in table) else {})
