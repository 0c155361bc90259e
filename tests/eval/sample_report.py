"""A filled report for tests, and ``python sample_report.py OUT.html`` to look at it."""

import sys
from pathlib import Path

import numpy as np

from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.eval.criterion import CriterionItem, CriterionReport, Kind, criterion_report
from axiomrm.eval.curves import Point, rollouts_to
from axiomrm.eval.estimate import Estimate, wilson
from axiomrm.eval.personal import UserPair, by_subset, personal_metrics
from axiomrm.eval.report import write_report
from axiomrm.eval.report_data import (
    Curve,
    CurvePoint,
    Headline,
    JudgeRow,
    ReportData,
    Transcript,
    TranscriptMessage,
    TranscriptTurn,
    TurnVerdict,
)
from axiomrm.eval.worth import Arm, Cost, worth_table

CRITERIA: tuple[tuple[str, Kind], ...] = (
    ("asks_identity_first", "surface"),
    ("no_promise", "surface"),
    ("reports_tool_result", "relational"),
    ("uses_given_order_number", "relational"),
)


def criteria(skill: dict[Kind, float], rng: np.random.Generator) -> CriterionReport:
    items = []
    for name, kind in CRITERIA:
        for i in range(220):
            gold = bool(rng.random() < 0.42)
            right = rng.random() < skill[kind]
            verdict = Scored(
                value=float(np.clip((0.8 if gold == right else 0.2) + rng.normal(0, 0.08), 0, 1))
            )
            items.append(
                CriterionItem(name, gold, CannotAssess() if i % 60 == 59 else verdict, kind, f"d{i}")
            )
    return criterion_report([items], draws=400)


def users(rng: np.random.Generator) -> list[UserPair]:
    def draw(rate: float) -> float:
        return float(rng.random() < rate)

    return [
        UserPair(f"u{u}", draw(0.78), draw(0.61), draw(0.6), equal_quality=i % 3 == 0, seen=u % 2 == 0)
        for u in range(40)
        for i in range(24)
    ]


def curve(label: str, ends: tuple[float, float], rng: np.random.Generator, *, main: bool = False) -> Curve:
    rates = ends[0] + (ends[1] - ends[0]) * np.linspace(0, 1, 9) ** 0.8
    counts = rng.binomial(64, rates)
    points = [CurvePoint(rollouts=80 * i, success=wilson(float(c), 64)) for i, c in enumerate(counts)]
    reached = rollouts_to([[Point(p.rollouts, p.success.value) for p in points]])
    return Curve(label=label, points=tuple(points), reached=reached, main=main)


def transcript(number: int) -> Transcript:
    turns = (
        TranscriptTurn(
            messages=(
                TranscriptMessage(role="assistant", content="I can help. Which order number is it?"),
                TranscriptMessage(role="user", content="It is A-1042 <b>please</b> & hurry"),
            ),
            verdicts=(
                TurnVerdict(
                    criterion="asks_identity_first",
                    verdict=Scored(value=0.22, critique="t1 asks for the order, not for the name."),
                    oracle=False,
                ),
                TurnVerdict(
                    criterion="promises_too_much", verdict=Scored(value=0.08), penalty=True, oracle=False
                ),
            ),
            reward=-0.4,
        ),
        TranscriptTurn(
            messages=(
                TranscriptMessage(role="assistant", calls=("find_order(order_id='A-1042')",)),
                TranscriptMessage(role="tool", content='{"status": "shipped", "eta": "3 days"}'),
            ),
            verdicts=(
                TurnVerdict(criterion="uses_given_order_number", verdict=Scored(value=0.91), oracle=True),
                TurnVerdict(
                    criterion="reports_tool_result", verdict=CannotAssess(reason="nothing was reported yet")
                ),
            ),
            reward=0.8,
        ),
        TranscriptTurn(
            messages=(TranscriptMessage(role="assistant", content="Your order has arrived. Anything else?"),),
            verdicts=(
                TurnVerdict(
                    criterion="reports_tool_result",
                    verdict=Scored(value=0.74, critique="states the delivery"),
                    oracle=False,
                ),
                TurnVerdict(criterion="no_promise", verdict=Failed(kind="truncated", detail="40 tokens")),
            ),
        ),
    )
    opening = (TranscriptMessage(role="user", content="Hello, where is my parcel?"),)
    return Transcript(
        title=f"track_order · task h{number:03d}",
        policy="process + replay",
        why="judge and outcome disagree" if number == 0 else "random",
        outcome=(1.0, 0.0, None)[number % 3],
        opening=opening,
        turns=turns,
    )


