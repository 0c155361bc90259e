import math
from typing import Any

import numpy as np
import pytest

from axiomrm.data.environment import Action, Observation
from axiomrm.data.trajectory import Message
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.engines.transformers import TransformersSampler
from axiomrm.policy_opt.packing import extends
from axiomrm.policy_opt.records import check_tokens
from axiomrm.policy_opt.rollouts.limits import RolloutLimits
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests

LIMITS = RolloutLimits(max_turns=8, max_turn_tokens=4)


def roll(
    toy: Any, *, env: Any = None, model: Any = None, limits: RolloutLimits = LIMITS, n: int = 4, seed: int = 0
) -> Any:
    model = model or toy.warm()
    sampler = TransformersSampler(model, toy.chat.end_ids)
    requests = group_requests(toy.tasks(3, 3, 3), n, "it0")
    return collect(sampler, toy.chat, env or (lambda: toy.env(3)), requests, limits=limits, seed=seed)


def test_an_episode_is_one_row_of_ids_that_grows_at_its_end(toy: Any) -> None:
    for episode in roll(toy):
        record = episode.record
        check_tokens(record)
        (ids,) = record.segments
        rebuilt: list[int] = []
        users = [m for m in episode.trajectory.messages if m.role == "user"]
        for t, step in enumerate(record.steps):
            prompt = [*rebuilt, *toy.chat.prompt_ids([users[t]], (), t == 0)]
            assert extends(prompt, rebuilt)
            assert step.start == len(prompt)
            rebuilt = [*prompt, *record.action_ids(step).tolist()]
        assert rebuilt == ids.tolist()


def test_rewards_outcomes_and_infos_are_kept_as_the_environment_gave_them(toy: Any) -> None:
    done = [e for e in roll(toy) if e.record.ending == "done"]
    assert done
    for episode in done:
        rewards = [s.r_local for s in episode.record.steps]
        assert episode.record.outcome == float(sum(rewards) == 3)
        assert [i["oracle_turn"] for i in episode.trajectory.metadata["turns"]] == [
            1 if r else -1 for r in rewards
        ]
        assert episode.trajectory.outcome.score == episode.record.outcome
        assert len(episode.trajectory.turns) == len(rewards)


def test_the_same_seed_gives_the_same_episodes_whatever_the_batch(toy: Any) -> None:
    a = roll(toy)
    b = roll(toy, limits=RolloutLimits(max_turns=8, max_turn_tokens=4, max_live=5))
    c = roll(toy, seed=1)
    same = [x.record.segments[0].tolist() == y.record.segments[0].tolist() for x, y in zip(a, b, strict=True)]
    assert all(same)
    assert [x.record.segments[0].tolist() for x in a] != [x.record.segments[0].tolist() for x in c]
    for x, y in zip(a, b, strict=True):
        for s, t in zip(x.record.steps, y.record.steps, strict=True):
            np.testing.assert_allclose(s.behaviour_logprobs, t.behaviour_logprobs, atol=1e-5)


def test_rollouts_of_one_task_differ(toy: Any) -> None:
    first = [e.record.segments[0].tolist() for e in roll(toy, n=8)[:8]]
    assert len({tuple(ids) for ids in first}) > 1


class NoVerifier:
    """Never ends, and cannot verify on demand."""

    def reset(self, *, seed: Any = None, task: Any = None) -> Any:
        return Observation((Message(role="user", content="1"),)), {}

    def step(self, action: Action) -> Any:
        return Observation((Message(role="user", content="2"),)), None, False, False, {}

    def close(self) -> None: ...


def test_a_length_stop_ends_the_episode_as_token_limit_and_the_outcome_is_missing(toy: Any) -> None:
    (episode,) = roll(
        toy, env=NoVerifier, model=toy.model(seed=5), limits=RolloutLimits(max_turn_tokens=1), n=1
    )[:1]
    assert episode.record.steps[-1].n_tokens == 1
    assert (episode.record.ending, episode.record.terminated, episode.record.truncated) == (
        "token_limit",
        False,
        True,
    )
    assert math.isnan(episode.record.r_global)


def test_a_cut_episode_is_verified_as_it_is_where_the_environment_can(toy: Any) -> None:
    (episode,) = roll(toy, model=toy.model(seed=5), limits=RolloutLimits(max_turn_tokens=1), n=1)[:1]
    assert episode.record.ending == "token_limit" and episode.record.outcome == 0.0


def test_turn_and_episode_limits_have_their_own_endings(toy: Any) -> None:
    turns = roll(toy, env=NoVerifier, limits=RolloutLimits(max_turns=2, max_turn_tokens=8))
    assert {e.record.ending for e in turns if len(e.record.steps) == 2} == {"turn_limit"}
    tokens = roll(toy, env=NoVerifier, limits=RolloutLimits(max_turn_tokens=8, max_episode_tokens=12))
    assert {e.record.ending for e in tokens} == {"token_limit"}
    assert max(len(e.record.segments[0]) for e in tokens) <= 12 + 3


class Breaks(NoVerifier):
    def step(self, action: Action) -> Any:
        raise RuntimeError("the database is gone")


