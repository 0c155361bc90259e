"""What may shape a user's reward: only what was allowed for every use of it, while it lasts."""

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Task, Trajectory
from axiomrm.errors import DataError
from axiomrm.personalization.profile import Clock, Profile, Purpose, profile_of
from axiomrm.policy_opt.reward_build import build_reward
from axiomrm.policy_opt.rewards.config import PersonalRewardConfig
from axiomrm.policy_opt.rewards.personal import PersonalReward, read_profiles
from axiomrm.rm import RewardModel
from axiomrm.rubrics import Rubric

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ANNA, BERT, CORA = "u-3f9a11c2", "u-77b0e4d9", "u-0c0ffee0"
ALL: tuple[Purpose, ...] = ("criteria_generation", "judging", "policy_training")
RUBRIC = """\
schema: atr/1
rubric: {id: brief, version: 1.0.0}
facets: {n: {type: int, range: [0, 2000], probe: word_count}}
defaults: {evidence: {level: turn, reduce: mean}, judge: {kind: constraint}}
axioms: [{id: ax.short, type: premise, statement: Words cost time.}]
theorems:
  - {id: th.short, derived_from: [ax.short], derivation: given, statement: At most nine words., requires: n <= 9}
personal_templates:
  - id: pt.verbosity
    specialises: th.short
    reads: [stated.verbosity]
    params: {limit: {slot: stated.verbosity, map: {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}}}
    statement: "At most {limit} words."
    requires: "n <= {limit}"
    dimension: form
    max_weight: 1
"""


def dialogue(subject: str) -> Trajectory:
    """Two replies that the rubric does not tell apart, and a wish for one word does."""
    said = tuple(Message(role="assistant", content=text) for text in ("yes", "yes, of course"))
    return Trajectory(id=subject, messages=said, task=Task(features={"subject": subject}))


def brief(**fields: Any) -> Profile:
    return profile_of(ANNA, {}).with_value("stated.verbosity", 1, **{"purposes": ALL, **fields})


def is_personal(profile: Profile, clock: Clock = lambda: NOW) -> bool:
    """Whether the wish makes the two replies worth different rewards."""
    source = PersonalReward(RewardModel.programmatic(), Rubric.loads(RUBRIC), {ANNA: profile}, clock=clock)
    (found,) = source([dialogue(ANNA)])
    return found.turns[0] != found.turns[1]


def test_a_value_that_may_serve_every_use_shapes_the_reward() -> None:
    assert is_personal(brief())


@pytest.mark.parametrize("lacking", ALL)
def test_a_value_that_lacks_one_purpose_does_not(lacking: Purpose) -> None:
    assert not is_personal(brief(purposes=tuple(p for p in ALL if p != lacking)))


def test_a_value_that_has_ended_does_not() -> None:
    assert not is_personal(brief(created_at=NOW - timedelta(days=365)))  # the slot lives 365 days
    assert not is_personal(brief(expires_at=NOW))
    assert is_personal(brief(created_at=NOW - timedelta(days=364)))


def test_without_a_clock_the_real_time_counts() -> None:
    profile = {ANNA: brief(created_at=datetime(2019, 1, 1, tzinfo=UTC))}
    source = PersonalReward(RewardModel.programmatic(), Rubric.loads(RUBRIC), profile)
    (found,) = source([dialogue(ANNA)])
    assert found.turns == [0.0, 0.0]


def test_a_value_that_ends_during_a_run_ends_there() -> None:
    time = [NOW]
    source = PersonalReward(
        RewardModel.programmatic(),
        Rubric.loads(RUBRIC),
        {ANNA: brief(expires_at=NOW + timedelta(hours=1))},
        clock=lambda: time[0],
    )
    for later, personal in ((0, True), (59, True), (60, False)):
        time[0] = NOW + timedelta(minutes=later)
        (found,) = source([dialogue(ANNA)])
        assert (found.turns[0] != found.turns[1]) == personal
    time[0] = datetime(2026, 3, 1)
    with pytest.raises(DataError, match="no time zone"):
        source([dialogue(ANNA)])


