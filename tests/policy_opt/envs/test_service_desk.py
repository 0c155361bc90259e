"""The service desk: solvable, hard for chance, deterministic, with disjoint splits and an oracle that agrees with the verifier."""

import random
from typing import Any

import pytest

from axiomrm.config import SynthesizeConfig
from axiomrm.data.environment import Action
from axiomrm.data.synthesis.rollouts import roll, roll_many, successful
from axiomrm.data.trajectory import Task, ToolCall, Trajectory
from axiomrm.policy_opt.envs.service_desk import KINDS, Expert, Flawed, ServiceDesk, Style, sample_task
from axiomrm.policy_opt.envs.service_desk.oracle import claims
from axiomrm.policy_opt.envs.service_desk.tasks import Split, spec_of
from axiomrm.policy_opt.envs.service_desk.user import asked_slots
from axiomrm.policy_opt.envs.service_desk.world import TOOLS, World
from axiomrm.stages.synthesize import demonstrations, masked, user_wordings


def expert(task: Task, info: dict[str, Any]) -> Expert:
    rng = random.Random(task.id)
    return Expert(rng, Style(rng.randint(1, 3), "casual", rng.random() < 0.5, False, rng.random() < 0.5))


class Chance:
    """Calls random tools with random known strings, or says something that closes the request."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)

    def act(self, history: Any, info: dict[str, Any]) -> Action:
        if self.rng.random() < 0.3:
            return Action(text="Done, all set.")
        name = self.rng.choice(sorted(TOOLS))
        said = [w.strip(".,?") for m in history for w in m.content.split()] or ["x"]
        return Action(
            tool_calls=(ToolCall(name=name, arguments={a: self.rng.choice(said) for a in TOOLS[name]}),)
        )


@pytest.mark.parametrize("split", ["train", "dev", "heldout"])
def test_the_expert_always_succeeds(split: Split) -> None:
    found = roll_many(ServiceDesk, expert, [sample_task(split, i) for i in range(60)])
    assert len(successful(found)) == 60


def test_chance_almost_never_succeeds() -> None:
    found = roll_many(ServiceDesk, lambda t, _: Chance(t.id), [sample_task("dev", i) for i in range(60)])
    assert len(successful(found)) <= 1


def test_every_kind_is_drawn_and_turns_range_from_2_to_16() -> None:
    found = roll_many(ServiceDesk, expert, [sample_task("train", i) for i in range(400)])
    assert {t.task.type for t in found} == {*KINDS, "compound"}
    lengths = {len(t.turns) for t in found}
    assert min(lengths) == 2
    assert max(lengths) in (14, 15, 16)


def test_an_episode_repeats_to_the_byte() -> None:
    a, b = (roll(ServiceDesk(), expert, sample_task("train", 7)) for _ in range(2))
    assert a.model_dump_json() == b.model_dump_json()


def test_the_unseen_kind_and_the_unseen_wordings_stay_unseen() -> None:
    train, held = (
        roll_many(ServiceDesk, expert, [sample_task(s, i) for i in range(200)]) for s in ("train", "heldout")
    )
    assert not user_wordings(train) & user_wordings(held)
    assert "return" in {t.task.type for t in held}
    with pytest.raises(ValueError, match="return"):
        sample_task("train", 0, "return")


def test_a_thousand_dialogues_are_distinct_after_masking() -> None:
    found = roll_many(
        ServiceDesk,
        lambda t, _: Flawed(random.Random(t.id), rate=0.3),
        [sample_task("train", i) for i in range(1250)],
    )
    assert len({masked(t) for t in found}) >= 1000


def test_an_episode_without_a_wrong_turn_succeeds_and_wrong_writes_fail() -> None:
    found = roll_many(
        ServiceDesk,
        lambda t, _: Flawed(random.Random(t.id), rate=0.2),
        [sample_task("train", i) for i in range(150)],
    )
    clean = [t for t in found if min(t.metadata["oracle"]) >= 0]
    assert len(successful(clean)) == len(clean) > 25
    broken = [t for t in found if {"false_report", "premature"} & set(t.metadata["assessments"])]
    assert len(broken) > 10
    assert not successful(broken)


def desk(kind: str, seed: int = 3) -> tuple[ServiceDesk, dict[str, Any]]:
    env = ServiceDesk()
    _, info = env.reset(task=sample_task("train", seed, kind))
    return env, info


def test_acting_before_the_pin_is_checked_is_a_breach_and_costs_the_episode() -> None:
    env, _ = desk("cancel")
    order = env.spec.requests[0].values["order"]
    env.world.timeout_at = None
    env.world.db.execute("UPDATE orders SET status = 'packed' WHERE id = ?", (order,))
    *_, info = env.step(Action(tool_calls=(ToolCall(name="cancel", arguments={"order": order}),)))
    assert info["oracle_turn"] == -1
    assert info["assessment"] == "unverified"
    assert env.bad_writes == 1
    assert env.outcome() == 0.0


def test_a_call_that_cannot_be_read_is_an_observation_not_a_crash() -> None:
    env, _ = desk("status")
    observation, reward, over, cut, info = env.step(Action(error="the tool call is not JSON"))
    assert observation.messages[0].content == "error the tool call is not JSON"
    assert reward is None
    assert not over
    assert not cut
    assert info["error_kind"] == "bad_call"


def test_a_timeout_goes_away_and_the_repeat_is_right() -> None:
    env, _ = desk("stock_check")
    env.world.timeout_at = 1
    item = env.spec.requests[0].values["item"]
    call = Action(tool_calls=(ToolCall(name="stock", arguments={"item": item}),))
    first, *_, info = env.step(call)
    assert first.messages[0].content == "error timeout try again"
    assert info["oracle_turn"] == 1
    again, *_, info = env.step(call)
    assert again.messages[0].content.endswith("left")
    assert info["oracle_turn"] == 1
    assert env.step(call)[-1]["assessment"] == "redundant"


def test_a_badly_written_order_number_comes_back_corrected() -> None:
    world = World([], [("K42", "Maria", "lamp", "packed", "Oslo", 30)], [])
    assert world.call("find", {"order": "k-42"}) == "error format use K42"
    assert world.call("find", {"order": "K42"}) == "lamp packed to Oslo paid 30"
    assert world.call("find", {"order": "K43"}) == "error no order K43"
    assert world.call("find", {"nr": "K42"}) == "error find wants order"
    assert world.call("fly", {}) == "error no tool fly"


def test_two_customers_of_one_name_need_the_home_town() -> None:
    world = World([("Maria", "123", "Oslo", "mail"), ("Maria", "123", "Rome", "mail")], [], [])
    assert world.call("verify", {"name": "Maria", "pin": "123"}) == "error two match give home"
    assert world.call("verify", {"name": "Maria", "pin": "123", "home": "Rome"}) == "ok"
    assert world.call("verify", {"name": "Maria", "pin": "123", "home": "Lima"}) == "error wrong pin"


def test_the_turn_limit_truncates_and_the_verifier_still_speaks() -> None:
    env = ServiceDesk(turn_limit=1)
    env.reset(task=sample_task("train", 3, "status"))
    *_, over, cut, info = env.step(Action(text="What is your name? Tell me your name."))
    assert (over, cut, info["outcome"], info["ending"]) == (False, True, 0.0, "turn_limit")


def test_what_a_question_asks_and_what_a_text_claims() -> None:
    assert asked_slots("May I have your name and your pin?") == ("name", "pin")
    assert asked_slots("Tell me your name.") == ()
    found = claims("Maria, order K42 is shipped to Oslo, 3 lamp pieces.")
    assert found == {
        "order": {"K42"},
        "number": {"3"},
        "status": {"shipped"},
        "city": {"Oslo"},
        "item": {"lamp"},
        "name": {"Maria"},
    }


def test_a_wrong_city_in_the_last_reply_is_a_false_report() -> None:
    agent = Flawed(random.Random(1), rate=1.0, kinds=("misreport",))
    found = [roll(ServiceDesk(), lambda *_: agent, sample_task("train", i, "address")) for i in range(20)]
    told = [t for t in found if "false_report" in t.metadata["assessments"]]
    assert told
    for t in told:
        label = t.metadata["labels"][len(t.turns) - 1]["sd.true_report"]
        assert label["value"] is False


def test_texts_with_further_faults_call_some_users_by_a_wrong_name() -> None:
    def agent(task: Any, _: Any) -> Flawed:
        return Flawed(random.Random(task.id), Style(use_name=True), rate=0.0, extra=0.5)

    found = roll_many(ServiceDesk, agent, [sample_task("train", i) for i in range(60)])
    labels = [
        turn["sd.right_name"] for t in found for turn in t.metadata["labels"] if "sd.right_name" in turn
    ]
    wrong = [label for label in labels if not label["value"]]
    assert 0.4 < len(wrong) / len(labels) < 0.6


def test_a_trajectory_keeps_its_labels_through_a_file(tmp_path: Any) -> None:
    from axiomrm.data.writing import write_trajectories

    t = roll(ServiceDesk(), expert, sample_task("train", 5))
    write_trajectories(tmp_path / "t.jsonl", [t])
    (back,) = Trajectory.read(tmp_path / "t.jsonl")
    assert back.metadata["labels"] == t.metadata["labels"]
    assert spec_of(back.task) == spec_of(t.task)


@pytest.mark.parametrize(("share", "flawed"), [(0.0, 0), (0.5, 20), (1.0, 40)])
def test_demonstrations_of_a_slipping_agent_are_kept_if_they_succeed(share: float, flawed: int) -> None:
    demos = demonstrations("train", 40, SynthesizeConfig(flawed_demos=share), seed=0)
    by_flawed = [t for t in demos if t.metadata["agent"] == "flawed"]
    assert len(demos) - len(by_flawed) == 40 - flawed
    assert all(t.outcome is not None and t.outcome.score == 1 for t in demos)
    assert bool(flawed) == any(-1 in t.metadata["oracle"] for t in demos)  # slips that were made good
    assert len(by_flawed) < flawed or not flawed  # and some were not


def test_a_demonstrator_that_slips_more_often_leaves_more_slips_and_fewer_demonstrations() -> None:
    rare, often = (
        demonstrations("train", 60, SynthesizeConfig(flawed_demos=1, demo_flaw_rate=rate), seed=0)
        for rate in (0.1, 0.5)
    )
    assert len(often) < len(rare)
    slips = [sum(t.metadata["oracle"].count(-1) for t in demos) / len(demos) for demos in (rare, often)]
    assert slips[1] > 2 * slips[0]


@pytest.mark.parametrize("split", ["held_out", "test", "", None])
def test_a_split_that_is_none_is_refused(split: Any) -> None:
    with pytest.raises(ValueError, match=r"^split .* is not one of train, dev, heldout$"):
        sample_task(split, 0)
    task = sample_task("heldout", 0)
    with pytest.raises(ValueError, match=r"^split .* is not one of train, dev, heldout$"):
        spec_of(task.model_copy(update={"payload": {**task.payload, "split": split}}))
