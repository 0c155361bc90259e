"""Requests become questions: one prompt each, about one criterion or about several of the same unit.

Which criteria stand together, and in which order, follows from SHA-256 over seed, unit and criterion id: it
differs between units, repeats between runs and leaves the global generator alone.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from axiomrm.data.trajectory import Trajectory, canonical_json
from axiomrm.data.verdict import Failed
from axiomrm.errors import ConfigError
from axiomrm.rm.engines.base import Engine, Prompt
from axiomrm.rm.foreign_judges import ADAPTERS
from axiomrm.rm.grammar import lead_in
from axiomrm.rm.overflow import fitted
from axiomrm.rm.prefixes import Elided
from axiomrm.rm.prompt import JudgePrompter
from axiomrm.rm.request import Asking, VerdictRequest

LINE_TOKENS = 24
"""Tokens of a verdict line where no tokenizer tells."""


@dataclass(frozen=True)
class Question:
    """One prompt and the requests that it asks about."""

    prompt: Prompt
    members: tuple[int, ...]
    """Indices of the requests, in the order in which the prompt numbers them."""
    elided: Elided = frozenset()
    flags: tuple[str, ...] = ()
    """What every verdict from this prompt must say: ``hindsight``, ``elided``."""

    @property
    def items(self) -> tuple[int | None, ...]:
        """The item number of each member; ``None`` where one is asked alone."""
        return tuple(range(1, len(self.members) + 1)) if len(self.members) > 1 else (None,)


def plan(
    engine: Engine, prompter: JudgePrompter, requests: Sequence[VerdictRequest], how: Asking
) -> tuple[list[Question], Mapping[int, Failed]]:
    """The questions, in the order of their first requests, and why some requests make none.

    Raises:
        ConfigError: this template, tokenizer or adapter cannot ask so.
    """
    prompter.check_joint(how.joint)
    limit = engine.capabilities.max_tokens
    room = None if limit is None or how.overflow == "fail" else limit - answer_tokens(prompter, how)
    questions: list[Question] = []
    failures: dict[int, Failed] = {}
    for members in groups(requests, how):
        question = _question(prompter, [requests[i] for i in members], how, room)
        if isinstance(question, Failed):
            failures |= dict.fromkeys(members, question)
        else:
            questions.append(replace(question, members=members))
    return questions, failures


def groups(requests: Sequence[VerdictRequest], how: Asking) -> list[tuple[int, ...]]:
    """Indices of the requests that are asked together: at most ``how.joint``, all about one unit.

    A unit's criteria are permuted and dealt out evenly: nine at most eight to a prompt make five and four.
    """
    if how.joint == 1 or how.adapter != "own":
        return [(i,) for i in range(len(requests))]
    units: dict[object, list[int]] = {}
    for i, r in enumerate(requests):
        votes = r.votes if how.mode == "critique" or how.readout == "sampled" else 1
        units.setdefault((id(r.trajectory), r.turn, r.guidelines, votes, r.view), []).append(i)
    made: list[tuple[int, ...]] = []
    for unit in units.values():
        ids = [requests[i].criterion.id for i in unit]
        order = [unit[place] for place in permutation(ids, how.seed, unit_name(requests[unit[0]], how))]
        parts = -(-len(order) // how.joint)
        cuts = [len(order) * part // parts for part in range(parts + 1)]
        made += [tuple(order[a:b]) for a, b in pairwise(cuts)]
    return made


def permutation(ids: Sequence[str], seed: int, unit: str, purpose: str = "criteria order") -> list[int]:
    """A fixed order of ``ids``: by SHA-256 over seed, unit, id and purpose."""

    def key(place: int) -> bytes:
        return hashlib.sha256(canonical_json([seed, unit, ids[place], purpose]).encode()).digest()

    return sorted(range(len(ids)), key=key)


def unit_name(request: VerdictRequest, how: Asking) -> str:
    """The trajectory's id, or a hash of what the judge sees where it has none; with the turn."""
    name = request.trajectory.id or shown(request, how).content_hash
    return canonical_json([name, request.turn])


def shown(request: VerdictRequest, how: Asking) -> Trajectory:
    """The part of the recording that the judge sees."""
    turn = request.turn
    if turn is None or (request.view or how.turn_view) == "hindsight":
        return request.trajectory
    return request.trajectory.until(turn) if 0 <= turn < len(request.trajectory.turns) else request.trajectory


def answer_tokens(prompter: JudgePrompter, how: Asking) -> int:
    """Tokens that the longest answer may take, the end token included."""
    line = len(prompter.encode(lead_in(prompter.nonce_of(""), how.joint))) + 4 if prompter.tokenizer else 0
    lines = how.joint * max(line, 0 if line else LINE_TOKENS)
    return lines + (how.max_notes_tokens if how.mode == "critique" or how.adapter != "own" else 0)


def _question(
    prompter: JudgePrompter, asked: Sequence[VerdictRequest], how: Asking, room: int | None
) -> Question | Failed:
    first = asked[0]
    view = first.view or how.turn_view
    if how.adapter != "own":
        adapter = ADAPTERS.get(how.adapter)
        if adapter is None or adapter.pairs:
            good = ["own", *(name for name, one in ADAPTERS.items() if not one.pairs)]
            raise ConfigError(f"adapter {how.adapter!r} judges no single recording: use one of {good}")
        prompt = adapter.prompt(prompter, replace(first, view=view), None)
        return prompt if isinstance(prompt, Failed) else Question(prompt, ())

    def render(elided: Elided) -> Prompt | Failed:
        return prompter.render(
            first.trajectory,
            [request.criterion for request in asked],
            first.turn,
            how.mode or "direct",
            guidelines=first.guidelines,
            view=view,
            elided=elided,
        )

    elided: Elided = frozenset()
    if room is None:
        prompt = render(elided)
    else:
        prompt, elided = fitted(prompter, render, shown(first, how), room)
    if isinstance(prompt, Failed):
        return prompt
    hindsight = first.turn is not None and view == "hindsight"
    flags = (*(["elided"] if elided else []), *(["hindsight"] if hindsight else []))
    return Question(prompt, (), elided, flags)