def write(path: Path, *rows: Any) -> Path:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def row(subject: object, verbosity: object = 2, **fields: Any) -> dict[str, Any]:
    return {"subject": subject, "slots": {"stated.verbosity": verbosity}, "policy_training": True, **fields}


def test_a_profile_of_a_file_may_serve_every_use_of_a_reward(tmp_path: Path) -> None:
    profiles, _ = read_profiles(write(tmp_path / "p.jsonl", row(ANNA, 1)))
    assert set(profiles[ANNA].values[0].purposes) == set(ALL) and is_personal(profiles[ANNA])


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (2, 1, 0)])
def test_any_line_without_consent_takes_its_subject_out(tmp_path: Path, order: tuple[int, ...]) -> None:
    withdrawn = {"subject": BERT, "policy_training": False}
    rows = [row(BERT), withdrawn, row(CORA)]
    profiles, rejected = read_profiles(write(tmp_path / "p.jsonl", *(rows[i] for i in order)))
    assert list(profiles) == [CORA]
    given, refused = order.index(0) + 1, order.index(1) + 1
    assert {r.line: r.reason for r in rejected} == {
        refused: "policy_training is not true: no consent to train on this profile",
        given: f"not used: line {refused}, of the same subject, has no consent to train",
    }
    assert [r.line for r in rejected] == sorted((given, refused))


@pytest.mark.parametrize(
    "refusal",
    [
        {"subject": BERT},
        row(BERT, policy_training="yes"),
        row(BERT, judging=False),
        row(BERT, criteria_generation=False),
        row(BERT, "unknown", policy_training=None),
    ],
)
def test_whatever_is_not_allowed_is_refused(tmp_path: Path, refusal: dict[str, Any]) -> None:
    profiles, rejected = read_profiles(write(tmp_path / "p.jsonl", row(BERT), row(CORA), refusal))
    assert list(profiles) == [CORA] and [r.line for r in rejected] == [1, 3]
    with pytest.raises(
        DataError, match=r"no usable profile among 2 lines; first rejected: .*:1: not used: line 2"
    ):
        read_profiles(write(tmp_path / "q.jsonl", row(BERT), refusal))


def test_a_token_that_is_a_number_withdraws_too(tmp_path: Path) -> None:
    rows = row("12345678"), row(CORA), {"subject": 12345678, "policy_training": False}
    assert list(read_profiles(write(tmp_path / "p.jsonl", *rows))[0]) == [CORA]


def test_no_log_and_no_error_repeats_what_a_line_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = [
        row(ANNA, "I am HIV positive, be gentle"),
        row(BERT) | {"slots": {"stated.hadHIVin2019": True}},
        row("Jane HIV Doe"),
        '{"subject": "u-1", "HIV positive": 1, "HIV positive": 2}',
        '{"subject": "HIV positive", ',
        '["HIV positive"]',
        '{"subject": "u-1", "slots": {"HIV positive": "\\ud800"}}',
    ]
    path = write(tmp_path / "p.jsonl", row(CORA), *secrets)
    config = PersonalRewardConfig(kind="personal", profiles=str(path), rubric="service_desk_steps")
    with caplog.at_level(logging.DEBUG):
        build_reward(config, lambda name: RewardModel.programmatic())
    assert len(caplog.records) == len(secrets) and "HIV" not in caplog.text
    with pytest.raises(DataError) as caught:
        read_profiles(write(tmp_path / "q.jsonl", *secrets))
    assert "HIV" not in str(caught.value)
    _, rejected = read_profiles(path)
    assert [r.line for r in rejected] == [2, 3, 4, 5, 6, 7, 8]
    assert "HIV" not in str(rejected) and rejected[4].reason.startswith("not valid JSON")
