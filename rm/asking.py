"""Requests in, verdicts out: render, ask the engine, read out. Below rubrics and above engines.

Direct mode reads the label right after the forced lead-in. Critique mode writes notes first, cuts them at
the token where the deciding verdict line starts (or takes them whole if there is none), and reads the label
after the same lead-in in a second pass; critiques are never re-encoded.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import CannotAssess, Failed, Scored, Verdict
from axiomrm.rm.engines.base import Engine, Generation, LabelReading, Prompt, Sampling
from axiomrm.rm.evidence import evidence_flags, verify_quotes
from axiomrm.rm.grammar import Answer, clean, critique_of, parse
from axiomrm.rm.positions import reading_at_label
from axiomrm.rm.prompt import Criterion, JudgePrompter, Mode
from axiomrm.rm.readout import NEVER, X_THRESHOLD, Reading, Readout, Rule, read_out


@dataclass(frozen=True)
class VerdictRequest:
    """One criterion on one unit."""

    trajectory: Trajectory
    criterion: Criterion
    turn: int | None = None
    """0-based; ``None``: the whole conversation."""
    guidelines: str = ""
    votes: int = 1
    """Critiques to average over; a direct reading is one pass whatever it says."""


@dataclass(frozen=True)
class Asking:
    """How requests are asked and read."""

    mode: Mode = "direct"
    readout: Readout = "expected"
    min_mass: float = 0.8
    untrained: bool = False
    """The model was never trained as a judge: every verdict carries the flag ``untrained_judge``, and the
    probability of X is reported but decides nothing."""
    temperature: float = 0.7
    max_notes_tokens: int = 96
    seed: int = 0

    @property
    def rule(self) -> Rule:
        """How readings become verdicts."""
        x_threshold = NEVER if self.untrained else X_THRESHOLD
        return Rule(self.min_mass, self.readout, self.mode, x_threshold)


def ask(
    engine: Engine, prompter: JudgePrompter, requests: Sequence[VerdictRequest], how: Asking
) -> list[Verdict]:
    """One verdict a request, in order. Nothing here raises for a single request."""
    several = read(engine, prompter, requests, how)
    return [verdict_of(readings, r, how) for readings, r in zip(several, requests, strict=True)]


def read(
    engine: Engine, prompter: JudgePrompter, requests: Sequence[VerdictRequest], how: Asking
) -> list[list[Reading | Failed]]:
    """The readings behind each verdict: one a vote, at least one a request."""
    readings: list[list[Reading | Failed]] = [[] for _ in requests]
    rows: list[tuple[int, Prompt]] = []
    for i, request in enumerate(requests):
        prompt = prompter.render(
            request.trajectory, request.criterion, request.turn, how.mode, guidelines=request.guidelines
        )
        if isinstance(prompt, Failed):
            readings[i].append(prompt)
        else:
            rows += [(i, prompt)] * (request.votes if how.mode == "critique" else 1)
    asked = [requests[i] for i, _ in rows]
    prompts = [prompt for _, prompt in rows]
    form = _direct if how.mode == "direct" else _critiques
    for (i, _), reading in zip(rows, form(engine, prompter, asked, prompts, how), strict=True):
        readings[i].append(reading)
    return readings


def _direct(
    engine: Engine,
    prompter: JudgePrompter,
    requests: Sequence[VerdictRequest],
    prompts: Sequence[Prompt],
    how: Asking,
) -> list[Reading | Failed]:
    if how.readout == "sampled" or not engine.capabilities.token_ids:
        sampling = Sampling(max_new_tokens=24, temperature=how.temperature, seed=how.seed)
        return _written(engine, requests, prompts, sampling, how)
    tables = [prompter.table(r.criterion.labels, p.nonce) for r, p in zip(requests, prompts, strict=True)]
    found = engine.label_logprobs(prompts, tables)
    return [r if isinstance(r, Failed) else Reading(r.logprobs, r.bound) for r in found]


def _critiques(
    engine: Engine,
    prompter: JudgePrompter,
    requests: Sequence[VerdictRequest],
    prompts: Sequence[Prompt],
    how: Asking,
) -> list[Reading | Failed]:
    sampling = Sampling(max_new_tokens=how.max_notes_tokens, temperature=how.temperature, seed=how.seed)
    if how.readout == "sampled" or not engine.capabilities.token_ids:
        return _written(engine, requests, prompts, sampling, how)
    readings: list[Reading | Failed] = []
    tables, forced, places = [], [], []
    for i, written in enumerate(engine.generate(prompts, sampling)):
        if isinstance(written, Failed):
            readings.append(written)
            continue
        labels = requests[i].criterion.labels
        answer = parse(written.text, labels.tokens, prompts[i].nonce, written.stop)
        before = _notes_ids(prompter, written, answer)
        readings.append(_critique(requests[i], written, answer))
        tables.append(prompter.table(labels, prompts[i].nonce))
        forced.append(replace(prompts[i], suffix_ids=prompts[i].suffix_ids + before))
        places.append(i)
    for i, found in zip(places, engine.label_logprobs(forced, tables), strict=True):
        reading = readings[i]
        if isinstance(reading, Reading):
            readings[i] = found if isinstance(found, Failed) else replace(reading, logprobs=found.logprobs)
    return readings


def _written(
    engine: Engine,
    requests: Sequence[VerdictRequest],
    prompts: Sequence[Prompt],
    sampling: Sampling,
    how: Asking,
) -> list[Reading | Failed]:
    """Readings from what the model wrote by itself: sampled labels, or an engine that takes no ids."""
    readings: list[Reading | Failed] = []
    for request, prompt, written in zip(requests, prompts, engine.generate(prompts, sampling), strict=True):
        if isinstance(written, Failed):
            readings.append(written)
            continue
        labels = request.criterion.labels
        answer = parse(written.text, labels.tokens, prompt.nonce, written.stop)
        if isinstance(answer, Failed):
            readings.append(answer)
            continue
        reading = _critique(request, written, answer)
        found: LabelReading | Failed | None = None
        if how.readout != "sampled" and written.tokens:
            found = reading_at_label(written.tokens, labels, prompt.nonce)
        if isinstance(found, LabelReading):
            reading = replace(reading, logprobs=found.logprobs, bound=found.bound)
        readings.append(found if isinstance(found, Failed) else reading)
    return readings


def _critique(request: VerdictRequest, written: Generation, answer: Answer | Failed) -> Reading:
    if isinstance(answer, Failed):
        notes, quotes = critique_of(clean(written.text).text)
        flags: tuple[str, ...] = ("critique_truncated",) if written.stop == "length" else ("forced_lead_in",)
        label = None
    else:
        notes, quotes, flags, label = answer.notes, answer.quotes, answer.flags, answer.label
    evidence = verify_quotes(request.trajectory, quotes)
    return Reading(None, None, label, notes, evidence, (*flags, *evidence_flags(evidence)))


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


def verdict_of(readings: Sequence[Reading | Failed], request: VerdictRequest, how: Asking) -> Verdict:
    """What the readings of one request say together; a failure only where all of them failed.

    Raises:
        ValueError: there is no reading.
    """
    if not readings:
        raise ValueError("a verdict needs at least one reading")
    good = [reading for reading in readings if isinstance(reading, Reading)]
    if not good:
        return next(reading for reading in readings if isinstance(reading, Failed))
    verdict = read_out(good, request.criterion.labels, how.rule)
    extra = {"untrained_judge"} if how.untrained else set()
    extra |= {"failed_readings"} if len(good) < len(readings) else set()
    if isinstance(verdict, Scored | CannotAssess) and extra:
        return verdict.model_copy(update={"flags": tuple(sorted({*verdict.flags, *extra}))})
    return verdict
