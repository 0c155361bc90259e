"""Consent withdrawn: nothing of the user is left in a run's files, and the run is still whole."""

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from axiomrm.cli import main
from axiomrm.config import RunConfig
from axiomrm.data.trajectory import Task
from axiomrm.errors import ConfigError, DataError
from axiomrm.policy_opt.config import PolicyConfig, ProcessReplayConfig, RolloutConfig
from axiomrm.policy_opt.forgetting import forget_subject
from axiomrm.policy_opt.monitoring.kept_rollouts import write_rollouts
from axiomrm.policy_opt.monitoring.spot_checks import read_spot_checks, write_spot_checks
from axiomrm.policy_opt.rewards.users import for_users
from axiomrm.runlock import run_lock
from axiomrm.runner import Stage, StageContext, read_run, run_pipeline

TOKENS = [f"user-000{i}" for i in range(4)]
SPLITTER = "a\u2028b\x85c"
"""Line ends to str.splitlines, not to JSON."""


def owned(tasks: Sequence[Task]) -> dict[str, object]:
    return {task.id: task.features.get("subject") for task in tasks}


TASKS = [Task(id=f"t{i}", features={"domain": "orders"}) for i in range(400)]


def test_users_get_about_equal_shares_of_the_tasks_whatever_their_order() -> None:
    given = owned(for_users(TASKS, TOKENS))
    assert given == owned(for_users(TASKS, TOKENS[::-1]))
    assert all(70 <= n <= 130 for n in Counter(given.values()).values())  # 100 each, four standard deviations
    assert for_users(TASKS, TOKENS)[0].features["domain"] == "orders"


def test_a_user_who_leaves_hands_on_their_own_tasks_alone() -> None:
    before, after = owned(for_users(TASKS, TOKENS)), owned(for_users(TASKS, TOKENS[1:]))
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {name for name, token in before.items() if token == TOKENS[0]}


def test_tasks_with_a_user_and_runs_without_profiles_stay_as_they_are() -> None:
    mine = Task(id="a", features={"subject": "user-9999"})
    assert for_users([mine], TOKENS) == [mine]
    assert for_users(TASKS, []) == TASKS


@pytest.fixture
def stages(toy: Any) -> list[Stage]:
    """A policy of the toy world for two users, and a stage after it."""

    def policy(ctx: StageContext) -> Mapping[str, Any]:
        arm = ctx.stage_dir / "train"
        tasks = [Task(id=f"{t.id}{SPLITTER}", type=t.type, payload=t.payload) for t in toy.tasks(8, 3, 3)]

        def after(iteration: int, _: Any, episodes: Any) -> None:
            write_spot_checks(arm / "spot_checks.jsonl", iteration, episodes)
            write_rollouts(arm / "rollouts.jsonl", iteration, episodes)

        options = PolicyConfig(
            iterations=2, tasks_per_iteration=8, group_size=2, rollout=RolloutConfig(max_turn_tokens=4),
            algorithm=ProcessReplayConfig(reuse=3),
        )  # fmt: skip
        toy.trainer(
            arm / "training",
            options,
            tasks=for_users(tasks, TOKENS[:2]),
            turn_judge=toy.judge,
            on_iteration=after,
        ).run()
        (arm / "training" / "alarms.jsonl").write_bytes((arm / "spot_checks.jsonl").read_bytes())
        return {}

    return [Stage("policy", policy), Stage("evaluate", lambda ctx: {"runs": 1})]


@pytest.fixture
def run(stages: list[Stage], tmp_path: Path) -> tuple[RunConfig, Path]:
    profiles = tmp_path / "profiles.jsonl"
    rows = [{"subject": t, "slots": {"stated.verbosity": 2}, "policy_training": True} for t in TOKENS[:2]]
    profiles.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = RunConfig.model_validate(
        {"name": "toy", "policy": {"reward": {"kind": "personal", "profiles": str(profiles)}}}
    )
    return config, run_pipeline(stages, config, tmp_path).run_dir


def holding(folder: Path, subject: str) -> set[str]:
    """Files with the subject's dialogues."""
    files = (path for path in folder.rglob("*.json*") if f'"subject": "{subject}"' in path.read_text())
    return {path.name for path in files}


EVERYWHERE = {"state.json", "spot_checks.jsonl", "rollouts.jsonl", "alarms.jsonl"}


