import json
from html.parser import HTMLParser
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from axiomrm.data.verdict import CannotAssess, Evidence, Failed, Scored
from axiomrm.rm import Judgement, TurnJudgement

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
shares = st.floats(0, 1)
spans = st.tuples(shares, shares)
evidence = st.builds(
    Evidence,
    turn=st.integers(0, 3),
    quote=texts,
    status=st.sampled_from(["verified", "wrong_turn", "absent"]),
)
verdicts = st.one_of(
    st.builds(
        Scored,
        value=shares,
        label=texts,
        distribution=st.dictionaries(texts, shares, max_size=2),
        captured_mass=st.none() | shares,
        critique=texts,
        evidence=st.tuples() | st.tuples(evidence),
        spread=st.none() | shares,
        interval=st.none() | spans,
        flags=st.tuples() | st.tuples(texts),
    ),
    st.builds(CannotAssess, reason=texts, p_na=st.none() | shares),
    st.builds(Failed, kind=st.sampled_from(["timeout", "low_mass"]), detail=texts),
)
tables = st.dictionaries(texts, verdicts, max_size=2)
turns = st.builds(
    TurnJudgement,
    index=st.integers(0, 4),
    reward=st.none() | shares,
    interval=spans,
    coverage=shares,
    gate=st.none() | shares,
    verdicts=tables,
    reason=texts,
)
judgements = st.builds(
    Judgement,
    id=texts,
    reward=st.none() | st.floats(-5, 5),
    interval=spans,
    coverage=shares,
    gate=st.none() | shares,
    verdicts=tables,
    turns=st.tuples() | st.tuples(turns),
    reason=texts,
    calibration=texts,
    rank_key=st.none() | st.tuples(st.booleans(), shares, shares),
)
slow_machines = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@slow_machines
@given(judgements)
def test_a_judgement_comes_back_from_its_json_and_gives_the_same_bytes(judgement: Judgement) -> None:
    text = judgement.to_json()
    back = Judgement.model_validate_json(text)
    assert back == judgement and back.to_json() == text
    assert json.loads(text)["schema"] == "axiomrm/judgement-1"


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)


OURS = {"div", "b", "ul", "li", "table", "tr", "th", "td", "p"}


@slow_machines
@given(judgements, st.sampled_from(["<script>x</script>", '"><img src=x onerror=y>', "</td><i>", "&lt;u>"]))
def test_no_tag_comes_from_a_judge_a_rubric_or_a_recording(judgement: Judgement, attack: str) -> None:
    planted = judgement.model_copy(
        update={
            "id": attack,
            "reason": attack,
            "violated_axioms": (attack,),
            "verdicts": {attack: Scored(value=1, label=attack, critique=attack, flags=(attack,))},
        }
    )
    tags = _Tags()
    tags.feed(planted._repr_html_())
    assert tags.seen <= OURS


@slow_machines
@given(judgements)
def test_the_explanation_names_every_criterion_and_every_reason(judgement: Judgement) -> None:
    text = judgement.explain()
    assert all(name in text for _, name, _ in judgement.all_verdicts())
    assert judgement.reason in text
    failures = [v for _, _, v in judgement.all_verdicts() if isinstance(v, Failed)]
    assert all(f"failed ({v.kind}): {v.detail}" in text for v in failures)


def test_an_explanation_shows_spread_samples_and_interval() -> None:
    verdict = Scored(value=0.5, label="Y", spread=0.125, n=3, interval=(0.25, 0.75), mode="critique")
    found = Judgement(reward=0.5, interval=(0.25, 0.75), coverage=1, gate=1, verdicts={"th.a": verdict})
    assert "th.a: 0.500 in [0.25, 0.75] ±0.12 over 3 Y" in found.explain()
