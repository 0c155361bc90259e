"""SmolLM2-135M on real conversations, as in ``make smollm2``; skipped where model or data are absent."""

import itertools
import json
import os
from pathlib import Path

import pytest

from axiomrm.data.verdict import Failed
from axiomrm.errors import DataError
from axiomrm.rm import RewardModel
from axiomrm.rubrics import Rubric
from axiomrm.score_file import score_file
from axiomrm.score_records import candidates

ROOT = Path(__file__).parents[2]
MODEL = Path(os.environ.get("AXIOMRM_SMOLLM2", ROOT / ".cache" / "smollm2-135m"))
pytestmark = pytest.mark.slow


def data(name: str) -> Path:
    from axiomrm.data.human.files import data_folder

    try:
        path = data_folder() / name
    except DataError as error:
        pytest.skip(str(error))
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    return path


@pytest.fixture(scope="module")
def smollm2() -> RewardModel:
    if not (MODEL / "config.json").is_file():
        pytest.skip(f"{MODEL} is absent: make smollm2")
    return RewardModel.from_pretrained(MODEL)


def test_real_pairs_get_verdicts_on_both_answers(smollm2: RewardModel, tmp_path: Path) -> None:
    logs, rubric = data("hh_harmless.jsonl"), Rubric.load("general_quality")
    summary = score_file(logs, rubric, smollm2, tmp_path / "out.jsonl", limit=2)
    assert summary.scored == 4
    assert sum(summary.verdicts.values()) == 40
    assert summary.verdicts["scored"] >= 38


def test_packed_verdicts_equal_prompts_read_alone(smollm2: RewardModel) -> None:
    with data("hh_harmless.jsonl").open(encoding="utf-8") as handle:
        record = json.loads(next(itertools.islice(handle, 1)))
    ((_, trajectory), _) = candidates(record)
    together = smollm2.score(trajectory, Rubric.load("general_quality"))
    engine = smollm2.engine
    engine._reuse = False  # type: ignore[union-attr]
    try:
        apart = smollm2.score(trajectory, Rubric.load("general_quality"))
    finally:
        engine._reuse = True  # type: ignore[union-attr]
    for name, verdict in together.verdicts.items():
        other = apart.verdicts[name]
        assert not isinstance(verdict, Failed) and not isinstance(other, Failed)
        assert verdict.distribution == pytest.approx(other.distribution, abs=1e-4)  # type: ignore[union-attr]


def test_too_long_a_trajectory_is_rejected_and_the_run_goes_on(smollm2: RewardModel, tmp_path: Path) -> None:
    logs = data("tau_air.jsonl")
    engine = smollm2.engine
    whole = engine.max_tokens  # type: ignore[union-attr]
    engine.max_tokens = 1000  # type: ignore[union-attr]
    try:
        summary = score_file(logs, Rubric.load("general_quality"), smollm2, tmp_path / "out.jsonl", limit=2)
    finally:
        engine.max_tokens = whole  # type: ignore[union-attr]
    assert [row["kind"] for row in summary.rejected] == ["context_overflow"] * 2
    assert summary.records == 2
