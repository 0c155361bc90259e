"""The rollout benchmark at a tiny size: its sides play the same thing."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from axiomrm.policy_opt.engines.transformers import TransformersSampler

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
speed: Any = importlib.import_module("rollout_speed")


@pytest.fixture
def told(tmp_path: Path) -> list[str]:
    sizes = ["--episodes", "2", "--repeats", "1", "--horizon", "2", "--max-turns", "3"]
    return [*sizes, "--work", str(tmp_path), "--out", str(tmp_path / "speed.json")]


def test_both_readers_sample_the_same_ids(told: list[str], tmp_path: Path) -> None:
    speed.main(told)
    ((key, found),) = json.loads((tmp_path / "speed.json").read_text()).items()
    (repeat,) = found["repeats"]
    assert repeat["padded"]["episodes_like_packed"] == 2
    assert repeat["padded"]["sampled_tokens"] == repeat["packed"]["sampled_tokens"] > 2
    assert repeat["padded"]["outcomes"] == repeat["packed"]["outcomes"]
    assert found["summary"]["packed"]["time_over_packed"]["median"] == 1
    assert found["summary"]["generate"]["time_over_packed"]["median"] > 0
    speed.main(told)  # a finished run is not measured again
    assert json.loads((tmp_path / "speed.json").read_text()) == {key: found}


def test_models_in_folders_of_one_name_have_rows_of_their_own(tmp_path: Path) -> None:
    keys = set()
    for above in ("a", "b"):
        folder = tmp_path / above / "start"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_text(above)
        keys.add(speed.key(speed.arguments(["--model", str(folder)])))
    assert len(keys) == 2 and all(key.startswith("start-") for key in keys)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--repeats", "0"], "--repeats 0: at least 1"),
        (["--max-turns", "-1"], "--max-turns -1: at least 1"),
        (["--model", "nowhere"], "--model nowhere: no folder with weights"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        speed.main([*words, "--out", str(tmp_path / "speed.json")])
    assert left.value.code == 2 and said in capsys.readouterr().err


def test_the_loop_over_generate_reads_the_histories_that_ours_reads(told: list[str]) -> None:
    bench = speed.Bench(speed.arguments([*told, "--episodes", "6", "--max-turns", "8"]))
    ends, pad = bench.chat.end_ids, bench.tokenizer.pad_token_id
    ours = bench.play(TransformersSampler(bench.model, ends, greedy=True), 0)
    theirs = bench.play(speed.GenerateSampler(bench.model, ends, pad, temperature=1e-4), 0)
    assert sum(len(e.record.steps) for e in ours) > 2
    for one, other in zip(ours, theirs, strict=True):
        assert [s.tolist() for s in one.record.segments] == [s.tolist() for s in other.record.segments]
        assert one.record.ending == other.record.ending


def test_success_is_of_known_outcomes_and_a_task_without_one_is_missing() -> None:
    rows = [{"outcomes": "1-0-"}, {"outcomes": "01--"}]
    assert speed.success(rows)["value"] == pytest.approx((0.5 + 1 + 0) / 3)
    assert speed.success(rows, [{"outcomes": "0011"}])["value"] == pytest.approx((0.5 + 1 - 1) / 3)
