"""Stage ``report``: the measurements of one or several runs become one HTML page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from axiomrm.data.verdict import Verdict
from axiomrm.eval.criterion import CriterionItem, CriterionReport, criterion_report
from axiomrm.eval.curves import Point, rollouts_to
from axiomrm.eval.estimate import NOT_MEASURED, Estimate, wilson
from axiomrm.eval.personal import PersonalMetrics, UserPair, personal_metrics
from axiomrm.eval.policy import behaviour
from axiomrm.eval.preference import PairItem, preference_metrics
from axiomrm.eval.report import write_report
from axiomrm.eval.report_data import (
    Curve,
    CurvePoint,
    Headline,
    JudgeRow,
    ReportData,
)
from axiomrm.eval.worth import Arm, Cost, WorthTable, worth_table
from axiomrm.policy_opt.monitoring.spot_checks import read_spot_checks
from axiomrm.stage_context import Metrics, StageContext
from axiomrm.stages.transcripts import spot_check_rows, transcript

_VERDICT: TypeAdapter[Verdict] = TypeAdapter(Verdict)
ROLES = {"cold_start": "cold_start", "train": "rl", "best_of_k": "best_of_k"}
LABELS = {
    "cold_start": "cold start (SFT)",
    "cold_start_cool": "cold start, sampled cooler",
    "train": "process + replay",
    "best_of_k": "best-of-K + SFT",
    "grpo": "GRPO on outcomes",
}
JUDGE_LABELS = {
    "base": "base model",
    "general": "general stage",
    "rubric": "rubric stage",
    "personal": "personal stage",
}


def run(ctx: StageContext) -> Metrics:
    """Write ``report.html`` into the run folder."""
    data = report_data([Measured(ctx.run_dir)], ctx.config.name, ctx.config.evaluate.bootstrap_draws)
    path = write_report(data, ctx.run_dir / "report.html")
    return {"report": path.name, "headlines": {h.label: h.estimate.percent() for h in data.headlines}}


class Measured:
    """What one run folder measured."""

    def __init__(self, run_dir: Path) -> None:
        def read(path: str) -> dict[str, Any]:
            found: dict[str, Any] = json.loads((run_dir / path).read_text(encoding="utf-8"))
            return found

        self.judges, self.policies = read("evaluate/judges.json"), read("evaluate/policies.json")
        self.arms = read("policy/done.json")["metrics"]
        self.synthesis = read("synthesize/done.json")["metrics"]
        self.manifest = read("manifest.json")
        self.spot_checks = {
            arm: read_spot_checks(run_dir / "policy" / arm / "spot_checks.jsonl") for arm in self.arms
        }


def criteria(runs: Sequence[Measured], judge: str, draws: int) -> CriterionReport:
    """Criterion metrics of one judge over runs."""
    return criterion_report(
        [
            [
                CriterionItem(
                    r["criterion"], r["gold"], _VERDICT.validate_python(r["verdict"]), r["kind"], r["group"]
                )
                for r in m.judges["criteria"][judge]
            ]
            for m in runs
        ],
        draws=draws,
    )


def personal(runs: Sequence[Measured], draws: int, equal_quality: bool = False) -> PersonalMetrics:
    """Per-user metrics of the last judge over runs."""
    return personal_metrics(
        [
            [
                UserPair(
                    r["user"], _nan(r["personal"]), _nan(r["generic"]), _nan(r["swapped"]), r["equal_quality"]
                )
                for r in m.judges["personal"]
                if r["equal_quality"] or not equal_quality
            ]
            for m in runs
        ],
        draws=draws,
    )


def worth(runs: Sequence[Measured], draws: int) -> WorthTable:
    """Cold start, best-of-K at equal rollouts, and RL on the same held-out tasks."""
    found = []
    for name in runs[0].policies:
        outcomes = tuple({t: (o,) for t, o in m.policies[name]["outcomes"].items()} for m in runs)
        spent = [m.arms[name] for m in runs if name in m.arms]
        cost = Cost(
            rollouts=sum(s["rollouts"] for s in spent) / max(1, len(spent)),
            seconds=sum(s["seconds"] for s in spent) / max(1, len(spent)),
        )
        found.append(
            Arm(
                name=name,
                label=LABELS.get(name, name),
                role=ROLES.get(name, "other"),
                outcomes=outcomes,
                cost=cost,
            )
        )
    return worth_table(found, draws=draws)


def report_data(runs: Sequence[Measured], name: str, draws: int = 2000) -> ReportData:
    """Everything on the page."""
    by_judge = {j: criteria(runs, j, draws) for j in runs[0].judges["criteria"]}
    users, table = personal(runs, draws), worth(runs, draws)
    return ReportData(
        run=name,
        summary="A judge trained in three stages, and a policy trained on its verdicts; held-out tasks.",
        headlines=_headlines(by_judge, users, table),
        judges=tuple(
            _judge_row(runs, j, r, users if j == "personal" else None, draws) for j, r in by_judge.items()
        ),
        criteria={JUDGE_LABELS.get(j, j): r for j, r in by_judge.items()},
        personal=users,
        personal_subsets={"equal quality": personal(runs, draws, equal_quality=True)},
        curves=tuple(_curve(runs, arm) for arm in runs[0].arms),
        behaviour={
            LABELS.get(p, p): behaviour([m.policies[p]["behaviour"] for m in runs], draws=draws)
            for p in runs[0].policies
        },
        worth=table,
        transcripts=tuple(
            transcript(t, LABELS.get(t["policy"], t["policy"]))
            for t in (
                *(t for p in runs[0].policies.values() for t in p.get("transcripts", ())),
                *spot_check_rows(runs[0].spot_checks),
            )
        ),
        data={k: f"{v:.3g}" if isinstance(v, float) else str(v) for k, v in runs[0].synthesis.items()},
        notes=NOTES,
        provenance={k: json.dumps(v) if isinstance(v, dict) else str(v) for k, v in runs[0].manifest.items()},
    )


NOTES = (
    "Everything here is synthetic: scripted users, scripted demonstrations, oracle labels. It shows that the "
    "pipeline learns what it is asked to learn; it does not show how well a judge agrees with people.",
    "Success is decided by the environment's verifier on held-out wordings and one unseen task type; "
    "the judge never decides it.",
)


def _headlines(
    by_judge: Mapping[str, CriterionReport], users: PersonalMetrics, table: WorthTable
) -> tuple[Headline, ...]:
    stage = by_judge["rubric"].balanced_accuracy
    rl = next((r for r in table.rows if r.role == "rl"), None)
    return (
        Headline(
            label="Judge, surface criteria",
            estimate=stage.get("surface", NOT_MEASURED),
            note="balanced accuracy, rubric stage",
        ),
        Headline(
            label="Judge, relational criteria",
            estimate=stage.get("relational", NOT_MEASURED),
            note="balanced accuracy, rubric stage",
        ),
        Headline(
            label="Personal over generic", estimate=users.gain, note="per-user pair accuracy", signed=True
        ),
        Headline(
            label="Policy over cold start",
            estimate=rl.over_cold_start if rl else NOT_MEASURED,
            note="held-out success",
            signed=True,
        ),
    )


def _judge_row(
    runs: Sequence[Measured], judge: str, found: CriterionReport, users: PersonalMetrics | None, draws: int
) -> JudgeRow:
    pairs = preference_metrics(
        [
            [PairItem(r["label"], r["a"], r["b"], group=r["group"]) for r in m.judges["pairs"][judge]]
            for m in runs
        ],
        draws=draws,
    )
    return JudgeRow(
        label=JUDGE_LABELS.get(judge, judge),
        pair_accuracy=pairs.accuracy,
        surface=found.balanced_accuracy.get("surface", NOT_MEASURED),
        relational=found.balanced_accuracy.get("relational", NOT_MEASURED),
        personal=users.personal if users else NOT_MEASURED,
    )


def _curve(runs: Sequence[Measured], arm: str) -> Curve:
    by_seed = [[Point(p["rollouts"], p["success"]) for p in m.arms[arm]["curve"]] for m in runs]
    n = len(next(iter(runs[0].policies.values()))["outcomes"])
    points = tuple(
        CurvePoint(rollouts=ps[0].rollouts, success=_mean(ps, n)) for ps in zip(*by_seed, strict=False)
    )
    return Curve(label=LABELS.get(arm, arm), points=points, reached=rollouts_to(by_seed), main=arm == "train")


def _mean(points: Sequence[Point], n: int) -> Estimate:
    known = [p.success for p in points if p.success is not None]
    return wilson(sum(known) * n, n * len(known)) if known else NOT_MEASURED


def _nan(value: float | None) -> float:
    return float("nan") if value is None else value
