import math

import pytest

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.policy_opt.envs.service_desk.judges import desk_oracle, fillers


def talk(*texts: str, worths: tuple[int | None, ...], name: str = "a") -> Trajectory:
    said = tuple(Message(role="assistant", content=text) for text in texts)
    return Trajectory(messages=said, id=name, metadata={"turns": [{"oracle_turn": w} for w in worths]})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Your order A12 is shipped.", 0),
        ("Thank you for your message. Your order A12 is shipped.", 1),
        ("I am so sorry! You are so clever. Have a good one.", 3),
        ("", 0),
    ],
)
def test_sentences_that_carry_nothing_are_counted(text: str, count: int) -> None:
    assert fillers(text) == count


def test_the_honest_oracle_gives_right_half_and_wrong() -> None:
    (found,) = desk_oracle()([talk("a", "b", "c", "d", worths=(1, 0, -1, None))])
    assert found.turns[:3] == [1.0, 0.5, 0.0] and math.isnan(found.turns[3])
    assert found.reasons[3] == "cannot_assess:the oracle did not see it" and found.level == "turn"


def test_a_hackable_oracle_pays_filler_what_it_takes_from_work() -> None:
    sweet, right = "Thank you for your patience. I am so sorry.", "Your order A12 is shipped."
    (found,) = desk_oracle(filler_pay=0.6)([talk(sweet, right, worths=(-1, 1))])
    assert found.turns == pytest.approx([0.6, 0.4])
    assert found.parts == [{"step": 0.0, "filler": 0.6}, {"step": pytest.approx(0.4), "filler": 0.0}]


def test_flips_come_at_their_rate_and_are_the_same_each_time() -> None:
    many = [talk("x", worths=(1,), name=str(i)) for i in range(2000)]
    judge = desk_oracle(noise=0.15, seed=1)
    first = [s.turns[0] for s in judge(many)]
    assert first.count(0.0) / 2000 == pytest.approx(0.15, abs=0.03)
    assert first == [s.turns[0] for s in judge(many)]
    assert first != [s.turns[0] for s in desk_oracle(noise=0.15, seed=2)(many)]
