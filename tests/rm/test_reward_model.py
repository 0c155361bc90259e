import json
from collections.abc import Callable
from typing import Any

import pytest

from axiomrm.data.trajectory import Message, Task, Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.errors import ConfigError, DataError
from axiomrm.rm import Criterion, Judgement, RewardModel, VerdictRequest, read_judge_card, write_judge_card
from axiomrm.rm.card import CARD_FILE
from axiomrm.rm.criteria import criterion_of, settled
from axiomrm.rubrics import Rubric

RUBRIC = """
schema: atr/1
rubric: {id: shop, version: 1.0.0}
features:
  vip: {type: bool, default: false}
facets:
  len_words: {type: int, range: [0, 2000], probe: word_count}
defaults: {weight: 1, judge: {kind: llm}}
axioms:
  - {id: ax.help, statement: The user came with a purpose., type: premise}
  - {id: ax.calm, statement: Stays calm., type: soft, caps: {minor: 0.8, major: 0.5}, detector: {kind: llm}}
theorems:
  - {id: th.done, derived_from: [ax.help], derivation: purpose, statement: The request is settled., weight: 2}
  - {id: th.vip, derived_from: [ax.help], derivation: rank, statement: Greets the guest., applies_when: vip}
  - id: th.turn
    derived_from: [ax.help]
    derivation: each turn counts
    statement: This turn helps.
    evidence: {level: turn, reduce: mean}
  - id: th.short
    derived_from: [ax.help]
    derivation: time counts
    statement: At most five words.
    requires: len_words <= 5
    evidence: {level: turn, reduce: mean}
    judge: {kind: constraint}
"""


def dialogue(*said: str, **fields: Any) -> Trajectory:
    roles: tuple[Any, Any] = ("user", "assistant")
    messages = tuple(Message(role=roles[i % 2], content=s) for i, s in enumerate(said))
    return Trajectory(messages=messages, **{"id": "d1", **fields})


@pytest.fixture(scope="module")
def rubric() -> Rubric:
    return Rubric.loads(RUBRIC, "shop.yaml")


@pytest.fixture(scope="module")
def judge(tiny_llama: Any, tiny_tokenizer: Any) -> RewardModel:
    return RewardModel.from_model(tiny_llama, tiny_tokenizer, min_mass=0.0)


TALK = dialogue("hi", "Hello there.", "order 12?", "It is on its way to you right now.")


def test_a_judgement_holds_every_item_that_applies_and_one_entry_a_turn(
    judge: RewardModel, rubric: Rubric
) -> None:
    found = judge.score(TALK, rubric)
    assert set(found.verdicts) == {"ax.calm", "th.done"}
    assert [set(t.verdicts) for t in found.turns] == [{"th.turn", "th.short"}] * 2
    short = [t.verdicts["th.short"] for t in found.turns]
    assert [v.value for v in short if isinstance(v, Scored)] == [1.0, 0.0]
    assert found.usage["model_verdicts"] == 4
    assert found.usage["prompt_tokens"] < found.usage["unshared_tokens"]
    vip = judge.score(TALK.model_copy(update={"task": Task(features={"vip": True})}), rubric)
    assert "th.vip" in vip.verdicts


def test_a_turn_reward_does_not_change_when_later_turns_are_edited(
    judge: RewardModel, rubric: Rubric
) -> None:
    edited = dialogue("hi", "Hello there.", "order 12?", "No idea, go away, I will not tell you.")
    first, second = judge.score(TALK, rubric).turns[0], judge.score(edited, rubric).turns[0]
    assert first.reward is not None and second.reward is not None
    assert first.reward == pytest.approx(second.reward, abs=1e-5)


def test_batches_change_nothing_and_keep_the_order(judge: RewardModel, rubric: Rubric) -> None:
    several = [dialogue("hi", f"Answer {i}", "and?", "so", id=str(i)) for i in range(7)]
    together = list(judge.score_many(several, rubric))
    apart = [judge.score(t, rubric) for t in several]
    for a, b in zip(together, apart, strict=True):
        assert isinstance(a, Judgement)
        assert (a.id, a.judge_revision) == (b.id, b.judge_revision)
        assert a.reward == pytest.approx(b.reward, abs=1e-5)


def test_one_bad_record_of_many_fails_alone(judge: RewardModel) -> None:
    strict = Rubric.loads(RUBRIC.replace(", default: false", ""), "shop.yaml")
    good, bad = TALK.model_copy(update={"task": Task(features={"vip": True})}), TALK
    found = list(judge.score_many([good, bad, good], strict))
    assert [type(f) for f in found] == [Judgement, Failed, Judgement]
    assert isinstance(found[1], Failed) and "vip" in found[1].detail
    with pytest.raises(DataError, match="vip"):
        judge.score(bad, strict)


def test_without_a_model_programmatic_items_are_scored_and_the_rest_is_missing(rubric: Rubric) -> None:
    found = RewardModel.programmatic().score(TALK, rubric)
    assert found.counts == {"scored": 2, "failed:infrastructure": 4}
    assert found.reward is None
    assert found.judge_revision == "programmatic"


def test_too_long_a_conversation_is_a_typed_failure_and_no_reward(
    make_model: Callable[..., Any], tiny_tokenizer: Any, rubric: Rubric
) -> None:
    small = RewardModel.from_model(make_model(max_position_embeddings=256), tiny_tokenizer, min_mass=0.0)
    found = small.score(TALK, rubric)
    assert found.counts == {"failed:context_overflow": 4, "scored": 2}
    assert found.reward is None


