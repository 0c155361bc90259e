"""Metrics with intervals, and the report. A missing number is shown as missing, never as 0."""

from axiomrm.eval.criterion import CriterionItem, CriterionMetrics, CriterionReport, criterion_report
from axiomrm.eval.curves import Point, RolloutsTo, rollouts_to
from axiomrm.eval.estimate import NOT_MEASURED, Estimate, wilson
from axiomrm.eval.personal import PersonalMetrics, UserPair, personal_metrics
from axiomrm.eval.policy import behaviour, success, success_by_task, success_gain
from axiomrm.eval.preference import PairItem, PreferenceMetrics, preference_metrics
from axiomrm.eval.worth import Arm, Cost, WorthTable, worth_table

__all__ = [
    "NOT_MEASURED",
    "Arm",
    "Cost",
    "CriterionItem",
    "CriterionMetrics",
    "CriterionReport",
    "Estimate",
    "PairItem",
    "PersonalMetrics",
    "Point",
    "PreferenceMetrics",
    "RolloutsTo",
    "UserPair",
    "WorthTable",
    "behaviour",
    "criterion_report",
    "personal_metrics",
    "preference_metrics",
    "rollouts_to",
    "success",
    "success_by_task",
    "success_gain",
    "wilson",
    "worth_table",
]
