from axiomrm.data.trajectory import Message, Outcome, ToolCall, Trajectory
from axiomrm.policy_opt.envs.service_desk.criteria import Label
from axiomrm.policy_opt.rewards.judge import programmatic_reward
from axiomrm.policy_opt.rollouts.infos import outcome_metrics, plain_info
from axiomrm.rubrics import Rubric


def told(*tools: str, steps: int = 0) -> dict[str, object]:
    return {"metrics": {"expected_tools": list(tools), "steps": steps}}


def test_the_tools_that_are_right_next_become_those_that_were_right_at_each_turn() -> None:
    found = outcome_metrics(told("verify"), [told("find", steps=1), told(steps=2)])
    assert found == {"expected_tools": [["verify"], ["find"]], "steps": 2}


def test_what_was_not_told_stays_out() -> None:
    assert outcome_metrics({}, [{"metrics": {"steps": 3}}]) == {"steps": 3}
    assert outcome_metrics({}, [{"error_kind": "token_limit"}]) == {} == outcome_metrics({}, [])
    # a turn after an info without metrics: unknown, not "no tool is right"
    assert outcome_metrics(told("a"), [{"error_kind": "x"}, told("b")])["expected_tools"] == [["a"], None]
    assert plain_info({"state_key": "s", "desk": object(), "outcome": None}) == {"state_key": "s"}


def test_labels_are_kept_as_files_hold_them() -> None:
    kept = plain_info({"labels": {"sd.step": Label(False, "it closes too early", "Bye.")}})
    assert kept == {"labels": {"sd.step": {"value": False, "note": "it closes too early", "quote": "Bye."}}}


def test_the_shaping_rubric_reads_them() -> None:
    calls = [ToolCall(name=name, arguments={"q": "x"}) for name in ("verify", "verify")]
    said = tuple(Message(role="assistant", tool_calls=(call,)) for call in calls)
    metrics = outcome_metrics(told("verify"), [told("find"), told()])
    trajectory = Trajectory(messages=said, outcome=Outcome(score=1.0, metrics=metrics))
    (found,) = programmatic_reward(Rubric.load("process_shaping"))([trajectory])
    assert [parts["th.right_tool"] > 0 for parts in found.parts] == [True, False]
