"""Stages train, continue one another, survive a kill and refuse what does not belong to them."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from axiomrm.data.splits import split_by_group
from axiomrm.errors import ConfigError
from axiomrm.rm.card import read_judge_card
from axiomrm.rm.prompt import JudgePrompter
from axiomrm.rm.training.config import LoraSettings, StageConfig
from axiomrm.rm.training.packing import single_rows
from axiomrm.rm.training.rows import make_rows
from axiomrm.rm.training.sft import COMPLETE, last_checkpoint, planned_steps
from axiomrm.rm.training.stages import train_stage

CASES = Path(__file__).parents[2] / "cases" / "dev_cases.jsonl"
QUICK: dict[str, Any] = {
    "template": "compact",
    "row_tokens": 512,
    "batch_tokens": 1200,
    "learning_rate": 5e-3,
    "save_steps": 5,
    "log_steps": 1,
}
RUN = """
import os, signal, sys
sys.path.insert(0, {here!r})
import torch, conftest
from axiomrm.rm.training import sft, stages
from axiomrm.rm.training.config import StageConfig

torch.set_num_threads(1)
kill_at, out = int(sys.argv[1]), sys.argv[2]


class Kill(sft.TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


plain = sft._Complete


class Both(plain, Kill):
    pass


sft._Complete = Both
examples = [q for n in range(12) for q in conftest.questions(n)]
model = conftest.make_model("llama")
stages.train_stage(model, conftest.make_tokenizer(), examples, [], out, StageConfig(**{config!r}))
"""


def case(name: str) -> dict[str, Any]:
    lines = CASES.read_text(encoding="utf-8").splitlines()
    return next(found for found in map(json.loads, lines) if found["id"] == name)


def run_process(out: Path, kill_at: int, config: dict[str, Any]) -> int:
    script = RUN.format(here=str(Path(__file__).parent), config=config)
    done = subprocess.run(
        [sys.executable, "-c", script, str(kill_at), str(out)], capture_output=True, text=True
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
    return done.returncode


def losses(out: Path) -> dict[int, float]:
    history = json.loads((out / "result.json").read_text())["history"]
    return {int(row["step"]): row["loss"] for row in history}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return dict(load_file(folder / "model.safetensors"))


@pytest.mark.slow
def test_a_killed_stage_goes_on_and_ends_with_the_same_losses_and_weights(tmp_path: Path) -> None:
    wanted = case("D-TR-08")
    steps, kill_at = wanted["input"]["steps"], wanted["input"]["kill_at"]
    config = QUICK | {"epochs": 2, "max_steps": steps, "save_steps": wanted["input"]["checkpoint_every"]}
    assert run_process(tmp_path / "whole", 0, config) == 0
    assert run_process(tmp_path / "cut", kill_at, config) == -signal.SIGKILL
    assert not (tmp_path / "cut" / "result.json").exists()
    newest = last_checkpoint(tmp_path / "cut" / "checkpoints")
    assert newest is not None and newest.name == f"checkpoint-{wanted['expect']['resumes_from']}"
    # mid-checkpoint: a newer folder that was not written to its end is passed over
    broken = tmp_path / "cut" / "checkpoints" / "checkpoint-10"
    broken.mkdir()
    (broken / "model.safetensors").write_bytes(b"half")
    assert run_process(tmp_path / "cut", 0, config) == 0
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert len(losses(tmp_path / "whole")) == steps
    whole, cut = weights(tmp_path / "whole" / "final"), weights(tmp_path / "cut" / "final")
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


def test_a_stage_learns_writes_a_card_and_the_next_stage_continues_it(
    tmp_path: Path, tokenizer: Any, tiny: Any, examples: Any
) -> None:
    train = [q for n in range(12) for q in examples(n)]
    dev = [q for n in range(20, 22) for q in examples(n)]
    config = StageConfig(**QUICK | {"epochs": 4})
    calls: list[Any] = []

    def evaluate(model: Any) -> dict[str, float]:
        calls.append(model)
        return {"agreement": float(len(calls))}

    first = train_stage(tiny(), tokenizer, train, dev, tmp_path / "1", config, evaluate=evaluate, base="tiny")
    assert first.packed and first.dev_loss_before is not None and first.dev_loss_after is not None
    assert first.dev_loss_after < 0.7 * first.dev_loss_before
    assert first.direct_share == 0.5 and first.counts["mode"] == {"direct": 48, "critique": 48}
    assert (first.metrics_before, first.metrics_after) == ({"agreement": 1.0}, {"agreement": 2.0})
    card = read_judge_card(first.folder)
    assert card is not None
    assert (card.stages, card.base, card.min_mass, card.template) == (("rm.general",), "tiny", 0.8, "compact")
    assert card.details["rm.general"]["train_hash"] == first.data_hash
    assert card.details["rm.general"]["result"]["counts"]["dropped"] == {}

    second = train_stage(
        first.folder, None, train[:8], dev, tmp_path / "2", StageConfig(**QUICK | {"stage": "rm.rubric"})
    )
    after = read_judge_card(second.folder)
    assert after is not None and after.stages == ("rm.general", "rm.rubric") and after.base == "tiny"
    assert set(after.details) == {"rm.general", "rm.rubric"}
    assert second.dev_loss_before == pytest.approx(first.dev_loss_after, rel=1e-4)

    from axiomrm.rm.reward_model import RewardModel

    judge = RewardModel.from_pretrained(second.folder)
    assert judge.asking.min_mass == 0.8 and not judge.asking.untrained
    with pytest.raises(ConfigError, match="trained with template"):
        train_stage(
            first.folder, None, train, dev, tmp_path / "3", StageConfig(**QUICK | {"template": "default"})
        )


def test_a_finished_stage_is_not_run_again_and_its_folder_is_not_shared(
    tmp_path: Path, tokenizer: Any, tiny: Any, examples: Any
) -> None:
    config = StageConfig(**QUICK | {"max_steps": 2})
    first = train_stage(tiny(), tokenizer, examples(0), [], tmp_path, config)
    written = (tmp_path / "final" / "model.safetensors").stat().st_mtime_ns
    again = train_stage(tiny(), tokenizer, examples(0), [], tmp_path, config)
    assert again == first
    assert (tmp_path / "final" / "model.safetensors").stat().st_mtime_ns == written
    assert not (tmp_path / "checkpoints").exists()
    with pytest.raises(ConfigError, match="another train_hash"):
        train_stage(tiny(), tokenizer, examples(1), [], tmp_path, config)
    with pytest.raises(ConfigError, match="another base_weights"):
        train_stage(tiny(seed=1), tokenizer, examples(0), [], tmp_path, config)
    with pytest.raises(ConfigError, match="another config"):
        train_stage(tiny(), tokenizer, examples(0), [], tmp_path, StageConfig(**QUICK | {"max_steps": 3}))


def test_lora_is_merged_and_changes_only_what_it_may(
    tmp_path: Path, tokenizer: Any, tiny: Any, examples: Any
) -> None:
    config = StageConfig(**QUICK | {"max_steps": 3, "lora": LoraSettings(rank=2, alpha=4, last_layers=1)})
    result = train_stage(tiny(), tokenizer, examples(0), examples(1), tmp_path, config)
    before, after = tiny().state_dict(), weights(result.folder)
    changed = {name for name, tensor in after.items() if not torch.equal(tensor, before[name])}
    assert changed and all(name.startswith("model.layers.1.") for name in changed)
    assert result.dev_loss_after != result.dev_loss_before


def test_no_row_at_all_is_an_error_that_says_so(
    tmp_path: Path, tokenizer: Any, tiny: Any, examples: Any
) -> None:
    with pytest.raises(ConfigError, match="no rows to train on"):
        train_stage(tiny(), tokenizer, examples(0), [], tmp_path, StageConfig(**QUICK | {"max_tokens": 8}))


def test_a_learning_rate_written_as_text_is_a_number_or_an_error_before_anything_starts() -> None:
    import yaml

    found = case("D-TR-12")
    value = yaml.safe_load(found["input"]["yaml"])["train"]["learning_rate"]
    assert isinstance(value, str)  # the trap: YAML 1.1 reads 5e-5 as text
    config = StageConfig(learning_rate=value)
    assert config.learning_rate == found["expect"]["any_of"][0]["value"] and isinstance(
        config.learning_rate, float
    )
    with pytest.raises(ValueError, match="learning_rate"):
        StageConfig(learning_rate="fast")


def test_groups_never_stand_on_both_sides_of_a_split() -> None:
    found = case("D-TR-11")["input"]
    a, b = found["shares"]
    sides = [
        split_by_group(
            found["rows"], {"train": a, "test": b}, found["seed"], key=lambda row: str(row["group"])
        )
        for _ in range(2)
    ]
    assert sides[0] == sides[1]
    assert not {r["group"] for r in sides[0]["train"]} & {r["group"] for r in sides[0]["test"]}
    assert len(sides[0]["train"]) + len(sides[0]["test"]) == len(found["rows"])


def test_steps_follow_epochs_and_budgets(tokenizer: Any, examples: Any) -> None:
    rows = make_rows(examples(0), JudgePrompter(tokenizer, template="compact")).rows
    made = [single_rows([row]) for row in rows]  # 8 batches
    assert planned_steps(made, StageConfig()) == 8
    assert planned_steps(made, StageConfig(epochs=1.5, accumulate=3)) == 5  # ceil(1.5 * 3)
    assert planned_steps(made, StageConfig(max_steps=2)) == 2
    mean = sum(len(row.input_ids) for row in rows) / 8
    assert planned_steps(made, StageConfig(max_train_tokens=int(mean * 3))) == 3
    assert planned_steps(made, StageConfig(max_train_tokens=1)) == 1


def test_a_checkpoint_without_its_end_mark_is_removed(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    for step, complete in ((5, True), (10, True), (15, False)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if complete:
            (tmp_path / f"checkpoint-{step}" / COMPLETE).touch()
    newest = last_checkpoint(tmp_path)
    assert newest is not None and newest.name == "checkpoint-10"
    assert not (tmp_path / "checkpoint-15").exists()
