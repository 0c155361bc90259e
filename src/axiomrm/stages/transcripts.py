"""Rollouts of the report that a person should read, with what the judge said of each turn."""

from collections.abc import Mapping, Sequence
from typing import Any

from axiomrm.data.openai_chat import to_trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.eval.report_data import Transcript, TranscriptMessage, TranscriptTurn, TurnVerdict
from axiomrm.policy_opt.envs.service_desk.criteria import STEP


def spot_check_rows(spot_checks: Mapping[str, Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The extreme of each reason in the last iteration of each arm, each rollout once with its reasons.

    Args:
        spot_checks: by arm, the rows of its ``spot_checks.jsonl``.
    """
    rows: list[dict[str, Any]] = []
    for arm, checks in spot_checks.items():
        last = max((check["iteration"] for check in checks), default=0)
        for check, reasons in _extremes([c for c in checks if c["iteration"] == last]):
            told = check["trajectory"]
            rewards, metadata = told.get("turn_rewards") or [], told.get("metadata", {})
            rows.append(
                {
                    "trajectory": told,
                    "rewards": rewards,
                    "reasons": metadata.get("turn_missing") or [None] * len(rewards),
                    "oracle": metadata.get("oracle") or [None] * len(rewards),
                    "critiques": metadata.get("turn_critiques") or [],
                    "advantages": metadata.get("turn_advantages") or [],
                    "policy": arm,
                    "why": f"iteration {last + 1}: {', '.join(reasons)}",
                }
            )
    return rows


def _extremes(checks: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], list[str]]]:
    """Of each reason the rollout in the first place, with all reasons it is first under."""
    places = [c.get("places") or {c["why"]: 1} for c in checks]  # a file of an older version has none
    first: dict[int, list[str]] = {}
    for why in dict.fromkeys(why for named in places for why in named):
        ranked = [i for i, named in enumerate(places) if why in named]
        first.setdefault(min(ranked, key=lambda i: places[i][why]), []).append(why)
    return [(checks[i], reasons) for i, reasons in first.items()]


def transcript(row: Mapping[str, Any], label: str) -> Transcript:
    """One rollout for the page.

    Args:
        row: ``trajectory``; one entry a turn in ``rewards`` (``None`` = missing), ``reasons`` and ``oracle``,
            and where they are known in ``critiques`` and ``advantages``; ``why`` it is shown.
        label: the policy's name on the page.
    """
    trajectory = to_trajectory(row["trajectory"])
    first = trajectory.turns[0].start if trajectory.turns else len(trajectory.messages)
    turns = []
    for turn in trajectory.turns:
        reward, oracle = row["rewards"][turn.index], row["oracle"][turn.index]
        verdict = _verdict(reward, row["reasons"][turn.index] or "")
        seen = None if not oracle else oracle > 0
        turns.append(
            TranscriptTurn(
                messages=tuple(map(_message, turn.messages)),
                verdicts=(TurnVerdict(criterion=STEP, verdict=verdict, oracle=seen),) if verdict else (),
                reward=reward,
                advantage=_at(row.get("advantages"), turn.index),
                critiques=_at(row.get("critiques"), turn.index) or {},
            )
        )
    return Transcript(
        title=trajectory.task_id,
        policy=label,
        why=row.get("why", ""),
        outcome=trajectory.outcome.score if trajectory.outcome else None,
        opening=tuple(map(_message, trajectory.messages[:first])),
        turns=tuple(turns),
    )


def _verdict(reward: float | None, reason: str) -> Verdict | None:
    """A turn's reward as a verdict; ``None``: nobody was asked, or the reward is on another scale."""
    if reward is not None:
        return Scored(value=reward) if 0 <= reward <= 1 else None
    kind, _, detail = reason.partition(":")
    if kind in ("", "not_asked"):
        return None
    if kind == "cannot_assess":
        return CannotAssess(reason=detail)
    return Failed(kind="no_verdict", detail=reason)


def _at(values: Sequence[Any] | None, index: int) -> Any:
    return values[index] if values and index < len(values) else None


def _message(message: Any) -> TranscriptMessage:
    calls = tuple(
        f"{c.name}({', '.join(f'{k}={v}' for k, v in c.arguments.items())})" for c in message.tool_calls
    )
    return TranscriptMessage(role=message.role, content=message.content, calls=calls)
