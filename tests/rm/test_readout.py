import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.data.verdict import CannotAssess, Failed, Scored
from axiomrm.rm.engines.base import TokenLogprobs
from axiomrm.rm.labels import BINARY, Label, label_set, level_labels
from axiomrm.rm.positions import reading_at_label
from axiomrm.rm.readout import NEVER, Reading, Rule, confidence, read_out

LEVELS = level_labels([(0.0, ""), (0.5, ""), (1.0, "")])


def reading(**p: float) -> Reading:
    return Reading({k.removeprefix("_"): math.log(v) for k, v in p.items()})


def test_a_reading_worked_by_hand() -> None:
    # mass .9; q = (1/9, 3/9, 4/9, 1/9 for X); without X: (1/8, 3/8, 4/8); value 3/16 + 8/16
    found = read_out([reading(_0=0.1, _1=0.3, _2=0.4, X=0.1)], LEVELS)
    assert isinstance(found, Scored)
    assert found.captured_mass == pytest.approx(0.9)
    assert found.p_na == pytest.approx(1 / 9)
    assert found.distribution == pytest.approx({"0": 1 / 8, "1": 3 / 8, "2": 1 / 2})
    assert found.value == pytest.approx(11 / 16)
    assert (found.label, found.spread, found.n) == ("2", None, 1)


def test_two_readings_are_averaged_and_their_spread_reported() -> None:
    # v = .8/.98… without X: .8/(.8+.1)=8/9 and .3/.9=1/3; mean 11/18; sd = |8/9-1/3|/sqrt(2)
    found = read_out([reading(Y=0.8, N=0.1, X=0.05), reading(Y=0.3, N=0.6, X=0.05)], BINARY)
    assert isinstance(found, Scored)
    assert found.value == pytest.approx(11 / 18)
    assert found.spread == pytest.approx((8 / 9 - 1 / 3) / math.sqrt(2))
    assert found.n == 2


def test_x_decides_from_one_half_on_unless_the_rule_says_never() -> None:
    half = reading(Y=0.3, N=0.2, X=0.5)
    assert isinstance(read_out([half], BINARY), CannotAssess)
    never = read_out([half], BINARY, Rule(x_threshold=NEVER))
    assert isinstance(never, Scored) and never.value == pytest.approx(0.6)
    assert never.p_na == pytest.approx(0.5)


def test_low_mass_fails_and_one_low_reading_of_two_is_left_out() -> None:
    low, good = reading(Y=0.7, N=0.05, X=0.01), reading(Y=0.2, N=0.75, X=0.01)
    failed = read_out([low], BINARY)
    assert isinstance(failed, Failed) and failed.kind == "low_mass"
    mixed = read_out([low, good], BINARY)
    assert isinstance(mixed, Scored)
    assert (mixed.n, mixed.flags) == (1, ("low_mass_readings",))
    assert mixed.value == pytest.approx(0.2 / 0.95)
    assert isinstance(read_out([low], BINARY, Rule(min_mass=0.0)), Scored)


def test_without_logprobs_only_the_sampled_readout_gives_a_number() -> None:
    written = [Reading(label="Y"), Reading(label="Y"), Reading(label="N"), Reading(label="X")]
    for readout in ("expected", "argmax"):
        found = read_out(written, BINARY, Rule(readout=readout))
        assert isinstance(found, Failed) and found.kind == "no_logprobs"
    shares = read_out(written, BINARY, Rule(readout="sampled"))
    assert isinstance(shares, Scored)
    assert shares.value == pytest.approx(2 / 3)
    assert (shares.readout, shares.captured_mass, shares.p_na) == ("sampled", None, 0.25)


def test_the_argmax_readout_gives_a_label_value() -> None:
    found = read_out([reading(_0=0.3, _1=0.4, _2=0.25, X=0.01)], LEVELS, Rule(readout="argmax"))
    assert isinstance(found, Scored) and (found.value, found.label) == (0.5, "1")


def test_non_finite_probabilities_never_give_a_number() -> None:
    for bad in (math.nan, math.inf, -math.inf):
        found = read_out([Reading(dict.fromkeys(BINARY.tokens, bad))], BINARY, Rule(min_mass=0.0))
        assert isinstance(found, Failed), bad


P = st.floats(0.01, 1.0)


@given(st.tuples(P, P, P, P), st.permutations([0, 1, 2]))
def test_renaming_and_permuting_labels_changes_nothing(
    weights: tuple[float, float, float, float], order: list[int]
) -> None:
    total = sum(weights)
    p = [w / total for w in weights]
    values = [0.0, 0.5, 1.0]
    plain = label_set([Label("012"[i], values[i]) for i in range(3)])
    other = label_set([Label("PQR"[i], values[i]) for i in order])
    first = read_out([reading(_0=p[0], _1=p[1], _2=p[2], X=p[3])], plain)
    second = read_out([reading(P=p[0], Q=p[1], R=p[2], X=p[3])], other)
    assert type(first) is type(second)
    if isinstance(first, Scored) and isinstance(second, Scored):
        assert first.value == pytest.approx(second.value)
        assert 0 <= first.value <= 1
        assert math.fsum(first.distribution.values()) == pytest.approx(1)


def test_confidence_is_zero_for_uniform_and_one_for_certain() -> None:
    assert confidence({"Y": 0.5, "N": 0.5}) == 0
    assert confidence({"Y": 1.0, "N": 0.0}) == 1
    assert confidence({"A": 0.5, "B": 0.25, "C": 0.25}) == pytest.approx(0.25)


def tokens(*texts: str, **top: float) -> list[TokenLogprobs]:
    logs = {k: math.log(v) for k, v in top.items()}
    return [
        TokenLogprobs(t, logs if i == len(texts) - 1 else {"3": 0.0, "Y": 0.0}) for i, t in enumerate(texts)
    ]


def test_the_label_is_located_by_its_offset_among_digits_and_labels() -> None:
    found = reading_at_label(
        tokens("notes: Y 3\n", "ver", "dict[", "gamu", "]=", "Y", Y=0.9, N=0.06), BINARY, "gamu"
    )
    assert not isinstance(found, Failed)
    assert found.logprobs == pytest.approx({"Y": math.log(0.9), "N": math.log(0.06)})
    assert found.bound == pytest.approx(0.04)  # what is left, below the least probable one listed


def test_a_label_that_shares_its_token_has_no_probability() -> None:
    found = reading_at_label(tokens("verdict[gamu", "]=Y", Y=0.9), BINARY, "gamu")
    assert isinstance(found, Failed) and found.kind == "no_logprobs"