def filled() -> ReportData:
    rng = np.random.default_rng(0)
    base, rubric = (
        criteria({"surface": 0.53, "relational": 0.5, "other": 0.5}, rng),
        criteria({"surface": 0.94, "relational": 0.8, "other": 0.5}, rng),
    )
    pairs = [users(rng)]
    personal = personal_metrics(pairs, draws=400)

    def outcomes(rate: float) -> tuple[dict[str, tuple[float | None, ...]], ...]:
        return ({f"t{i}": (float(rng.random() < rate),) for i in range(200)},)

    arms = [
        Arm(name="cold", label="Cold start", role="cold_start", outcomes=outcomes(0.22)),
        Arm(
            name="bok",
            label="Best of 8 + SFT",
            role="best_of_k",
            outcomes=outcomes(0.38),
            cost=Cost(rollouts=640, generated_tokens=98_211, trained_tokens=31_000, seconds=71.2),
        ),
        Arm(
            name="rl",
            label="Process + replay",
            role="rl",
            outcomes=outcomes(0.57),
            cost=Cost(
                rollouts=640, generated_tokens=101_377, trained_tokens=402_000, judge_calls=4102, seconds=88.9
            ),
        ),
    ]
    worth = worth_table(arms, draws=400)
    surface, relational = rubric.balanced_accuracy["surface"], rubric.balanced_accuracy["relational"]
    return ReportData(
        run="quickstart",
        summary="The judge reads surface criteria well; training lifts success from about 22 % to 57 %.",
        headlines=(
            Headline(
                label="Held-out success of the policy", estimate=worth.rows[2].success, note="cold start 22 %"
            ),
            Headline(
                label="RL over best-of-K",
                estimate=worth.rl_over_best_of_k,
                signed=True,
                note="equal generated tokens",
            ),
            Headline(label="Judge, surface criteria", estimate=surface),
            Headline(label="Judge, relational criteria", estimate=relational),
            Headline(
                label="Gain from the user's profile",
                estimate=personal.gain,
                signed=True,
                note="swapped: +0.4 points",
            ),
        ),
        judges=(
            JudgeRow(
                label="Untrained base",
                note="same prompts",
                pair_accuracy=wilson(203, 400),
                surface=base.balanced_accuracy["surface"],
                relational=base.balanced_accuracy["relational"],
            ),
            JudgeRow(label="Bradley–Terry", note="scalar head, same pairs", pair_accuracy=wilson(297, 400)),
            JudgeRow(label="General stage", pair_accuracy=wilson(311, 400, missing=6)),
            JudgeRow(
                label="Rubric stage",
                pair_accuracy=wilson(318, 400),
                surface=surface,
                relational=relational,
                personal=personal.generic,
            ),
            JudgeRow(
                label="Personal stage",
                pair_accuracy=wilson(17, 22),
                surface=surface,
                relational=relational,
                personal=personal.personal,
            ),
        ),
        criteria={"base": base, "rubric stage": rubric},
        personal=personal,
        personal_subsets=by_subset(pairs, draws=400),
        curves=(
            curve("process + replay", (0.2, 0.6), rng, main=True),
            curve("outcome GRPO", (0.2, 0.42), rng),
            curve("best of 8 + SFT", (0.2, 0.4), rng),
        ),
        behaviour={
            "Cold start": {
                "turns": Estimate(value=7.4, low=7.0, high=7.9, n=200),
                "redundant_step_rate": wilson(40, 200),
                "error_recovery": Estimate(value=None),
            },
            "Process + replay": {
                "turns": Estimate(value=6.1, low=5.8, high=6.3, n=200),
                "redundant_step_rate": wilson(11, 200),
                "error_recovery": wilson(31, 40),
            },
        },
        worth=worth,
        transcripts=tuple(transcript(i) for i in range(3)),
        data={
            "train tasks": "1,200",
            "distinct dialogues after masking": "1,431",
            "kept by the success filter": "71 %",
        },
        notes=("Policy and judge share a 1.9 M base; its effects say nothing about large models.",),
        provenance={
            "seed": "0",
            "code": "axiomrm 0.1.0 · 3f9a…",
            "base": "nano · 8c1b…",
            "torch": "2.13.0",
            "command": "axiomrm run configs/quickstart.yaml",
        },
    )


if __name__ == "__main__":
    print(write_report(filled(), Path(sys.argv[1])))
