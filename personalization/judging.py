"""Pair accuracy a user from verdicts that were read from a model.

Nothing here sees a user's hidden tastes: a score is the rubric's aggregate of the verdicts, once generic,
once with the user's compiled criteria and share, once with the whole profile of somebody else. A verdict that
is missing stays missing: the pair is then not scored, and counted as such.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, NamedTuple

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Failed, Verdict
from axiomrm.errors import DataError
from axiomrm.personalization.compile import PersonalRubric, compile_criteria
from axiomrm.personalization.profile import Purpose, moment
from axiomrm.personalization.simulate import SimulatedUser, UserPair
from axiomrm.rubrics.aggregate import Aggregate, aggregate
from axiomrm.rubrics.bind import ActiveRubric
from axiomrm.rubrics.rubric import Rubric


class Unit(NamedTuple):
    """One question on one dialogue or turn; equal questions of different users are one unit."""

    trajectory: str
    """Trajectory id."""
    ask: str
    turn: int | None
    """0-based; ``None``: the whole dialogue."""


Verdicts = Mapping[Unit, Verdict]
TIE = 1e-9


@dataclass(frozen=True)
class Learned:
    """What a user's own earlier choices say."""

    n_events: float = 0.0
    weights: Mapping[str, float] = field(default_factory=dict)
    """Template → weight among the personal criteria."""


class UserRubrics:
    """The rubric of each user for each task, compiled once."""

    def __init__(
        self,
        rubric: Rubric,
        users: Sequence[SimulatedUser],
        learned: Mapping[str, Learned] | None = None,
        *,
        uses: tuple[Purpose, ...] = ("judging",),
        now: datetime | None = None,
    ) -> None:
        """Prepare.

        Args:
            rubric: with personal templates.
            users: whose profiles are read; their tastes are not.
            learned: user → what their choices say; nothing by default.
            uses: what the criteria are for; only values that may serve all of it are compiled.
            now: when the profiles are read, with a zone; by default the real time.

        Raises:
            DataError: ``now`` has no time zone.
        """
        self.rubric, self.users = rubric, tuple(users)
        self._uses, self._now = uses, moment(now)
        self._views = {u.id: u.profile.view(also=uses, now=self._now) for u in users}
        self._learned = dict(learned or {})
        self._compiled: dict[tuple[str, str], PersonalRubric] = {}
        self._generic: dict[str, ActiveRubric] = {}

    def with_learned(self, learned: Mapping[str, Learned]) -> "UserRubrics":
        """The same users after their choices were looked at."""
        return UserRubrics(self.rubric, self.users, learned, uses=self._uses, now=self._now)

    def generic(self, trajectory: Trajectory) -> ActiveRubric:
        """The rubric without a profile, for the task of a dialogue."""
        key = _features(trajectory)
        if key not in self._generic:
            self._generic[key] = self.rubric.bind(trajectory.task.features, task=trajectory.task_id)
        return self._generic[key]

    def compiled(self, user: str, trajectory: Trajectory) -> PersonalRubric:
        """The rubric of a user for the task of a dialogue; nothing else of the dialogue is looked at.

        Raises:
            DataError: no such user.
        """
        if user not in self._views:
            raise DataError(f"no profile of user {user!r}; known: {len(self._views)} users")
        key = (user, _features(trajectory))
        if key not in self._compiled:
            known = self._learned.get(user, Learned())
            self._compiled[key] = compile_criteria(
                self._views[user],
                self.rubric,
                trajectory.task.features,
                known.n_events,
                weights=known.weights,
            )
        return self._compiled[key]

    def units(
        self,
        pairs: Iterable[UserPair],
        recordings: Mapping[str, Trajectory],
        swapped: Mapping[str, str] | None = None,
    ) -> list[Unit]:
        """Every question that these pairs need, each once: what to ask the judge.

        Args:
            pairs: of these users.
            recordings: id → dialogue.
            swapped: user → whose profile stands in; ``None``: that arm is not wanted.
        """
        wanted: dict[Unit, None] = {}
        for pair in pairs:
            for trajectory in (recordings[pair.a], recordings[pair.b]):
                people = [pair.user, *([swapped[pair.user]] if swapped is not None else [])]
                for active in (
                    self.generic(trajectory),
                    *(self.compiled(u, trajectory).active for u in people),
                ):
                    wanted |= dict.fromkeys(u for _, units in _asked(active, trajectory) for u in units)
        return list(wanted)


