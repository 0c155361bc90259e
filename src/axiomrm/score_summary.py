"""What a scoring run did, and the words for it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from axiomrm.data.verdict import Failed
from axiomrm.rm.judgement import Judgement, outcome
from axiomrm.rubrics import Rubric

INPUT_KINDS = frozenset({"context_overflow", "bad_input"})
"""Failures of the record and not of the judge."""
NOT_ASKED = "not asked (no model)"
"""Outcome of an item that needs a model where none was given."""


@dataclass
class Summary:
    """What a run did, resumed parts included."""

    asked_of_nobody: frozenset[str] = frozenset()
    """Items that need a model, where there is none."""
    records: int = 0
    scored: int = 0
    rejected: list[dict[str, Any]] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)
    """By outcome, of the conversations that were scored; rejected ones are counted apart."""
    rewards: list[float] = field(default_factory=list)
    coverage_sum: float = 0.0
    resumed: int = 0
    """Records that an earlier, killed run had judged."""
    judged: int = 0
    """Conversations judged by this run."""
    usage: dict[str, int] = field(default_factory=dict)
    """What the engine counted in this run: tokens, readings found in a cache."""
    seconds: float = 0.0

    @property
    def failure_share(self) -> float:
        """Failed verdicts over all that were asked for, without those whose input could not be read."""
        left_out = {NOT_ASKED, *(f"failed:{kind}" for kind in INPUT_KINDS)}
        counted = {kind: n for kind, n in self.verdicts.items() if kind not in left_out}
        failed = sum(n for kind, n in counted.items() if kind.startswith("failed:"))
        return failed / sum(counted.values()) if failed else 0.0

    @property
    def coverage(self) -> float | None:
        """Mean share of a conversation's applicable weight that was scored; ``None``: nothing was."""
        return self.coverage_sum / self.scored if self.scored else None

    def count(self, judgement: Judgement) -> None:
        """Add one judgement."""
        self.scored += 1
        self.coverage_sum += judgement.coverage
        self.rewards += [] if judgement.reward is None else [judgement.reward]
        for _, name, verdict in judgement.all_verdicts():
            unasked = isinstance(verdict, Failed) and name in self.asked_of_nobody
            self.verdicts[NOT_ASKED if unasked else outcome(verdict)] += 1

    def lines(self) -> Iterator[str]:
        """The summary in words, without places."""
        rate = self.judged / self.seconds if self.seconds else 0.0
        took = f"{self.seconds:.1f} s ({rate:.2f}/s)"
        again = f"; {self.resumed} records were judged before" if self.resumed else ""
        yield f"{self.scored} conversations of {self.records} records scored in {took}{again}"
        total = sum(self.verdicts.values())
        for kind, count in sorted(self.verdicts.items()):
            yield f"  verdicts {kind}: {count} ({count / total:.1%})"
        if total > self.verdicts[NOT_ASKED]:
            yield f"  failure share: {self.failure_share:.1%}"
        known = len(self.rewards)
        mean = f"mean {sum(self.rewards) / known:.3f}" if known else "no mean"
        coverage = "" if self.coverage is None else f"; mean coverage {self.coverage:.2f}"
        yield f"  rewards: {known} of {self.scored}, {mean}{coverage}"
        if any(self.usage.values()):
            yield "  usage: " + ", ".join(f"{name} {count}" for name, count in self.usage.items())


def items_for_a_model(rubric: Rubric) -> frozenset[str]:
    """Ids of the active items, gates included, that only a model can judge."""
    gates = {axiom.id for axiom in rubric.axioms if axiom.type != "premise" and axiom.detector.kind == "llm"}
    return frozenset(gates | {theorem.id for theorem in rubric.theorems if theorem.judge.kind == "llm"})
