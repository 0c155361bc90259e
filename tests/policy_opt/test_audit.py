import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axiomrm.cli import main
from axiomrm.data.trajectory import Message, Outcome, ToolCall, Trajectory
from axiomrm.data.writing import write_trajectories
from axiomrm.errors import DataError
from axiomrm.policy_opt.association import correlation, partial_correlation
from axiomrm.policy_opt.audit.rollouts import audit
from axiomrm.policy_opt.criterion_shares import criterion_shares
from axiomrm.policy_opt.monitoring.spot_checks import pick
from axiomrm.policy_opt.rewards.base import TurnScores

NAN = math.nan


def sure(value: float | None) -> float:
    assert value is not None
    return value


def rollouts(
    flip: float, *, groups: int = 40, n: int = 6, seed: int = 0, filler: float = 0.0
) -> list[Trajectory]:
    """Each turn is right or not; the outcome is 1 if at least three of four are; the judge flips at a rate."""
    rng = np.random.default_rng(seed)
    made = []
    for g in range(groups):
        for i in range(n):
            right = rng.random(4) < 0.7
            told = np.where(rng.random(4) < flip, ~right, right).astype(float)
            chat = np.where(right, rng.random(4) < 0.2, rng.random(4) < 0.8).astype(float)
            rewards = (1 - filler) * told + filler * chat
            parts = [
                {"step": (1 - filler) * a, "filler": filler * b} for a, b in zip(told, chat, strict=True)
            ]
            messages = [Message(role="assistant", content=f"word {rng.integers(10**6)}") for _ in range(4)]
            made.append(
                Trajectory(
                    messages=tuple(messages), id=f"{g}/{i}", group_id=str(g), outcome=Outcome(score=float(right.sum() > 2)),
                    turn_rewards=tuple(rewards), metadata={"turn_parts": parts} if filler else {},
                )
            )  # fmt: skip
    return made


@pytest.mark.parametrize("seed", range(3))
def test_the_oracle_is_ok_and_a_judge_that_flips_a_coin_is_not(seed: int) -> None:
    oracle, coin = audit(rollouts(0.0, seed=seed)), audit(rollouts(0.5, seed=seed))
    assert oracle.verdict == "ok" and oracle.suggested_beta == 0.5 and sure(oracle.disc.value) > 0.7
    assert coin.verdict != "ok" and coin.suggested_beta < 0.1
    assert sure(coin.disc.low) < 0.05 < sure(oracle.disc.low)


def test_a_judge_that_is_mostly_wrong_is_harmful() -> None:
    found = audit(rollouts(0.9))
    assert found.verdict == "harmful" and found.suggested_beta == 0.0 and sure(found.disc.high) < 0


def test_a_criterion_that_goes_against_the_outcome_is_named_though_the_sum_still_predicts_it() -> None:
    found = audit(rollouts(0.0, filler=0.4))
    assert sure(found.disc.low) > 0.05
    assert found.verdict == "harmful" and any("'filler' goes against" in r for r in found.reasons)
    assert sure(found.items["step"].disc.low) > 0.5
    assert sum(sure(item.variance_share) for item in found.items.values()) == pytest.approx(1.0)


def test_few_groups_are_weak_whatever_they_say() -> None:
    found = audit(rollouts(0.0, groups=5))
    assert found.verdict == "weak" and "are needed" in found.reasons[0]


def test_single_rollouts_are_pooled_and_said_to_be() -> None:
    found = audit(rollouts(0.0, groups=80, n=1))
    assert found.pooled and found.disc.n == 80 and found.verdict == "ok"


def test_missing_rewards_are_counted_by_reason_and_a_share_of_failures_is_weak() -> None:
    made = []
    for i, t in enumerate(rollouts(0.0)):
        reasons: list[str | None] = ["failed:timeout" if i % 2 else "cannot_assess:hidden", None, None, None]
        rewards = (NAN, *(t.turn_rewards or ())[1:])
        made.append(t.model_copy(update={"turn_rewards": rewards, "metadata": {"turn_missing": reasons}}))
    found = audit(made)
    assert found.missing == {"failed:timeout": 120, "cannot_assess:hidden": 120}
    assert found.missing_share == 0.25 and found.failed_share == 0.125
    assert found.verdict == "weak" and any("failed" in r for r in found.reasons)