def test_critique_mode_reads_the_label_after_its_own_notes(judge: RewardModel) -> None:
    asked = [VerdictRequest(TALK, Criterion("c", "Is it so?"), votes=3)]
    (found,) = judge.with_settings(mode="critique", max_notes_tokens=6).verdicts(asked)
    assert isinstance(found, Scored | CannotAssess)
    assert found.critique
    if isinstance(found, Scored):
        assert (found.mode, found.n) == ("critique", 3)
        assert found.spread is not None


def test_an_untrained_judge_is_marked_and_its_x_decides_nothing(tiny_llama: Any, tiny_tokenizer: Any) -> None:
    raw = RewardModel.from_model(tiny_llama, tiny_tokenizer, min_mass=0.0, untrained=True)
    asked = [VerdictRequest(dialogue("hi", f"answer {i}"), Criterion("c", f"Is it {i}?")) for i in range(12)]
    found = raw.verdicts(asked)
    assert all(isinstance(v, Scored) and v.flags == ("untrained_judge",) for v in found)
    trained = RewardModel.from_model(tiny_llama, tiny_tokenizer, min_mass=0.8)
    assert all(isinstance(v, Failed) and v.kind == "low_mass" for v in trained.verdicts(asked))


def test_compare_mirrors_and_rank_shares_places(judge: RewardModel, rubric: Rubric) -> None:
    a, b = dialogue("hi", "Sure."), dialogue("hi", "I will not do that for you, ever, and that is final.")
    one, two = judge.compare(a, b, rubric, tie_band=0.0), judge.compare(b, a, rubric, tie_band=0.0)
    assert one.margin is not None and two.margin is not None
    assert one.margin == pytest.approx(-two.margin, abs=1e-5)
    assert {one.winner, two.winner} == {"a", "b"}
    assert judge.compare(a, b, rubric, tie_band=2.0).winner == "tie"
    ranked = judge.rank([b, a, a], rubric, tie_band=1e-4)
    assert sorted(r.index for r in ranked) == [0, 1, 2]
    places = {r.index: r.place for r in ranked}
    assert places[1] == places[2]
    assert RewardModel.programmatic().compare(a, b, rubric).winner is None
    assert [r.place for r in RewardModel.programmatic().rank([a, b], rubric)] == [None, None]


def test_judgements_survive_json_and_explain_themselves(judge: RewardModel, rubric: Rubric) -> None:
    found = judge.score(dialogue("hi", "<b>no</b>", id="<i>"), rubric)
    assert Judgement.model_validate_json(found.to_json()) == found
    assert found.to_json() == judge.score(dialogue("hi", "<b>no</b>", id="<i>"), rubric).to_json()
    text = found.explain()
    assert "th.done:" in text and "t1: reward" in text and "ax.calm" in text
    assert "<i>" not in found._repr_html_()
    json.loads(found.to_json())


def test_axiom_severities_become_labels_and_a_violation_names_one(rubric: Rubric) -> None:
    axiom = rubric.bind({}).axioms[0]
    criterion = criterion_of(axiom)
    assert criterion.labels.names == {"Y": "Y", "1": "minor", "2": "major", "X": "X"}
    likely = Scored(value=0.4, label="Y", distribution={"Y": 0.4, "minor": 0.25, "major": 0.35})
    found = settled(axiom, likely)
    assert isinstance(found, Scored) and found.label == "major"
    kept = Scored(value=0.6, label="Y", distribution={"Y": 0.6, "minor": 0.4, "major": 0.0})
    assert settled(axiom, kept) == kept


@pytest.fixture()
def checkpoint(tmp_path: Any, tiny_llama: Any, tiny_tokenizer: Any) -> Any:
    tiny_llama.save_pretrained(tmp_path)
    tiny_tokenizer.save_pretrained(tmp_path)
    return tmp_path


def test_a_checkpoint_with_a_card_is_a_trained_judge(checkpoint: Any, rubric: Rubric) -> None:
    raw = RewardModel.from_pretrained(checkpoint)
    assert raw.asking.untrained and raw.asking.min_mass == 0.0
    assert raw.prompter is not None and raw.prompter.template.name == "default"
    compact = RewardModel.from_pretrained(checkpoint, template="compact")
    assert compact.prompter is not None
    card = write_judge_card(checkpoint, compact.prompter, min_mass=0.7, base="tiny", stages=["rm.general"])
    assert read_judge_card(checkpoint) == card
    trained = RewardModel.from_pretrained(checkpoint)
    assert (trained.asking.untrained, trained.asking.min_mass) == (False, 0.7)
    assert trained.judge_revision == compact.judge_revision != raw.judge_revision
    assert trained.with_settings(mode="critique").judge_revision != trained.judge_revision


def test_a_judge_behind_another_template_or_tokenizer_does_not_load(checkpoint: Any) -> None:
    prompter = RewardModel.from_pretrained(checkpoint, template="compact").prompter
    assert prompter is not None
    write_judge_card(checkpoint, prompter)
    with pytest.raises(ConfigError, match="template_hash"):
        RewardModel.from_pretrained(checkpoint, template="default")
    (checkpoint / CARD_FILE).write_text("{}")
    with pytest.raises(ConfigError, match="not a judge card"):
        RewardModel.from_pretrained(checkpoint)


def test_what_cannot_be_loaded_says_so(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be loaded"):
        RewardModel.from_pretrained(tmp_path / "nothing")
    with pytest.raises(ConfigError, match="float32"):
        RewardModel.from_pretrained(tmp_path, dtype="int8")


def test_importing_the_room_loads_no_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys, axiomrm.rm, axiomrm.cli_score; axiomrm.rm.RewardModel; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
