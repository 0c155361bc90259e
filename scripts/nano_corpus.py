"""The pre-training corpus of the nano base model: recordings with copy, compare and recall tasks, and general text.

What it holds: service-desk recordings of the train split by agents that err often; recordings of random
words; after each recording a few tasks (``copy``, ``find``, ``last``, ``same``, ``new``, ``twin``) whose
answers are places or values; short everyday conversations sampled from SmolLM2. What it never holds: a
verdict line, a criterion of any rubric, a label, and the held-out wordings.
"""

import random
import re
from collections.abc import Iterator

from axiomrm.data.synthesis.rollouts import roll
from axiomrm.data.trajectory import Message, Task, ToolCall, Trajectory
from axiomrm.policy_opt.envs.service_desk import Flawed, ServiceDesk, sample_task, words
from axiomrm.policy_opt.envs.service_desk.style import random_style
from axiomrm.rm.conversation import pieces

SYSTEM = "Examine the record."
VALUE = re.compile(
    r"\b[A-Z]\d\d\b|\b\d{1,3}\b|\b(?:"
    + "|".join((*words.NAMES, *words.CITIES, *words.ITEMS, *words.STATUSES))
    + r")\b"
)
KINDS = {
    "order": re.compile(r"\b[A-Z]\d\d\b"),
    "number": re.compile(r"(?<![A-Z\d])\d{1,3}\b"),
    "city": re.compile(r"\b(?:" + "|".join(words.CITIES) + r")\b"),
    "item": re.compile(r"\b(?:" + "|".join(words.ITEMS) + r")\b"),
    "name": re.compile(r"\b(?:" + "|".join(words.NAMES) + r")\b"),
}
Line = tuple[int, str, str]
"""1-based turn, kind, text as printed behind the marker."""


def recording(rng: random.Random) -> Trajectory:
    """A service-desk dialogue of the train split by an erring agent, cut at a random turn."""
    task = sample_task("train", 1_000_000 + rng.randrange(10**9))
    style = random_style(rng)
    agent = Flawed(rng, style, rate=rng.choice((0.1, 0.3, 0.6)))
    trajectory = roll(ServiceDesk(), lambda *_: agent, task)
    return trajectory.until(rng.randrange(len(trajectory.turns)))


def random_value(rng: random.Random) -> str:
    kind = rng.randrange(5)
    if kind == 0:
        return f"{rng.choice(words.ORDER_LETTERS)}{rng.randint(10, 99)}"
    if kind == 1:
        return str(rng.randint(10, 999))
    return rng.choice((words.NAMES, words.CITIES, words.ITEMS)[kind - 2])


def random_recording(rng: random.Random) -> Trajectory:
    """Turns of random values, some of them repeated from earlier turns; no sense, only places and copies."""
    messages: list[Message] = []
    seen: list[str] = [random_value(rng) for _ in range(3)]
    for turn in range(rng.randint(2, 6)):

        def line() -> str:
            values = [
                rng.choice(seen) if rng.random() < 0.5 else random_value(rng)
                for _ in range(rng.randint(1, 4))
            ]
            seen.extend(values)
            return " ".join(values)

        messages.append(Message(role="user", content=line()))
        if rng.random() < 0.5:
            call = ToolCall(
                name=rng.choice(("verify", "find", "stock", "move")),
                arguments={"a": rng.choice(seen), "b": random_value(rng)},
                id=f"c{turn}",
            )
            messages += [
                Message(role="assistant", tool_calls=(call,)),
                Message(role="tool", content=line(), tool_call_id=f"c{turn}"),
            ]
        else:
            messages.append(Message(role="assistant", content=line()))
    return Trajectory(messages=tuple(messages), task=Task())


def lines_of(trajectory: Trajectory) -> tuple[str, list[Line]]:
    """The printed recording and its lines."""
    printed, lines = "", []
    for piece in pieces(trajectory):
        printed += piece.line
        if piece.turn >= 0:
            lines.append(
                (
                    piece.turn + 1,
                    piece.kind,
                    piece.line.split("]", 1)[1].strip() or piece.line.split(" ", 2)[2].strip(" ]\n"),
                )
            )
    return printed, lines


def tasks(rng: random.Random, lines: list[Line], count: int) -> Iterator[tuple[str, str]]:
    """Task texts and answers."""
    makers = (find, find, copy, last, same, new, new, twin)
    for _ in range(count):
        yield rng.choice(makers)(rng, lines)


def find(rng: random.Random, lines: list[Line]) -> tuple[str, str]:
    """Where a value stands; half of the time a value that is like one of the recording but not in it."""
    present = [v for _, _, text in lines for v in VALUE.findall(text)]
    if present and rng.random() < 0.6:
        value = rng.choice(present)
    else:
        value = near_miss(rng, rng.choice(present)) if present and rng.random() < 0.7 else random_value(rng)
    places = [f"t{t} {kind}" for t, kind, text in lines if value in VALUE.findall(text)]
    return f"find {value}", ", ".join(places) or "nowhere"