def test_a_task_whose_first_prompt_is_too_long_is_named_and_the_others_go_on(
    toy: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class LongPrompts(toy.env):  # type: ignore[misc]  # a class in a fixture
        def reset(self, *, seed: Any = None, task: Any = None) -> Any:
            observation, info = super().reset(seed=seed, task=task)
            told = "0 " * (9 if task.id == "copy1" else 1)
            return Observation((Message(role="user", content=told), *observation.messages)), info

    short = RolloutLimits(max_turn_tokens=2, max_episode_tokens=14)
    episodes = roll(toy, n=2, env=LongPrompts, limits=short)
    assert [e.record.task_id for e in episodes if not e.record.steps] == ["copy1", "copy1"]
    assert [r.getMessage() for r in caplog.records] == [
        "task 'copy1': its first prompt has 14 tokens, and rollout.max_episode_tokens=14 leaves no room for a turn, "
        "so its rollouts cannot begin; raise the limit, as far as the model's positions go, or shorten the prompt"
    ]  # fmt: skip


def test_rollouts_of_which_none_can_begin_are_an_error(toy: Any) -> None:
    says = r"none of 12 rollouts can begin: task 'copy.': its first prompt has 4 tokens.*max_episode_tokens=4 leaves"
    with pytest.raises(ConfigError, match=says):
        roll(toy, limits=RolloutLimits(max_turn_tokens=2, max_episode_tokens=4, max_live=3))
    assert all(
        e.record.steps for e in roll(toy, limits=RolloutLimits(max_turn_tokens=2, max_episode_tokens=5))
    )


def test_an_environment_that_raises_is_recorded_and_the_others_go_on(toy: Any) -> None:
    made = iter([Breaks(), *(toy.env(3) for _ in range(100))])
    episodes = roll(toy, env=lambda: next(made))
    assert episodes[0].record.ending == "env_error" and math.isnan(episodes[0].record.outcome)
    assert "database is gone" in episodes[0].trajectory.metadata["turns"][-1]["detail"]
    assert any(e.record.ending == "done" for e in episodes[1:])


class Rewrites(NoVerifier):
    """Summarises the history on the second turn."""

    def __init__(self) -> None:
        self.turn = 0

    def step(self, action: Action) -> Any:
        self.turn += 1
        message = Message(role="user", content="2 2")
        return (
            Observation((message,), full_prompt=self.turn == 1),
            0.5,
            self.turn == 3,
            False,
            {"outcome": 1.0},
        )


def test_a_rewritten_history_opens_a_new_segment_with_the_whole_prompt(toy: Any) -> None:
    done = [e.record for e in roll(toy, env=Rewrites, n=8) if e.record.ending == "done"]
    assert done
    for record in done:
        check_tokens(record)
        assert [s.segment for s in record.steps] == [0, 1, 1]
        assert record.segments[1][:2].tolist() == [2, 3]
        assert record.steps[1].start == 5


@pytest.mark.parametrize("bad", [[-0.1] * 3, [-0.1, -0.2, float("nan"), -0.1]])
def test_ids_and_logprobs_that_do_not_belong_together_are_refused(toy: Any, bad: list[float]) -> None:
    record = next(e.record for e in roll(toy) if e.record.steps[0].n_tokens == 2)
    record.steps[0].behaviour_logprobs = np.asarray(bad, dtype=np.float32)
    with pytest.raises(ValueError, match=r"2 ids, \d log-probs|not finite"):
        check_tokens(record)


class Nears(NoVerifier):
    """Tells how far the task is: 0, then a quarter more a turn; over after ``turns``."""

    turns = 2

    def __init__(self) -> None:
        self.turn = 0

    def reset(self, *, seed: Any = None, task: Any = None) -> Any:
        return super().reset()[0], {"progress": 0.0}

    def step(self, action: Action) -> Any:
        self.turn += 1
        told = {"progress": self.turn / 4}
        return super().step(action)[0], None, self.turn == self.turns, False, told


def progress_of(episode: Any) -> list[float]:
    return [*(s.progress for s in episode.record.steps), episode.record.final_progress]


def test_the_progress_after_the_last_turn_is_kept(toy: Any) -> None:
    done = [e for e in roll(toy, env=Nears) if e.record.ending == "done"]
    assert done and all(progress_of(e) == [0.0, 0.25, 0.5] for e in done)
    limit = RolloutLimits(max_turns=1, max_turn_tokens=4)
    cut = [e for e in roll(toy, env=Nears, limits=limit) if e.record.ending == "turn_limit"]
    assert cut and all(progress_of(e) == [0.0, 0.25] for e in cut)


def test_a_turn_that_the_environment_never_saw_leads_to_an_unknown_state(toy: Any) -> None:
    limits = RolloutLimits(max_turn_tokens=1)
    (episode,) = roll(toy, env=Nears, model=toy.model(seed=5), limits=limits, n=1)[:1]
    assert episode.record.ending == "token_limit" and math.isnan(episode.record.final_progress)


class Crashes(Nears):
    def close(self) -> None:
        raise RuntimeError("gone")


def test_of_an_episode_that_failed_no_progress_is_kept(toy: Any) -> None:
    for episode in roll(toy, env=Crashes, n=1):
        assert episode.record.ending == "env_error" and math.isnan(episode.record.final_progress)