def test_a_user_is_taken_out_of_a_finished_run_which_stays_finished(
    run: tuple[RunConfig, Path], stages: list[Stage], capsys: pytest.CaptureFixture[str]
) -> None:
    config, folder = run
    gone, stays = TOKENS[:2]
    assert holding(folder, gone) == holding(folder, stays) == EVERYWHERE
    checks = read_spot_checks(folder / "policy" / "train" / "spot_checks.jsonl")
    assert main(["forget", str(folder), gone]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("train: ") and "profiles.jsonl: take the user's line out" in said.err
    assert holding(folder, gone) == set()
    assert holding(folder, stays) == EVERYWHERE
    left = read_spot_checks(folder / "policy" / "train" / "spot_checks.jsonl")
    assert left == [c for c in checks if c["trajectory"]["task"]["features"]["subject"] == stays]
    before = read_run(folder).records
    run_pipeline(stages, config, folder.parent)  # neither refused as changed nor run again
    assert read_run(folder).records == before
    assert main(["forget", str(folder), gone]) == 0
    assert capsys.readouterr().out == "train: 0 stored rollouts, 0 rows of transcripts\n"


def test_what_else_was_changed_in_a_run_is_still_found(
    run: tuple[RunConfig, Path], stages: list[Stage]
) -> None:
    config, folder = run
    (tensors,) = folder.glob("policy/train/training/checkpoint-*/tensors.pt")
    tensors.write_bytes(b"?")
    assert main(["forget", str(folder), TOKENS[0]]) == 0
    with pytest.raises(ConfigError, match=r"tensors\.pt: changed after the stage finished"):
        run_pipeline(stages, config, folder.parent)


def test_forget_says_where_there_is_nothing_to_forget(
    run: tuple[RunConfig, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, folder = run
    for arguments, said in (
        ([str(tmp_path / "none"), "user-0000"], "not a run folder"),
        ([str(folder), ""], "the subject is empty"),
    ):
        assert main(["forget", *arguments]) == 2
        assert said in capsys.readouterr().err
    with run_lock(folder):
        assert main(["forget", str(folder), "user-0000"]) == 2
    assert "is working in this run folder" in capsys.readouterr().err
    (folder / "policy").rename(folder / "other")
    assert main(["forget", str(folder), "user-0000"]) == 2
    assert "no policy was trained here yet" in capsys.readouterr().err


ROW = json.dumps(
    {"messages": [{"content": "Grüße"}], "task": {"features": {"subject": "user-0000"}}}
).encode()
SAID = json.dumps({"messages": [{"content": "Grüße"}]}, ensure_ascii=False).encode()
CUTS = {
    "before the token": SAID[:20],
    "within a character": SAID[: SAID.index("ü".encode()) + 1],
    "after the token": ROW[:-2],
}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize(("token", "whole_rows"), [("user-0000", 1), ("user-0001", 0)])
def test_the_row_that_a_kill_cut_goes_whoever_it_is_of(
    tmp_path: Path, cut: str, token: str, whole_rows: int
) -> None:
    """The dialogue stands first in a row, so a piece of it may not say whose it is."""
    file = tmp_path / "rejected.jsonl"
    file.write_bytes(b'{"task": null}\n' + ROW + b"\n" + CUTS[cut])
    assert forget_subject(tmp_path, token, [tmp_path / "none.jsonl"]) == (0, whole_rows + 1)
    assert file.read_bytes() == b'{"task": null}\n' + (b"" if whole_rows else ROW + b"\n")
    assert forget_subject(tmp_path, token) == (0, 0)


def test_a_last_row_without_its_line_end_that_is_whole_stays(tmp_path: Path) -> None:
    (tmp_path / "rejected.jsonl").write_bytes(ROW)
    assert forget_subject(tmp_path, "user-0001") == (0, 0)
    assert (tmp_path / "rejected.jsonl").read_bytes() == ROW


def test_a_row_in_another_encoding_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "rejected.jsonl"
    rows = b'{"task": null}\n' + SAID.decode().encode("latin-1") + b"\n" + ROW + b"\n"
    file.write_bytes(rows)
    with pytest.raises(DataError, match=r"rejected\.jsonl:2: not UTF-8"):
        forget_subject(tmp_path, "user-0000")
    assert file.read_bytes() == rows


def test_a_token_that_is_a_number_in_the_tasks_goes_too(toy: Any, tmp_path: Path) -> None:
    kept = tmp_path / "rollouts.jsonl"
    options = PolicyConfig(
        iterations=1, tasks_per_iteration=4, group_size=2, rollout=RolloutConfig(max_turn_tokens=4),
        algorithm=ProcessReplayConfig(reuse=1),
    )  # fmt: skip
    toy.trainer(
        tmp_path / "run",
        options,
        tasks=[t.model_copy(update={"features": {"subject": 12345678}}) for t in toy.tasks(4, 3, 3)],
        on_iteration=lambda iteration, _, episodes: write_rollouts(kept, iteration, episodes),
    ).run()
    (state,) = tmp_path.glob("run/checkpoint-*/state.json")
    assert '"subject": "12345678"' in state.read_text() and '"subject": 12345678' in kept.read_text()
    gone = forget_subject(tmp_path / "run", "12345678", [kept])
    assert gone.stored > 0 and gone.transcripts == 8
    assert "12345678" not in state.read_text() + kept.read_text()


def test_what_killed_trainers_left_behind_goes_too(run: tuple[RunConfig, Path]) -> None:
    """Killed before its first checkpoint was whole, or before the last but one was deleted."""
    _, folder = run
    training = folder / "policy" / "train" / "training"
    (newest,) = training.glob("checkpoint-*")
    gone = TOKENS[0]
    for stale in ("checkpoint-1", "checkpoint-9.partial"):
        shutil.copytree(newest, training / stale)
    (folder / "policy" / ".rollouts.jsonl.x.tmp").write_text(f'"subject": "{gone}"')
    assert main(["forget", str(folder), gone]) == 0
    assert [path.name for path in training.glob("checkpoint-*")] == [newest.name]
    assert not [p for p in folder.rglob("*") if p.is_file() and gone.encode() in p.read_bytes()]
    shutil.rmtree(newest)
    assert main(["forget", str(folder), TOKENS[1]]) == 0
    assert holding(folder, TOKENS[1]) == set()
