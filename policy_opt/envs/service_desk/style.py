"""How an agent wrote over a whole dialogue.

Measures for simulated users, and the right answers to the personal questions of the service desk rubric with
the notes and quotes that a perfect critic would write.

The truth is read off the texts, never off the agent's settings. Where a text is neither the one nor the other
(a reply of middle length, a tone that nothing shows) there is no label.
"""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass

from axiomrm.data.synthesis.rollouts import roll
from axiomrm.data.trajectory import Task, Trajectory
from axiomrm.personalization.examples import OracleLabel
from axiomrm.policy_opt.envs.service_desk import words
from axiomrm.policy_opt.envs.service_desk.agents import Flawed
from axiomrm.policy_opt.envs.service_desk.env import ServiceDesk
from axiomrm.policy_opt.envs.service_desk.phrases import ASK_NEXT, CLOSE_NEXT, Style
from axiomrm.policy_opt.envs.service_desk.user import asked_slots

SHORT, LONG = 11.0, 15.0
"""Mean words a reply: up to SHORT is short, from LONG on is long, between them is neither."""
_FEW_WORDS = re.compile(r"\S+(?:\s+\S+){0,7}")
_CASUAL = re.compile(
    r"\b(hey, no|sure thing|okay|what is|can you give|just tell me|have a good one|all set then|yep|got \d"
    r"|looks like|sorry, that|nope)\b|(?<!be )\bdone,",
    re.IGNORECASE,
)
_FORMAL = re.compile(
    r"\b(thank you|glad to help|could you please|may i have|would you please|pleasant day|we have \d"
    r"|there are \d|your order|is currently|has been|i have (?:cancelled|refunded|sent|opened|booked)"
    r"|i have exchanged|your refund|we will contact|your contact|will be picked|i am afraid"
    r"|cannot be changed)\b",
    re.IGNORECASE,
)
_NAMED = re.compile(r"\b(?:" + "|".join(words.NAMES) + r"), ")
_NEXT = re.compile("|".join(map(re.escape, (*ASK_NEXT, *CLOSE_NEXT))))


@dataclass(frozen=True)
class _Reply:
    turn: int
    text: str

    @property
    def length(self) -> int:
        return len(self.text.split())

    @property
    def tone(self) -> str:
        casual, formal = bool(_CASUAL.search(self.text)), bool(_FORMAL.search(self.text))
        return "" if casual == formal else "casual" if casual else "formal"

    @property
    def asked(self) -> int:
        return len(asked_slots(self.text))

    def quote(self, start: int = 0) -> tuple[int, str]:
        """A few words from ``start`` on, copied."""
        found = _FEW_WORDS.match(self.text, start)
        return self.turn, found.group(0) if found else self.text[start:]


def replies(trajectory: Trajectory) -> list[_Reply]:
    """The agent's texts with their turns; turns that only call a tool have none."""
    return [_Reply(t.index, t.action.content) for t in trajectory.turns if t.action.content.strip()]


def behaviour(trajectory: Trajectory) -> dict[str, float | None]:
    """How much of each habit the dialogue shows, in [0, 1]; ``None``: nothing shows it.

    Keys: ``short, casual, named, next_steps, batched`` (``axiomrm.personalization.simulate.FEATURES``).
    """
    said = replies(trajectory)
    if not said:
        return dict.fromkeys(("short", "casual", "named", "next_steps", "batched"))
    mean = sum(r.length for r in said) / len(said)
    tones = [r.tone for r in said if r.tone]
    batched = _batched(said)
    return {
        "short": min(1.0, max(0.0, (18.0 - mean) / 10.0)),
        "casual": sum(t == "casual" for t in tones) / len(tones) if tones else None,
        "named": sum(bool(_NAMED.search(r.text)) for r in said) / len(said),
        "next_steps": sum(bool(_NEXT.search(r.text)) for r in said) / len(said),
        "batched": None if batched is None else float(batched),
    }


def _batched(said: list[_Reply]) -> bool | None:
    """True: several facts asked at once; False: at least two questions, each for one; ``None``: too few."""
    sizes = [r.asked for r in said if r.asked]
    if any(n >= 2 for n in sizes):
        return True
    return False if len(sizes) >= 2 else None


