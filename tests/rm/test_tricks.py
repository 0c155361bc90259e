"""Judge outputs with planted tricks: what each must give is known to whoever wrote it, not to the parser."""

import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from axiomrm.data.verdict import Failed, Scored
from axiomrm.rm.engines.base import TokenLogprobs
from axiomrm.rm.foreign import FOREIGN
from axiomrm.rm.grammar import Answer, StopReason, parse, parse_items
from axiomrm.rm.labels import BINARY, choice_labels, level_labels, pair_labels
from axiomrm.rm.nonce import nonce_of
from axiomrm.rm.positions import reading_at

EACH = 500
SETS = [
    BINARY,
    pair_labels(),
    level_labels([(i / 5, "") for i in range(6)]),
    choice_labels([(c, 0.5, "") for c in "pqrst"]),
]
WORDS = re.findall(
    r"\S+",
    "the agent quotes order 12 but A is not B and 3 of 5 steps, Y or N, score 4/10; verdict: guilty X "
    "refund=7 [t2] the tool says {ok} grade 0.5 I think it's 100 % fine = 2 label Y.",
)
HIDDEN = "\u200b\u200c\u200d\u2060\ufeff\u202e\u00ad\u200e"
FENCES = ("```", "~~~", "````", "```json", "~~~~")
GRADES = (
    '{"score": 5, "pass": true}',
    "[[A]]",
    "[[B]]",
    "Rating: [[3]]",
    "[RESULT] 5",
    "Final score: 4/10",
    "Score: 5",
    "<verdict>Y</verdict>",
    "**Verdict: Y**",
    "GRADE: N",
    "verdict=Y",
    "verdict[]=Y",
    r"\boxed{1}",
    "Answer: A",
)


class Want(NamedTuple):
    """What an output must give: a label with flags, or a failure of one of some kinds."""

    label: str | None = None
    kinds: tuple[str, ...] = ()
    revised: bool = False


class Made(NamedTuple):
    text: str
    nonce: str
    labels: tuple[str, ...]
    want: Want
    stop: StopReason = "stop"


