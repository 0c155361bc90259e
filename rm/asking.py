"""Requests in, verdicts out: render, ask the engine, read out. Below rubrics and above engines.

Direct mode reads the label right after the forced lead-in. Critique mode writes notes first, cuts them at
the token where the deciding verdict line starts (or takes them whole if there is none), and reads the label
after the same lead-in in a second pass; critiques are never re-encoded. Several criteria in one prompt are
answered in writing, a line each; each label is then read at its own line, after the lines before it.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.rm.engines.base import Engine, Generation, Prompt, Sampling
from axiomrm.rm.evidence import evidence_flags, verify_quotes
from axiomrm.rm.foreign_judges import ADAPTERS, ForeignReading, foreign_verdict
from axiomrm.rm.grammar import Answer, clean, critique_of, parse, parse_items
from axiomrm.rm.labels import LabelTable
from axiomrm.rm.positions import reading_at
from axiomrm.rm.prompt import JudgePrompter
from axiomrm.rm.questions import LINE_TOKENS, Question, answer_tokens, plan, shown
from axiomrm.rm.readout import Reading, read_out, without_logprobs
from axiomrm.rm.request import Asking as Asking
from axiomrm.rm.request import VerdictRequest as VerdictRequest
from axiomrm.rm.voting import majority

Readings = list[Reading | Failed]


def ask(
    engine: Engine, prompter: JudgePrompter, requests: Sequence[VerdictRequest], how: Asking
) -> list[Verdict]:
    """One verdict a request, in order. Nothing here raises for a single request.

    Raises:
        ConfigError: this template, tokenizer or adapter cannot ask as ``how`` says.
    """
    several = read(engine, prompter, requests, how)
    return [verdict_of(readings, r, how) for readings, r in zip(several, requests, strict=True)]


def _as_it_is(verdict: Verdict) -> Verdict:
    return verdict


def read(
    engine: Engine, prompter: JudgePrompter, requests: Sequence[VerdictRequest], how: Asking
) -> list[Readings]:
    """The readings behind each verdict: one a vote, at least one a request."""
    questions, failures = plan(engine, prompter, requests, how)
    readings: list[Readings] = [[failures[i]] if i in failures else [] for i in range(len(requests))]
    sampled = how.mode == "critique" or how.readout == "sampled" or how.adapter != "own"
    rows = [q for q in questions for _ in range(requests[q.members[0]].votes if sampled else 1)]
    for question, found in zip(rows, _answers(engine, prompter, requests, rows, how), strict=True):
        for i, reading in zip(question.members, found, strict=True):
            readings[i].append(reading)
    return readings


def verdict_of(
    readings: Sequence[Reading | Failed],
    request: VerdictRequest,
    how: Asking,
    calibrate: Callable[[Verdict], Verdict] = _as_it_is,
) -> Verdict:
    """What the readings of one request say: on average, or (``request.majority``) by a vote.

    Raises:
        ValueError: there is no reading.
    """
    if not readings:
        raise ValueError("a verdict needs at least one reading")
    if request.majority and len(readings) > 1:
        return majority(votes_of(readings, request, how, calibrate), request.criterion.labels)
    return calibrate(_pooled(readings, request, how))


def votes_of(
    readings: Sequence[Reading | Failed],
    request: VerdictRequest,
    how: Asking,
    calibrate: Callable[[Verdict], Verdict] = _as_it_is,
) -> list[Verdict]:
    """What each reading says alone."""
    return [calibrate(_pooled([reading], request, how)) for reading in readings]


def _pooled(readings: Sequence[Reading | Failed], request: VerdictRequest, how: Asking) -> Verdict:
    """What the readings say together; a failure only where all of them failed."""
    good = [reading for reading in readings if isinstance(reading, Reading)]
    if not good:
        return next(reading for reading in readings if isinstance(reading, Failed))
    numbers = [reading for reading in good if isinstance(reading, ForeignReading)]
    verdict: Verdict = (
        foreign_verdict(numbers) if numbers else read_out(good, request.criterion.labels, how.rule)
    )
    extra = {"untrained_judge"} if how.untrained and how.adapter == "own" else set()
    extra |= {"failed_readings"} if len(good) < len(readings) else set()
    if isinstance(verdict, Scored | CannotAssess) and extra:
        return verdict.model_copy(update={"flags": tuple(sorted({*verdict.flags, *extra}))})
    return verdict


def _answers(
    engine: Engine,
    prompter: JudgePrompter,
    requests: Sequence[VerdictRequest],
    rows: Sequence[Question],
    how: Asking,
) -> list[Readings]:
    """One reading for each member of each row."""
    if how.adapter != "own":
        return _foreign(engine, requests, rows, how)
    reader = _Reader(engine, prompter, requests, how)
    if how.mode == "critique" or not (reader.forces or reader.prefills):
        return reader.written(rows)
    alone = [i for i, row in enumerate(rows) if len(row.members) == 1]
    together = [i for i, row in enumerate(rows) if len(row.members) > 1]
    found = dict(zip(alone, reader.direct([rows[i] for i in alone]), strict=True))
    found |= zip(together, reader.written([rows[i] for i in together]), strict=True)
    return [found[i] for i in range(len(rows))]


def _foreign(
    engine: Engine, requests: Sequence[VerdictRequest], rows: Sequence[Question], how: Asking
) -> list[Readings]:
    sampling = Sampling(max_new_tokens=how.max_notes_tokens, temperature=how.temperature, seed=how.seed)
    parse_theirs = ADAPTERS[how.adapter].parse
    found: list[Readings] = []
    for row, answer in zip(rows, engine.generate([row.prompt for row in rows], sampling), strict=True):
        if isinstance(answer, Failed):
            found.append([answer])
            continue
        labels = requests[row.members[0]].criterion.labels
        reading = parse_theirs(answer.text, labels, row.prompt.nonce, answer.stop)
        if isinstance(reading, Reading):
            reading = replace(reading, flags=(*reading.flags, *row.flags))
        found.append([reading])
    return found


class _Second(NamedTuple):
    """A label to be read in the second pass."""

    row: int
    place: int
    prompt: Prompt
    table: LabelTable


class _Reader:
    """Asks one engine for the readings of one call."""

    def __init__(
        self, engine: Engine, prompter: JudgePrompter, requests: Sequence[VerdictRequest], how: Asking
    ) -> None:
        self.engine, self.prompter, self.requests, self.how = engine, prompter, requests, how
        self.forces = how.readout != "sampled" and engine.capabilities.token_ids
        self.prefills = how.readout != "sampled" and engine.capabilities.prefill and not self.forces
        """A chat that goes on from a begun answer: read where the judge wrote, forced where it wrote none."""

    def direct(self, rows: Sequence[Question]) -> list[Readings]:
        """The label right after the lead-in."""
        tables = [self._table(row, 0) for row in rows]
        found = self.engine.label_logprobs([row.prompt for row in rows], tables) if rows else []
        return [
            [r if isinstance(r, Failed) else Reading(r.logprobs, r.bound, flags=row.flags)]
            for row, r in zip(rows, found, strict=True)
        ]

    def written(self, rows: Sequence[Question]) -> list[Readings]:
        """What the model wrote by itself, with label probabilities where the engine has them."""
        if not rows:
            return []
        results: list[Readings] = []
        again: list[_Second] = []
        for row, answer in zip(
            rows, self.engine.generate([row.prompt for row in rows], self._sampling()), strict=True
        ):
            if isinstance(answer, Failed):
                results.append([answer] * len(row.members))
                continue
            outcomes = self._outcomes(row, answer)
            results.append([self._reading(row, p, answer, outcome) for p, outcome in enumerate(outcomes)])
            if self.forces or self.prefills:
                again += self._second(len(results) - 1, row, answer, outcomes)
        forced = (
            self.engine.label_logprobs([s.prompt for s in again], [s.table for s in again]) if again else []
        )
        for second, found in zip(again, forced, strict=True):
            reading = results[second.row][second.place]
            if isinstance(reading, Reading):
                results[second.row][second.place] = (
                    found
                    if isinstance(found, Failed)
                    else replace(reading, logprobs=found.logprobs, bound=found.bound)
                )
        return results

    def _sampling(self) -> Sampling:
        how = self.how
        if how.joint > 1:
            written = how.mode == "critique" or how.readout == "sampled"
            tokens = answer_tokens(self.prompter, how)
            return Sampling(tokens, how.temperature if written else 0.0, how.seed)
        tokens = how.max_notes_tokens if how.mode == "critique" else LINE_TOKENS
        return Sampling(tokens, how.temperature, how.seed)

    def _outcomes(self, row: Question, written: Generation) -> list[tuple[Answer | Failed, bool]]:
        """For each member what its line says, and whether the answer named items that were never asked."""
        labels = [self.requests[i].criterion.labels.tokens for i in row.members]
        nonce, text = row.prompt.nonce, written.text
        if len(row.members) == 1:
            return [(parse(text, labels[0], nonce, written.stop), False)]
        numbers = range(1, len(labels) + 1)
        found, strangers = parse_items(
            text, dict(zip(numbers, labels, strict=True)), nonce, numbers, written.stop
        )
        return [(found[number], strangers > 0) for number in numbers]

    def _reading(
        self, row: Question, place: int, written: Generation, outcome: tuple[Answer | Failed, bool]
    ) -> Reading | Failed:
        answer, strangers = outcome
        forced = self.forces or self.prefills
        if isinstance(answer, Failed) and (not forced or len(row.members) > 1):
            return answer
        request = self.requests[row.members[place]]
        reading = self._critique(request, written, answer, row)
        if strangers:
            reading = replace(reading, flags=(*reading.flags, "unasked_items"))
        if self.forces or self.how.readout == "sampled" or isinstance(answer, Failed):
            return reading
        if not written.tokens:
            return without_logprobs(self.how.readout)
        found = reading_at(written.tokens, request.criterion.labels, answer)
        if isinstance(found, Failed):
            return found
        return replace(reading, logprobs=found.logprobs, bound=found.bound)

    def _critique(
        self, request: VerdictRequest, written: Generation, answer: Answer | Failed, question: Question
    ) -> Reading:
        if isinstance(answer, Failed):
            notes, quotes = critique_of(clean(written.text).text)
            flags: tuple[str, ...] = (
                ("critique_truncated",) if written.stop == "length" else ("forced_lead_in",)
            )
            label = None
        else:
            notes, quotes, flags, label = answer.notes, answer.quotes, answer.flags, answer.label
        seen = shown(request, self.how)
        evidence = verify_quotes(seen, quotes, question.elided, self.prompter.control) if quotes else ()
        flags = (*flags, *evidence_flags(evidence), *question.flags)
        return Reading(None, None, label, notes, evidence, flags)

    def _second(
        self, index: int, row: Question, written: Generation, outcomes: Sequence[tuple[Answer | Failed, bool]]
    ) -> list[_Second]:
        made = []
        for place, (answer, _) in enumerate(outcomes):
            if self.prefills:
                if isinstance(answer, Answer) or len(row.members) > 1:
                    continue
                text = written.text.rstrip()
                prompt = replace(row.prompt, answer=text and text + "\n")
                made.append(_Second(index, place, prompt, self._table(row, place)))
            elif isinstance(answer, Answer) or len(row.members) == 1:
                ids = row.prompt.suffix_ids + _notes_ids(self.prompter, written, answer)
                prompt = replace(row.prompt, suffix_ids=ids)
                made.append(_Second(index, place, prompt, self._table(row, place)))
        return made

    def _table(self, row: Question, place: int) -> LabelTable:
        labels = self.requests[row.members[place]].criterion.labels
        return self.prompter.table(labels, row.prompt.nonce, row.items[place])


def _notes_ids(prompter: JudgePrompter, written: Generation, answer: Answer | Failed) -> tuple[int, ...]:
    """The critique's ids up to the verdict line, as generated, ending in a line break."""
    end = len(written.text) if isinstance(answer, Failed) or answer.at is None else answer.at
    ids = written.token_ids
    kept = bisect_right(range(len(ids) + 1), end, key=lambda n: len(prompter.decode(ids[:n]))) - 1
    rest = written.text[len(prompter.decode(ids[:kept])) : end]
    whole = written.text[:end]
    if whole and not whole.endswith("\n"):
        rest += "\n"
    return ids[:kept] + prompter.encode(rest)
