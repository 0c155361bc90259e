"""What the rows of judge_throughput say: processor seconds a valid verdict, side against side."""

from typing import Any

import numpy as np

from axiomrm.eval.bootstrap import Array, bootstrap

Row = dict[str, Any]
OURS = ("ours", "vllm", "http")


def keep(row: Row, rows: list[Row]) -> None:
    """Add a row unless its cost is none: then a process of the run ended and took its seconds with it."""
    if _number(row, "cpu_s") > 0:
        rows.append(row)
    else:
        print(f"left out: {row['cpu_s']} processor seconds; a process ended during it", flush=True)


def compared(rows: list[Row], sides: tuple[str, ...]) -> list[Row]:
    """For each mode and number of criteria, every side against each of ours."""
    tables: list[Row] = []
    for mode, count in sorted({(r["mode"], r["criteria"]) for r in rows}):
        here: dict[str, dict[int, Row]] = {}
        for row in rows:
            if (row["mode"], row["criteria"]) == (mode, count):
                here.setdefault(row["side"], {})[row["conversation"]] = row
        for ours in OURS:
            for other in sides:
                if other != ours and ours in here and other in here:
                    table = against(here[ours], here[other], tokens=(ours, other) == ("ours", "first"))
                    tables.append({"mode": mode, "criteria": count, "ours": ours, "other": other, **table})
    return tables


def against(ours: dict[int, Row], other: dict[int, Row], *, tokens: bool) -> Row:
    """One side against another on the conversations that both judged.

    A conversation without a valid verdict on either side has no cost a verdict: it is left out of the ratio
    and counted, like its failures. Where none is left there is no ratio, and the table says why.

    Args:
        ours: rows by conversation.
        other: those of the other side.
        tokens: whether both count tokens and differ in nothing but the order of their prompts. ``token_ratio`` is
            then of the tokens read, ``fed_ratio`` of all that pass through the model, read or written.
    """
    both = sorted(ours.keys() & other.keys())
    counted = [i for i in both if _number(ours[i], "valid") and _number(other[i], "valid")]
    table: Row = {"conversations": len(counted), "left_out": len(both) - len(counted)}
    for name, side in (("failed_ours", ours), ("failed_other", other)):
        asked = sum(_number(side[i], "asked") for i in both)
        table[name] = round(1 - sum(_number(side[i], "valid") for i in both) / asked, 4) if asked else None
    if not counted:
        return table | {"speedup": None, "why": "no conversation has a valid verdict on both sides"}

    def cost(side: dict[int, Row], drawn: list[int]) -> float:
        return sum(_number(side[i], "cpu_s") for i in drawn) / sum(_number(side[i], "valid") for i in drawn)

    def speedup(drawn: Array) -> float:
        picked = [counted[int(i)] for i in drawn]
        return cost(other, picked) / cost(ours, picked)

    found = bootstrap(np.arange(len(counted)), speedup, unit="conversations")
    table |= {"speedup": found.value, "low": found.low, "high": found.high}
    if tokens and found.value is not None:
        read, written = ("prompt_tokens",), ("prompt_tokens", "completion_tokens")
        for name, kinds in (("token_ratio", read), ("fed_ratio", written)):
            spent = [sum(_number(side[i], k) for i in counted for k in kinds) for side in (ours, other)]
            table[name] = round(spent[1] / spent[0], 3)
            table[f"of_{name}"] = round(found.value * spent[0] / spent[1], 3)
    return table


def _number(row: Row, name: str) -> float:
    """A number that the row must have; an absent one is no 0."""
    return float(row[name])