class Writer:
    """Draws the parts of one output."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self.labels = self.rng.choice(SETS).tokens
        self.nonce = nonce_of(seed, "mine", self.rng.choice((4, 6)))
        self.label = self.rng.choice(self.labels)
        self.other = self.rng.choice([x for x in self.labels if x != self.label])

    def words(self, most: int = 12) -> str:
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, most)))

    def notes(self) -> list[str]:
        """No, one or several lines of a critique; none of them is a verdict line."""
        if self.rng.random() < 0.2:
            return []
        lines = [f"notes: {self.words(25)}"] + [self.words() for _ in range(self.rng.randint(0, 2))]
        quotes = [f'quote t{self.rng.randint(1, 9)}: "{self.words()}"' for _ in range(self.rng.randint(0, 3))]
        return lines + (quotes or ["quote none"])

    def line(self, label: str | None = None, nonce: str | None = None, item: int | None = None) -> str:
        place = "" if item is None else f".{item}"
        return f"verdict[{nonce or self.nonce}{place}]={self.label if label is None else label}"

    def strange_nonce(self) -> str:
        near = self.nonce[:-1] + self.rng.choice("xqy")
        choices = (near, self.nonce + "a", self.nonce[1:], "gamu", "aaaaaa", "NONCE", "1")
        return self.rng.choice([nonce for nonce in choices if nonce != self.nonce])

    def made(
        self, lines: list[str], want: Want | None = None, stop: StopReason = "stop", end: str = "\n"
    ) -> Made:
        return Made(end.join(lines), self.nonce, self.labels, want or Want(self.label), stop)

    def around(self, planted: list[str]) -> Made:
        """Planted lines before or after a verdict of our own."""
        lines = [*self.notes(), self.line()]
        return self.made(planted + lines if self.rng.random() < 0.5 else lines + planted)

    def alone(self, planted: list[str]) -> Made:
        return self.made([*self.notes(), *planted], Want(kinds=("no_verdict",)))

    def either(self, planted: list[str]) -> Made:
        """With a verdict of our own, or with nothing but the planted one."""
        return self.around(planted) if self.rng.random() < 0.7 else self.alone(planted)


def plain(w: Writer) -> Made:
    return w.made([*w.notes(), w.line(), *([""] * w.rng.randint(0, 2))])


def wrong_nonce(w: Writer) -> Made:
    return w.either([w.line(w.other, w.strange_nonce()) for _ in range(w.rng.randint(1, 3))])


def quoted(w: Writer) -> Made:
    mark = w.rng.choice(("> ", ">", ">> ", " > "))
    return w.either([mark + w.words(), mark + w.line(w.other)])


def fenced(w: Writer) -> Made:
    fence = w.rng.choice(FENCES)
    close = re.match(r"[`~]+", fence)
    assert close
    return w.either([fence, *w.notes()[:2], w.line(w.other), close[0]])


def never_closed_fence(w: Writer) -> Made:
    lines = [*w.notes(), w.rng.choice(FENCES), w.line(w.other), w.words()]
    if w.rng.random() < 0.5:
        return w.made([w.line(), *lines])
    return w.made([*lines, w.line()], Want(kinds=("no_verdict",)))


def hidden_characters(w: Writer) -> Made:
    line = w.line()
    for _ in range(w.rng.randint(1, 4)):
        at = w.rng.randint(0, len(line))
        line = line[:at] + w.rng.choice(HIDDEN) + line[at:]
    return w.made([*w.notes(), line])


def full_width(w: Writer) -> Made:
    wide = str.maketrans({chr(c): chr(c + 0xFEE0) for c in range(0x21, 0x7F)})
    share = w.rng.random()
    line = "".join(c.translate(wide) if w.rng.random() < share else c for c in w.line())
    return w.made([*w.notes(), line])


def stars_and_blanks(w: Writer) -> Made:
    stars = w.rng.choice(("", "*", "**", "***"))
    blank = w.rng.choice(("", " ", "\t", "  ", "\u00a0"))
    head, _, label = w.line().partition("=")
    inner = w.rng.choice((label, f"**{label}**", f" {label}", f"*{label}"))
    return w.made([*w.notes(), f"{blank}{stars}{head}={inner}{stars}{blank}"])


def crlf(w: Writer) -> Made:
    lines = [*w.notes(), w.line(), *([""] * w.rng.randint(0, 1))]
    return w.made(lines, end="\r\n")


def revised(w: Writer) -> Made:
    first = [w.line(w.other) for _ in range(w.rng.randint(1, 2))]
    return w.made([*w.notes(), *first, w.words(), w.line()], Want(w.label, revised=True))


def repeated(w: Writer) -> Made:
    return w.made([*w.notes(), w.line(), w.words(), w.line()], Want(w.label))


def illegal_last(w: Writer) -> Made:
    bad = w.rng.choice(
        (
            "",
            "7",
            "10",
            "yes",
            "NOT Y",
            "YN",
            "<label>",
            "Z",
            "Y/N",
            "0.5",
            "-1",
            "?",
            f"{w.label}.",
            w.label * 2,
        )
    )
    return w.made([*w.notes(), w.line(), w.words(), w.line(bad)], Want(kinds=("illegal_label",)))


def label_with_a_tail(w: Writer) -> Made:
    tail = f"{w.label} {w.rng.choice(('because', '-', 'or rather', '('))} {w.words(40)}"
    return w.made([*w.notes(), w.line(w.other), w.line(tail)], Want(kinds=("illegal_label",)))


def echoed_form(w: Writer) -> Made:
    form = ["Write exactly this, then stop:", w.line("<label>")]
    if w.rng.random() < 0.7:
        return w.made([*form, *w.notes(), w.line()])
    return w.made([*w.notes(), *form], Want(kinds=("illegal_label",)))


def thinking(w: Writer) -> Made:
    tag = w.rng.choice(("think", "thinking", "reasoning", "THINK"))
    block = [f"<{tag}>" + w.words(), w.line(w.other), w.words(), f"</{tag}>"]
    after = [*w.notes(), w.line()]
    if w.rng.random() < 0.2:
        return w.made([*block, *w.notes()], Want(kinds=("no_verdict",)))
    twice = block if w.rng.random() < 0.3 else []
    return w.made(block[w.rng.randint(0, 1) :] + twice + after)  # some servers swallow the opening tag


def endless_thinking(w: Writer) -> Made:
    lines = [*w.rng.choice(([], [w.words()])), "<think>", w.words(), w.line(), *w.notes()]
    return w.made(lines, Want(kinds=("truncated",)), w.rng.choice(("stop", "length")))


def truncated(w: Writer) -> Made:
    whole = "\n".join([*w.notes(), w.line()])
    text = whole[: w.rng.randint(0, len(whole))]
    return Made(text, w.nonce, w.labels, Want(kinds=("truncated",)), "length")


def truncated_after(w: Writer) -> Made:
    return w.made([*w.notes(), w.line(), w.words()], stop="length")


def foreign_grades(w: Writer) -> Made:
    return w.either(w.rng.sample(GRADES, k=3))


def digits_everywhere(w: Writer) -> Made:
    noise = [" ".join(w.rng.choices("0123456789YNABTX=[].", k=20)) for _ in range(3)]
    return w.either(noise)


def in_a_sentence(w: Writer) -> Made:
    head = w.rng.choice(("I had ", "so ", "notes: ", "1. ", "- ", "`", '"', "quote t1: "))
    return w.either([f"{head}{w.line(w.other)}", f"{w.words(3)} {w.line(w.other)} {w.words(3)}"])


def other_form(w: Writer) -> Made:
    n, x = w.nonce, w.other
    forms = (
        f"verdict[{n}]: {x}",
        f"verdict {n} = {x}",
        f"verdict({n})={x}",
        f"[{n}]={x}",
        f"verdict[{n}.1]={x}",
    )
    return w.either([w.rng.choice(forms)])


KINDS: list[Callable[[Writer], Made]] = [
    plain,
    wrong_nonce,
    quoted,
    fenced,
    never_closed_fence,
    hidden_characters,
    full_width,
    stars_and_blanks,
    crlf,
    revised,
    repeated,
    illegal_last,
    label_with_a_tail,
    echoed_form,
    thinking,
    endless_thinking,
    truncated,
    truncated_after,
    foreign_grades,
    digits_everywhere,
    in_a_sentence,
    other_form,
]


def judged(found: Answer | Failed, want: Want) -> str:
    if isinstance(found, Answer):
        right = found.label == want.label and ("revised" in found.flags) == want.revised
        return "right" if right else "wrong number"
    if want.label is not None:
        return "not read"
    return "right" if found.kind in want.kinds else f"wrong kind {found.kind}"


def test_eleven_thousand_outputs_give_no_wrong_number_and_valid_ones_are_read() -> None:
    outcomes: Counter[tuple[str, str]] = Counter()
    valid = 0
    for kind in KINDS:
        for i in range(EACH):
            made = kind(Writer(f"{kind.__name__} {i}"))
            valid += made.want.label is not None
            outcome = judged(parse(made.text, made.labels, made.nonce, made.stop), made.want)
            outcomes[kind.__name__, outcome] += 1
    bad = {key: n for key, n in outcomes.items() if key[1] != "right"}
    assert outcomes.total() == EACH * len(KINDS) >= 10_000
    assert not any(outcome == "wrong number" or outcome.startswith("wrong kind") for _, outcome in bad), bad
    assert sum(bad.values()) <= valid / 1000, bad
    assert valid > 7_000


def test_the_label_is_read_at_its_own_token_whatever_the_tokens_are() -> None:
    kinds = [k for k in KINDS if k not in (thinking, hidden_characters, full_width)]
    read = 0
    for i in range(400):
        made = kinds[i % len(kinds)](Writer(f"positions {i}"))
        answer = parse(made.text, made.labels, made.nonce, made.stop)
        if not isinstance(answer, Answer):
            continue
        tokens, starts = [], []
        for match in re.finditer(rf"(?<==)[{''.join(made.labels)}]|\s*\w{{1,4}}|\W", made.text):
            starts.append(match.start())
            share = 0.1 + 0.3 * match.start() / len(made.text)
            shown = match[0] if match[0].strip() == answer.label else answer.label
            tokens.append(TokenLogprobs(match[0], {shown: math.log(share), "the": math.log(0.05)}))
        assert "".join(t.text for t in tokens) == made.text
        found = reading_at(tokens, BINARY_OF[made.labels], answer)
        assert answer.at is not None
        at = made.text.index("=", made.text.index("]", answer.at)) + 1
        if isinstance(found, Failed):
            assert at not in starts or tokens[starts.index(at)].text != answer.label
            continue
        read += 1
        assert found.logprobs[answer.label] == math.log(0.1 + 0.3 * at / len(made.text))
    assert read > 150


BINARY_OF = {labels.tokens: labels for labels in SETS}


def joint(w: Writer) -> tuple[list[str], dict[int, Want]]:
    """Lines of a joint answer, and what each item must give."""
    lines: list[str] = []
    want: dict[int, Want] = {}
    for item in range(1, w.rng.randint(2, 8) + 1):
        label = w.rng.choice(w.labels)
        kind = w.rng.choice(("fine", "fine", "fine", "missing", "doubled", "changed", "illegal", "planted"))
        line = w.line(label, item=item)
        lines += {
            "missing": [],
            "doubled": [line, line],
            "changed": [line, w.line(w.rng.choice(w.labels), item=item)],
            "illegal": [w.line("Q7", item=item)],
            "planted": [w.line(w.other, "gamu", item), f"> {w.line(w.other, item=item)}", line],
        }.get(kind, [line])
        failed = {"illegal": "illegal_label"}.get(kind, "incomplete")
        want[item] = Want(label) if kind in ("fine", "planted") else Want(kinds=(failed,))
    return lines, want


def test_joint_items_fail_alone_in_two_thousand_answers() -> None:
    outcomes: Counter[str] = Counter()
    for i in range(2 * EACH):
        w = Writer(f"joint {i}")
        lines, want = joint(w)
        w.rng.shuffle(lines)
        strangers = [w.line(item=item) for item in (9, 10, 99)[: w.rng.randint(0, 3)]]
        text = "\n".join([*w.notes(), *lines, *strangers])
        found, ignored = parse_items(text, w.labels, w.nonce, list(want))
        assert ignored == len(strangers)
        outcomes.update(judged(found[item], want[item]) for item in want)
    assert set(outcomes) == {"right"}
    assert outcomes.total() > 3_000


def foreign_result(w: Writer) -> tuple[str, float | None]:
    n = w.rng.randint(1, 5)
    feedback = f"Feedback: {w.words(20)} I first meant [RESULT] {w.rng.randint(1, 5)} here."
    good = w.rng.random() < 0.7
    last = (
        f"[RESULT] {n}" if good else w.rng.choice(("[RESULT] 7", "[RESULT] 4/5", "[RESULT]", "[RESULT] five"))
    )
    return f"{feedback}\n{w.words()}\n{last}", (n - 1) / 4 if good else None


def foreign_json(w: Writer) -> tuple[str, float | None]:
    n = w.rng.randint(1, 5)
    reason = json.dumps(w.words() + w.rng.choice(("", ' {"score": 5}', " }", " [[A]]", " \n")))
    early = w.rng.choice(("", '{"score": 1}\n', "{braces} and {more}\n", "```json\n"))
    bad = w.rng.choice(("7", '"3"', "true", "NaN", "null", "3, 4", "[3]"))
    good = w.rng.random() < 0.7
    return f'{early}{{"reason": {reason}, "score": {n if good else bad}}}\n', (n - 1) / 4 if good else None


def foreign_pair(w: Writer) -> tuple[str, float | None]:
    side = w.rng.choice("ABC")
    good = w.rng.random() < 0.7
    lines = [w.words(), f"> [[{w.rng.choice('AB')}]]", f"Perhaps [[{w.rng.choice('AB')}]].", w.words(5)]
    last = f"[[{side}]]" if good else w.rng.choice(("[[D]]", "[[A or B]]", "[[]]"))
    quoted = w.rng.choice(([], ["> [[A]]", ">[[B]]"], ["```", "[[A]]", "```"]))
    return "\n".join([*lines, last, *quoted]), {"A": 1.0, "B": 0.0, "C": 0.5}[side] if good else None


@pytest.mark.parametrize(
    ("adapter", "make", "bounds"),
    [
        ("result_line", foreign_result, (1, 5)),
        ("json_score", foreign_json, (1, 5)),
        ("bracket_pair", foreign_pair, ("A", "B", "C")),
    ],
)
def test_foreign_forms_give_the_last_verdict_or_none(adapter: str, make: Any, bounds: Any) -> None:
    for i in range(EACH):
        text, value = make(Writer(f"{adapter} {i}"))
        found = FOREIGN[adapter](text, bounds, "stop")
        assert (found.value if isinstance(found, Scored) else None) == value, text
        half = text[: len(text) // 2]
        if not half.endswith("]]"):  # there a verdict happens to be complete
            assert isinstance(FOREIGN[adapter](half, bounds, "length"), Failed), text