@dataclass(frozen=True)
class PairScores:
    """One pair under the three arms: 1 the chosen dialogue scores higher, 0 lower, 0.5 equal."""

    pair: UserPair
    generic: float | None
    """``None``: a score of one of the two dialogues is missing."""
    personal: float | None
    swapped: float | None

    @property
    def scored(self) -> bool:
        """Whether all three arms have a score; only such pairs are compared."""
        return None not in (self.generic, self.personal, self.swapped)


class PersonalScorer:
    """Scores dialogues for users out of one table of verdicts."""

    def __init__(
        self, rubrics: UserRubrics, recordings: Mapping[str, Trajectory], verdicts: Verdicts
    ) -> None:
        """Nothing is judged here: a unit that the table lacks is missing."""
        self.rubrics, self.recordings, self.verdicts = rubrics, recordings, verdicts
        self._hashes: dict[int, str] = {}
        self._done: dict[tuple[str, str], Aggregate | None] = {}

    def generic(self, trajectory_id: str) -> Aggregate | None:
        """The rubric's aggregate without a profile; ``None``: a verdict is missing or failed."""
        trajectory = self.recordings[trajectory_id]
        return self._aggregate(self.rubrics.generic(trajectory), trajectory)

    def personal(self, user: str, trajectory_id: str) -> Aggregate | None:
        """The aggregate with a user's criteria; ``None``: a verdict is missing or failed."""
        trajectory = self.recordings[trajectory_id]
        return self._aggregate(self.rubrics.compiled(user, trajectory).active, trajectory)

    def pair(self, pair: UserPair, swapped: Mapping[str, str]) -> PairScores:
        """One pair under the three arms."""
        other = swapped[pair.user]
        return PairScores(
            pair,
            agreement(self.generic(pair.a), self.generic(pair.b), pair.choice),
            agreement(self.personal(pair.user, pair.a), self.personal(pair.user, pair.b), pair.choice),
            agreement(self.personal(other, pair.a), self.personal(other, pair.b), pair.choice),
        )

    def _aggregate(self, active: ActiveRubric, trajectory: Trajectory) -> Aggregate | None:
        if id(active) not in self._hashes:  # ``rubrics`` keeps it alive, so the id stays its own
            self._hashes[id(active)] = active.compiled_hash
        key = (self._hashes[id(active)], trajectory.id)
        if key not in self._done:
            self._done[key] = self._combined(active, trajectory)
        return self._done[key]

    def _combined(self, active: ActiveRubric, trajectory: Trajectory) -> Aggregate | None:
        given: dict[str, Verdict | list[Verdict | None]] = {}
        for item, units in _asked(active, trajectory):
            found = [self.verdicts[u] for u in units if u in self.verdicts]
            if len(found) < len(units) or any(isinstance(v, Failed) for v in found):
                return None
            given[item] = found[0] if units[0].turn is None else list(found)
        return aggregate(active, given)


def agreement(a: Aggregate | None, b: Aggregate | None, choice: Literal["a", "b"]) -> float | None:
    """1 if the rewards point to the choice, 0 if to the other, 0.5 for a tie; ``None``: one is missing."""
    if a is None or b is None or a.reward is None or b.reward is None:
        return None
    difference = a.reward - b.reward
    if abs(difference) <= TIE:
        return 0.5
    return float((difference > 0) == (choice == "a"))


def _asked(active: ActiveRubric, trajectory: Trajectory) -> list[tuple[str, list[Unit]]]:
    """Item and axiom ids with their units on one dialogue."""
    out = []
    for item in active.judged:
        at_turns = item.evidence.level == "turn"
        turns: Sequence[int | None] = range(len(trajectory.turns)) if at_turns else (None,)
        out.append((item.id, [Unit(trajectory.id, item.statement, t) for t in turns]))
    return out


def _features(trajectory: Trajectory) -> str:
    return repr(sorted(trajectory.task.features.items()))
