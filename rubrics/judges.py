"""Programmatic judges by name, and the dispatch for items that need no language model.

``JUDGES[name].run(trajectory, turn, args)`` is pure: no clock, no I/O, nothing executed. Judges read what the
environment or the log *recorded*: ``outcome.metrics``, tool calls and results, ``task.reference``. Evidence
missing → ``CannotAssess``; recorded but broken → ``Failed("infrastructure")``.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ValidationError

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import CannotAssess, Scored, Verdict
from axiomrm.errors import ConfigError
from axiomrm.rubrics import judges_answer as answer
from axiomrm.rubrics import judges_outcome as outcome
from axiomrm.rubrics import judges_text as text
from axiomrm.rubrics import judges_tools as tools
from axiomrm.rubrics.bind import ActiveAxiom, ActiveItem
from axiomrm.rubrics.expr import evaluate, names_of
from axiomrm.rubrics.judge_types import Arguments, Run
from axiomrm.rubrics.probes import PROBES
from axiomrm.rubrics.text_form import nfc


class JudgeFunction(NamedTuple):
    """A programmatic judge."""

    run: Run
    args: type[BaseModel]
    """Arguments it accepts; a rubric's ``args`` are validated against it at lint time."""
    levels: tuple[Literal["trajectory", "turn"], ...]

    def __call__(self, trajectory: Trajectory, turn: int | None, args: Mapping[str, Any]) -> Verdict:
        """The verdict on one unit.

        Raises:
            ConfigError: the arguments do not fit the function.
        """
        return self.run(trajectory, turn, _arguments(self.args, args))


def _arguments(model: type[BaseModel], args: Mapping[str, Any]) -> Any:
    try:
        return model.model_validate(nfc(args))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"args.{place}: {first['msg']}, found {first['input']!r}") from error


_WHOLE: tuple[Literal["trajectory"]] = ("trajectory",)
_TURN: tuple[Literal["turn"]] = ("turn",)
_BOTH: tuple[Literal["trajectory", "turn"], ...] = ("trajectory", "turn")

READS_CALLS = frozenset({"tool_order", "right_tool", "args_well_formed", "redundant_step", "loop"})
"""Judges of tool calls: a text without a recorded call gives them nothing to fail on."""
JUDGES: dict[str, JudgeFunction] = {
    "tests_passed": JudgeFunction(outcome.tests_passed, Arguments, _WHOLE),
    "runs_ok": JudgeFunction(outcome.runs_ok, Arguments, _WHOLE),
    "tests_untouched": JudgeFunction(outcome.tests_untouched, outcome.Protected, _WHOLE),
    "files_changed": JudgeFunction(outcome.files_changed, outcome.Band, _WHOLE),
    "steps": JudgeFunction(outcome.steps, outcome.Band, _WHOLE),
    "retrievals": JudgeFunction(outcome.retrievals, outcome.Retrievals, _WHOLE),
    "rows_scanned": JudgeFunction(outcome.rows_scanned, outcome.Band, _WHOLE),
    "answer_match": JudgeFunction(answer.answer_match, answer.AnswerMatch, _WHOLE),
    "result_match": JudgeFunction(answer.result_match, answer.ResultMatch, _WHOLE),
    "retrieval_recall": JudgeFunction(outcome.retrieval_recall, outcome.AtK, _WHOLE),
    "retrieval_precision": JudgeFunction(outcome.retrieval_precision, outcome.AtK, _WHOLE),
    "query_syntax_ok": JudgeFunction(outcome.query_syntax_ok, Arguments, _WHOLE),
    "query_executes": JudgeFunction(outcome.query_executes, Arguments, _WHOLE),
    "query_read_only": JudgeFunction(outcome.query_read_only, Arguments, _WHOLE),
    "tool_order": JudgeFunction(tools.tool_order, tools.ToolOrder, _WHOLE),
    "right_tool": JudgeFunction(tools.right_tool, tools.RightTool, _TURN),
    "args_well_formed": JudgeFunction(tools.args_well_formed, Arguments, _TURN),
    "redundant_step": JudgeFunction(tools.redundant_step, tools.Changing, _TURN),
    "loop": JudgeFunction(tools.loop, tools.Changing, _TURN),
    "format_valid": JudgeFunction(text.format_valid, text.FormatValid, _BOTH),
    "length_band": JudgeFunction(text.length_band, text.LengthBand, _BOTH),
    "contains": JudgeFunction(text.contains, text.Literals, _BOTH),
    "excludes": JudgeFunction(text.excludes, text.Literals, _BOTH),
    "cites_sources": JudgeFunction(text.cites_sources, text.CitesSources, _BOTH),
    "pii_reveal": JudgeFunction(text.pii_reveal, text.PiiReveal, _BOTH),
}


def judge(item: ActiveItem | ActiveAxiom, trajectory: Trajectory, turn: int | None = None) -> Verdict:
    """Verdict on an item that needs no language model.

    Args:
        item: of an ``ActiveRubric``, judge kind programmatic or constraint.
        trajectory: the recording.
        turn: 0-based; ``None`` for a trajectory-level item.

    Raises:
        ConfigError: the item needs a language model, or ``turn`` does not fit its level.
    """
    if (item.evidence.level == "turn") != (turn is not None):
        raise ConfigError(f"{item.id}: evidence level is {item.evidence.level}, turn is {turn!r}")
    if item.judge.kind == "programmatic":
        return JUDGES[item.judge.fn](trajectory, turn, item.judge.args)
    if item.judge.kind == "constraint":
        return _constraint(item, trajectory, turn)
    raise ConfigError(f"{item.id}: judge kind 'llm' needs a model; score it with RewardModel")


def _constraint(item: ActiveItem | ActiveAxiom, trajectory: Trajectory, turn: int | None) -> Verdict:
    if item.requires is None:
        raise ConfigError(f"{item.id}: judge kind 'constraint' without 'requires'")
    env: dict[str, bool | int | float | str | None] = {}
    for name in sorted(names_of(item.requires)):
        probe = item.facets[name].probe
        env[name] = PROBES[probe].measure(trajectory, turn, item.facets[name].args) if probe else None
    holds = evaluate(item.requires, env)
    if holds is None:
        unknown = ", ".join(n for n, v in env.items() if v is None)
        return CannotAssess(reason=f"facet not measured: {unknown}")
    shown = ", ".join(f"{n}={v}" for n, v in env.items())
    return Scored(
        value=float(holds), label="yes" if holds else "no", critique=shown, mode="constraint", readout="exact"
    )