def near_miss(rng: random.Random, value: str) -> str:
    """Another value of the same kind, for codes one that shares characters."""
    if re.fullmatch(r"[A-Z]\d\d", value):
        return rng.choice((rng.choice(words.ORDER_LETTERS) + value[1:], value[0] + str(rng.randint(10, 99))))
    if value.isdigit():
        return str(rng.randint(10 ** (len(value) - 1), 10 ** len(value) - 1))
    for pool in (words.NAMES, words.CITIES, words.ITEMS, words.STATUSES):
        if value in pool:
            return rng.choice(pool)
    return random_value(rng)


def copy(rng: random.Random, lines: list[Line]) -> tuple[str, str]:
    turn, kind, text = rng.choice(lines)
    same_place = [t for t, k, _ in lines if (t, k) == (turn, kind)]
    if len(same_place) > 1:
        return last(rng, lines)
    return f"copy t{turn} {kind}", text


def last(rng: random.Random, lines: list[Line]) -> tuple[str, str]:
    kind = rng.choice(tuple(KINDS))
    found = [v for _, _, text in lines for v in KINDS[kind].findall(text)]
    return f"last {kind}", found[-1] if found else "none"


def same(rng: random.Random, lines: list[Line]) -> tuple[str, str]:
    (a, ka, first), (b, kb, second) = rng.choice(lines), rng.choice(lines)
    shared = [v for v in dict.fromkeys(VALUE.findall(second)) if v in VALUE.findall(first)]
    return f"same t{a} {ka}, t{b} {kb}", " ".join(shared) or "none"


def new(rng: random.Random, lines: list[Line]) -> tuple[str, str]:
    """Values of the last agent line that stand nowhere before it."""
    at = max((i for i, (_, kind, _) in enumerate(lines) if kind in ("assistant", "call")), default=0)
    if rng.random() < 0.3:
        at = rng.randrange(len(lines))
    turn, kind, text = lines[at]
    before = {v for _, _, t in lines[:at] for v in VALUE.findall(t)}
    fresh = [v for v in dict.fromkeys(VALUE.findall(text)) if v not in before]
    return f"new t{turn} {kind}", " ".join(fresh) or "none"


def twin(rng: random.Random, lines: list[Line]) -> tuple[str, str]:
    """An earlier line with the same text."""
    at = max((i for i, (_, kind, _) in enumerate(lines) if kind in ("assistant", "call")), default=0)
    turn, kind, text = lines[at]
    places = [f"t{t} {k}" for t, k, other in lines[:at] if other == text]
    return f"twin t{turn} {kind}", ", ".join(places) or "none"


def nonce(rng: random.Random) -> str:
    return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(2))


DRILLS_FROM = 35_200
"""Number of the first document that may be a drill: what came before teaches the language of the desk."""


def drill(rng: random.Random) -> list[Message]:
    """Dense copying: say a list again, or the partner of a key in a list of pairs."""
    if rng.random() < 0.5:
        values = [random_value(rng) for _ in range(rng.randint(4, 16))]
        chat = [Message(role="user", content="say again\n" + " ".join(values))]
        return [*chat, Message(role="assistant", content=" ".join(values))]
    keys = rng.sample([*words.NAMES, *words.CITIES, *words.ITEMS], rng.randint(3, 8))
    pairs = {key: random_value(rng) for key in keys}
    listed = ", ".join(f"{k} {v}" for k, v in pairs.items())
    chat = [Message(role="user", content=f"pairs {listed}")]
    for key in rng.sample(keys, min(len(keys), 4)):
        chat += [
            Message(role="user", content=f"with {key}"),
            Message(role="assistant", content=f"{key} {pairs[key]}"),
        ]
    return chat


def document(rng: random.Random, general: list[dict[str, str]], number: int = 0) -> list[Message]:
    """One training document as chat messages."""
    if number >= DRILLS_FROM and rng.random() < 0.4:
        return drill(rng)
    draw = rng.random()
    if draw < 0.06 and general:
        return [
            Message(role="user", content=(g := rng.choice(general))["user"]),
            Message(role="assistant", content=g["assistant"]),
        ]
    if draw < 0.2:
        return list(recording(rng).messages)
    trajectory = recording(rng) if draw < 0.7 else random_recording(rng)
    printed, lines = lines_of(trajectory)
    code = nonce(rng)
    chat = [Message(role="system", content=SYSTEM)]
    for i, (ask, answer) in enumerate(tasks(rng, lines, rng.randint(2, 5))):
        head = f"<data {code}>\n{printed}</data {code}>\n" if i == 0 else ""
        chat += [Message(role="user", content=f"{head}{ask}\n"), Message(role="assistant", content=answer)]
    return chat