def test_no_outcome_is_nothing_to_predict_and_no_reward_is_an_error() -> None:
    blind = [t.model_copy(update={"outcome": None}) for t in rollouts(0.0)]
    found = audit(blind)
    assert found.verdict == "weak" and found.disc.value is None and found.success is None
    with pytest.raises(DataError, match="turn_rewards"):
        audit([t.model_copy(update={"turn_rewards": None}) for t in blind])


def asked(name: str, state: str, answer: str, *, group: str = "g", error: str | None = None) -> Trajectory:
    call = ToolCall(name="stock", arguments={"item": "lamp"}, id="c1")
    messages = (
        Message(role="assistant", tool_calls=(call,)),
        Message(role="tool", content=answer, tool_call_id="c1", name="stock"),
        Message(role="assistant", content=f"done {name}"),
    )
    turns = [{"state_key": state + "+", "error_kind": error}, {"state_key": state + "+"}]
    return Trajectory(
        messages=messages, id=name, group_id=group, outcome=Outcome(score=1.0), turn_rewards=(1.0, 1.0),
        metadata={"reset": {"state_key": state}, "turns": turns},
    )  # fmt: skip


def test_a_tool_that_answers_one_call_in_one_state_differently_is_caught() -> None:
    found = audit([asked("a", "s", "3 left"), asked("b", "s", "5 left")])
    (lie,) = found.lying_tools
    assert (lie.tool, lie.answers, lie.where) == ("stock", ("3 left", "5 left"), ("a t1", "b t1"))
    assert any("'stock'" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    "other",
    [
        asked("b", "s", "3 left"),
        asked("b", "after a write", "5 left"),
        asked("b", "s", "5 left", group="another task"),
        asked("b", "s", "error time out", error="timeout"),
    ],
)
def test_an_equal_answer_another_state_another_task_and_an_error_are_no_lie(other: Trajectory) -> None:
    assert audit([asked("a", "s", "3 left"), other]).lying_tools == ()


def test_without_states_only_a_call_repeated_at_once_counts() -> None:
    def log(*answers: str, between: str = "") -> Trajectory:
        messages: list[Message] = []
        for i, answer in enumerate(answers):
            names = ["stock"] if not (between and i) else [between, "stock"]
            for k, name in enumerate(names):
                call = ToolCall(name=name, arguments={}, id=f"{i}.{k}")
                text = answer if name == "stock" else "written"
                messages += [
                    Message(role="assistant", tool_calls=(call,)),
                    Message(role="tool", content=text, tool_call_id=f"{i}.{k}", name=name),
                ]
        n = sum(m.role == "assistant" for m in messages)
        return Trajectory(messages=tuple(messages), id="x", turn_rewards=(1.0,) * n)

    assert len(audit([log("3", "5")]).lying_tools) == 1
    assert audit([log("3", "5", between="sell")]).lying_tools == ()


def test_spot_checks_name_rewarded_failures_first() -> None:
    rows = [
        t.model_copy(update={"id": name, "turn_rewards": (reward,) * 4, "outcome": Outcome(score=outcome)})
        for t, name, reward, outcome in zip(
            rollouts(0.0, groups=1, n=4), "abcd", (0.9, 0.1, 0.8, 0.2), (0.0, 1.0, 1.0, 0.0), strict=True
        )
    ]
    found = {check.trajectory.id: check.why for check in pick(rows, kept=1)}
    assert found == {"a": "failed, but rewarded most", "b": "solved, but rewarded least"}


def test_partial_correlation_takes_the_outcome_out() -> None:
    outcome = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]
    # both follow the outcome alone: correlated 1, at equal outcome not at all
    noise = [0.1, -0.1, 0.0, 0.1, -0.1, 0.0]
    x = [o + e for o, e in zip(outcome, noise, strict=True)]
    y = [o + e for o, e in zip(outcome, [0.1, 0.1, -0.2, 0.1, 0.1, -0.2], strict=True)]
    assert correlation(x, y) > 0.9 and partial_correlation(x, y, outcome) == pytest.approx(0.0, abs=1e-9)
    assert math.isnan(correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]))


