"""Judge examples out of labelled rollouts: the oracle's answers, its notes, and what cannot be told.

A rollout carries ``metadata["labels"]``: for each turn, criterion id → ``{"value": bool, "note": str}``
(see ``axiomrm.data.synthesis.rollouts``).
"""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from axiomrm.data.synthesis.examples import JudgeExample, by_trajectory
from axiomrm.data.trajectory import Trajectory

GOAL = "sd.goal"
GOAL_ASK = "Did the user get what was asked for?"


def turn_examples(
    trajectories: Iterable[Trajectory], asks: Mapping[str, str], tags: Mapping[str, str] | None = None
) -> list[JudgeExample]:
    """One example for every labelled (turn, criterion) among ``asks``; notes name the turn they speak of."""
    found = []
    for trajectory in trajectories:
        for turn, labels in enumerate(trajectory.metadata.get("labels", ())):
            for criterion, label in labels.items():
                if criterion not in asks:
                    continue
                found.append(
                    JudgeExample(
                        trajectory=trajectory,
                        turn=turn,
                        criterion_id=criterion,
                        ask=asks[criterion],
                        label="Y" if label["value"] else "N",
                        notes=f"t{turn + 1}: {label['note']}",
                        quotes=((turn, label["quote"]),) if label.get("quote") else (),
                        source="oracle",
                        tags=((tags or {}).get(criterion, "other"),),
                    )
                )
    return found


def goal_examples(trajectories: Iterable[Trajectory]) -> list[JudgeExample]:
    """Whole dialogues with the verifier's outcome as the answer; a missing outcome makes no example."""
    found = []
    for trajectory in trajectories:
        if trajectory.outcome is None or trajectory.outcome.score is None:
            continue
        faults = [i for i, v in enumerate(trajectory.metadata.get("oracle", ())) if (v or 0) < 0]
        reached = trajectory.outcome.score >= 1
        note = (
            "every request was served"
            if reached
            else f"t{faults[-1] + 1} went wrong"
            if faults
            else "it stopped early"
        )
        found.append(
            JudgeExample(
                trajectory,
                None,
                GOAL,
                GOAL_ASK,
                "Y" if reached else "N",
                note,
                source="verifier",
                tags=("relational",),
            )
        )
    return found


def missing_evidence(examples: Sequence[JudgeExample], count: int, rng: random.Random) -> list[JudgeExample]:
    """Twins of relational turn examples without anything before the judged turn: the right answer is X."""
    relational = [e for e in examples if "relational" in e.tags and e.turn]
    return [_alone(e) for e in rng.sample(relational, min(count, len(relational)))]


def _alone(example: JudgeExample) -> JudgeExample:
    trajectory, turn = example.trajectory, example.trajectory.turns[example.turn or 0]
    kept = trajectory.model_copy(
        update={
            "messages": trajectory.messages[turn.start : turn.end],
            "id": f"{trajectory.id}/alone{turn.index}",
            "turn_rewards": None,
            "metadata": {},
        }
    )
    return replace(
        example,
        trajectory=kept,
        turn=0,
        label="X",
        notes="t1: what came before is not shown",
        quotes=(),
        source="elided",
    )


def balanced(
    examples: Sequence[JudgeExample], per_criterion: int, rng: random.Random, ratio: float = 1.3
) -> list[JudgeExample]:
    """Up to ``per_criterion`` examples of each, the commoner label up to ``ratio`` times the rarer.

    The result is in random order. A criterion of which only one label occurs is left out.
    """
    cells: dict[str, dict[str, list[JudgeExample]]] = defaultdict(lambda: defaultdict(list))
    for example in examples:
        cells[example.criterion_id][example.label].append(example)
    kept: list[JudgeExample] = []
    for labels in cells.values():
        if len(labels) < 2:
            continue
        rarest = min(len(group) for group in labels.values())
        share = min(int(rarest * ratio), per_criterion // 2)
        for group in labels.values():
            kept += rng.sample(group, min(len(group), max(share, min(rarest, per_criterion - share))))
    rng.shuffle(kept)
    return kept


def dense(
    examples: Sequence[JudgeExample], per_criterion: int, rng: random.Random, ratio: float = 1.3
) -> list[JudgeExample]:
    """A balanced choice that asks many questions about few dialogues, since those share one reading of it.

    Dialogues are taken in random order; each gives all its rarer answers, and commoner ones as long as
    their number stays within ``ratio`` times the rarer. At most ``per_criterion`` examples of a criterion.
    """
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for example in examples:
        counts[example.criterion_id][example.label] += 1
    rarer = {c: min(n, key=lambda label: n[label]) for c, n in counts.items() if len(n) > 1}
    groups = list(by_trajectory(e for e in examples if e.criterion_id in rarer).values())
    rng.shuffle(groups)
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    kept: list[JudgeExample] = []
    for group in groups:
        rng.shuffle(group)
        for example in sorted(group, key=lambda e: e.label != rarer[e.criterion_id]):
            mine, rare = taken[example.criterion_id], rarer[example.criterion_id]
            room = example.label == rare or mine[example.label] < ratio * mine[rare]
            if room and mine.total() < per_criterion:
                mine[example.label] += 1
                kept.append(example)
    return kept


def whole_dialogues(examples: Sequence[JudgeExample], count: int, rng: random.Random) -> list[JudgeExample]:
    """At most ``count`` examples: all of one random dialogue, then all of another; they share one reading."""
    groups = list(by_trajectory(examples).values())
    rng.shuffle(groups)
    return [example for group in groups for example in group][:count]
