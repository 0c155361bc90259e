"""A judge that is named by a hub id is the one that its folder is: card and calibrator come along."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from axiomrm.errors import ConfigError
from axiomrm.rm import Calibration, JudgePrompter, RewardModel, write_calibration, write_judge_card
from axiomrm.rm.calibration import Entry
from axiomrm.rm.card import CARD_FILE, judge_folder
from axiomrm.rm.judge_check import check_judge

ID = "lab/judge"


@pytest.fixture()
def snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_llama: Any, tiny_tokenizer: Any) -> Path:
    """The local copy of ``lab/judge`` in a hub cache of its own; the hub is off."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    commit, home = "a" * 40, tmp_path / "hub" / "models--lab--judge"
    folder = home / "snapshots" / commit
    folder.mkdir(parents=True)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    tiny_llama.save_pretrained(folder)
    tiny_tokenizer.save_pretrained(folder)
    write_judge_card(folder, JudgePrompter(tiny_tokenizer, template="compact"), min_mass=0.3)
    return folder


def calibrator(revision: str) -> Calibration:
    entry = Entry(
        scale="Y=1 N=0",
        mode="direct",
        readout="expected",
        judge_revision=revision,
        labels=200,
        temperature=2.0,
    )
    return Calibration(entries=(entry,), data_hash="d")


def test_a_hub_id_brings_the_card_and_the_calibrator_of_its_folder(snapshot: Path) -> None:
    local = RewardModel.from_pretrained(snapshot)
    made = calibrator(local.judge_revision)
    write_calibration(snapshot, made)
    judge = RewardModel.from_pretrained(ID)
    assert judge.prompter is not None and judge.prompter.template.name == "compact"
    assert (judge.asking.untrained, judge.asking.min_mass) == (False, 0.3)
    assert judge.judge_revision == local.judge_revision
    assert judge.modes.calibration == made


def test_a_hub_id_whose_card_or_calibrator_does_not_fit_is_refused(
    snapshot: Path, make_tokenizer: Any, tiny_tokenizer: Any
) -> None:
    write_calibration(snapshot, calibrator("f" * 64))
    with pytest.raises(ConfigError, match="fitted on judge 'ffffffffffff'"):
        RewardModel.from_pretrained(ID)
    card = (snapshot / CARD_FILE).read_text()
    right = JudgePrompter(tiny_tokenizer).fingerprint["tokenizer_hash"]
    (snapshot / CARD_FILE).write_text(card.replace(right, "0" * 64))
    for use in (RewardModel.from_pretrained, check_judge):
        with pytest.raises(ConfigError, match="tokenizer_hash"):
            use(ID)


def test_the_tokenizer_of_a_served_model_brings_the_card_from_the_hub(
    snapshot: Path, http: Any, server: Any, tiny_tokenizer: Any
) -> None:
    server.answers = [http.completing(tiny_tokenizer)]
    judge = RewardModel.connect(server.url, model="m", tokenizer=ID, deadline_s=5.0)
    assert judge.prompter is not None and judge.prompter.template.name == "compact"
    assert (judge.asking.untrained, judge.asking.min_mass) == (False, 0.3)


def test_a_name_without_a_local_copy_is_an_error_and_a_folder_is_itself(
    snapshot: Path, tiny_tokenizer: Any
) -> None:
    assert judge_folder(snapshot) == snapshot and judge_folder(ID) == snapshot
    engine = RewardModel.from_pretrained(snapshot).engine
    assert engine is not None
    shutil.rmtree(snapshot.parents[1] / "refs")
    for name in (ID, "no/such/folder", Path("/no/such")):
        with pytest.raises(ConfigError, match="no such folder, and no copy of a model of this name"):
            RewardModel.from_engine(engine, tiny_tokenizer, folder=name)