def style_label(trajectory: Trajectory, ask: str) -> OracleLabel | None:
    """The right answer to a personal question; ``None``: an ambiguous dialogue, or another question."""
    question = QUESTIONS.get(ask)
    if question is None:
        return None
    said = replies(trajectory)
    if not said:
        return OracleLabel("X", "the agent says nothing")
    habit, wanted = question
    found = {"length": _length, "tone": _tone, "name": _name, "next": _next, "questions": _questions}[habit](
        said
    )
    if found is None:
        return None
    state, note, quotes = found
    return OracleLabel("X" if state == "" else "Y" if state == wanted else "N", note, quotes)


QUESTIONS: dict[str, tuple[str, str]] = {
    "Are the replies short?": ("length", "short"),
    "Are the replies long?": ("length", "long"),
    "Are the replies casual?": ("tone", "casual"),
    "Are the replies formal?": ("tone", "formal"),
    "Is the user's name used?": ("name", "used"),
    "Is the user's name left out?": ("name", "left out"),
    "Is what comes next told?": ("next", "told"),
    "Is what comes next left out?": ("next", "left out"),
    "Are the questions asked all at once?": ("questions", "all at once"),
    "Are the questions asked one by one?": ("questions", "one by one"),
}
"""Every text that the rubric's personal templates can give → the habit, and the state that makes it true."""
_State = tuple[str, str, tuple[tuple[int, str], ...]]


def _length(said: list[_Reply]) -> _State | None:
    mean = sum(r.length for r in said) / len(said)
    if SHORT < mean < LONG:
        return None
    state = "short" if mean <= SHORT else "long"
    shown = (min if state == "short" else max)(said, key=lambda r: r.length)
    return state, f"the replies are {state}", (shown.quote(),)


def _tone(said: list[_Reply]) -> _State | None:
    toned = [r for r in said if r.tone]
    tones = {r.tone for r in toned}
    if len(tones) != 1 or 2 * len(toned) < len(said):
        return None
    pattern = _CASUAL if toned[0].tone == "casual" else _FORMAL
    found = pattern.search(toned[0].text)
    return toned[0].tone, f"the tone is {toned[0].tone}", (toned[0].quote(found.start() if found else 0),)


def _name(said: list[_Reply]) -> _State:
    for reply in said:
        found = _NAMED.search(reply.text)
        if found:
            return "used", f"it says {found.group(0).strip(', ')}", (reply.quote(found.start()),)
    return "left out", "no name is said", ()


def _next(said: list[_Reply]) -> _State:
    for reply in said:
        found = _NEXT.search(reply.text)
        if found:
            return "told", "it says what comes next", ((reply.turn, found.group(0)),)
    return "left out", "nothing is said on what comes next", ()


def _questions(said: list[_Reply]) -> _State:
    batched = _batched(said)
    if batched is None:
        return "", "there are too few questions to tell", ()
    asking = [r for r in said if r.asked >= (2 if batched else 1)]
    quotes = tuple(r.quote(_question_at(r.text)) for r in asking[: 1 if batched else 2])
    if batched:
        return "all at once", "several things are asked at once", quotes
    return "one by one", "each question asks for one thing", quotes


def _question_at(text: str) -> int:
    """Where the sentence with the question mark begins."""
    before = text.rfind(". ", 0, text.index("?"))
    return 0 if before < 0 else before + 2


def random_style(rng: random.Random) -> Style:
    """A style of independent habits."""
    return Style(
        verbosity=rng.randint(1, 3),
        tone=rng.choice(("formal", "casual")),
        use_name=rng.random() < 0.5,
        next_steps=rng.random() < 0.5,
        batched=rng.random() < 0.5,
    )


def styled_rollouts(
    tasks: Iterable[Task],
    rng: random.Random,
    per_task: int = 6,
    rates: tuple[float, ...] = (0.0, 0.0, 0.15, 0.4),
) -> list[Trajectory]:
    """Several dialogues a task, each by an agent of another style; some agents make mistakes.

    Args:
        tasks: of one split.
        rng: draws styles, error rates and wordings.
        per_task: dialogues a task.
        rates: error rates to draw from; 0 is the expert.
    """
    recordings = []
    for task in tasks:
        for k in range(per_task):
            agent = Flawed(rng, random_style(rng), rate=rng.choice(rates))
            recordings.append(roll(ServiceDesk(), lambda *_, agent=agent: agent, task, f"style{k}"))
    return recordings