def test_shares_of_variance_add_up_by_hand() -> None:
    rows = [{"a": 0.0, "b": 0.0}, {"a": 2.0, "b": 0.0}, {"a": 0.0, "b": 1.0}, {"a": 2.0, "b": 1.0}]
    assert criterion_shares([1.0] * 4, rows) == pytest.approx(
        {"a": 0.8, "b": 0.2}
    )  # variances 1 and 0.25, independent
    assert criterion_shares([1.0] * 3, [{"a": 1.0}, {"a": 2.0}, {"a": 3.0}]) == {}


# --- the command --------------------------------------------------------------------------------------------


def run(path: Path, *options: str, capsys: Any) -> tuple[int, str, str]:
    code = main(["audit", str(path), *options])
    told = capsys.readouterr()
    return code, told.out, told.err


def test_the_command_exits_with_the_grade(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write_trajectories(tmp_path / "good.jsonl", rollouts(0.0))
    write_trajectories(tmp_path / "bad.jsonl", rollouts(0.5))
    code, out, _ = run(tmp_path / "good.jsonl", capsys=capsys)
    assert code == 0 and out.startswith("ok: 240 rollouts of 40 tasks") and "read these:" in out
    code, out, _ = run(tmp_path / "bad.jsonl", "--json", "--out", "found.json", capsys=capsys)
    assert code == 1 and json.loads(out)["verdict"] in ("weak", "harmful")
    assert json.loads((tmp_path / "found.json").read_text()) == json.loads(out)


def test_the_command_asks_a_rubric_and_keeps_bad_records(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "r.jsonl"
    write_trajectories(path, [t.model_copy(update={"turn_rewards": None}) for t in rollouts(0.0, groups=3)])
    path.write_text(path.read_text() + '{"messages": 3}\n')
    code, out, err = run(path, "--rubric", "process_shaping", capsys=capsys)
    assert code == 1 and "th.right_tool" in out and "1 records rejected" in err
    assert json.loads((tmp_path / "r.rejected.jsonl").read_text())["line"] == 19


def test_what_the_user_got_wrong_exits_with_2(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(tmp_path / "none.jsonl", capsys=capsys)[0] == 2
    write_trajectories(
        tmp_path / "r.jsonl", [t.model_copy(update={"turn_rewards": None}) for t in rollouts(0.0, groups=1)]
    )
    code, _, err = run(tmp_path / "r.jsonl", capsys=capsys)
    assert code == 2 and "turn_rewards" in err
    code, _, err = run(tmp_path / "r.jsonl", "--rubric", "service_desk_steps", capsys=capsys)
    assert code == 2 and "judge model" in err


def test_nothing_that_is_there_is_written_over(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "r.jsonl"
    write_trajectories(path, rollouts(0.0, groups=3))
    before = path.read_bytes()
    for out, told in (("r.jsonl", "overwrite"), ("nowhere/x.json", "no folder"), (".", "a folder")):
        code, _, err = run(path, "--out", out, capsys=capsys)
        assert code == 2 and told in err
    assert path.read_bytes() == before and not (tmp_path / "nowhere").exists()
    path.write_text(path.read_text() + "{broken\n")
    (tmp_path / "r.rejected.jsonl").write_text("notes of the user\n")
    code, _, err = run(path, capsys=capsys)
    assert code == 2 and "r.rejected.jsonl" in err
    assert (tmp_path / "r.rejected.jsonl").read_text() == "notes of the user\n"


def test_a_judge_without_a_rubric_is_an_error(tmp_path: Path, capsys: Any) -> None:
    write_trajectories(tmp_path / "r.jsonl", rollouts(0.0, groups=3))
    code, _, err = run(tmp_path / "r.jsonl", "--model", "/nope", capsys=capsys)
    assert code == 2 and "--rubric" in err


def test_a_rubric_that_answers_for_no_turn_is_told_with_its_reasons() -> None:
    made = rollouts(0.0, groups=1, n=2)
    none = [
        TurnScores([NAN] * 4, ["cannot_assess:coverage"] * 4, "judge", "rubric", level="turn") for _ in made
    ]
    with pytest.raises(DataError, match=r"none of 2 rollouts .* cannot_assess:coverage \(8 turns\)"):
        audit(made, none)
