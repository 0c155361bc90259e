"""Weights that are no weights are reported, whatever else the linter computes from them."""

from pathlib import Path

import pytest

from axiomrm.rubrics.lint import lint_file

TEXT = """schema: atr/1
rubric: {id: team, version: 1.0.0}
axioms:
  - {id: ax.goal, statement: The user has a goal., type: premise}
theorems:
  - {id: th.a, derived_from: [ax.goal], derivation: a step, statement: Names the order., weight: WEIGHT}
  - {id: th.b, derived_from: [ax.goal], derivation: a step, statement: Names the city., weight: 2}
policy: {scale: net}
"""


@pytest.mark.parametrize("weight", ["-2", "-2.0", "0", ".inf", ".nan", "-1"])
def test_a_weight_that_is_none_is_an_error_and_no_traceback(weight: str, tmp_path: Path) -> None:
    file = tmp_path / "team.yaml"
    file.write_text(TEXT.replace("WEIGHT", weight))
    codes = [(f.code, f.line) for f in lint_file(file)[1]]
    assert any(line == 6 and code in ("E130", "E100") for code, line in codes)
    assert not any("nan" in f.message for f in lint_file(file)[1] if f.code == "W131")
