"""``compare`` and ``rank``, in terms of ``judge`` and ``pairs``."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, overload

from axiomrm.data.trajectory import Trajectory
from axiomrm.rm.arguments import check_rubric, check_trajectories
from axiomrm.rm.judgement import Judgement, PairJudgement, PairVerdict, Ranked, TournamentPlace
from axiomrm.rm.pairwise import PairRequest, rubric_question, tournament
from axiomrm.rm.ranking import TIE_BAND, compared, ranked

if TYPE_CHECKING:
    from axiomrm.rubrics import ActiveRubric, Rubric

Side = Literal["pointwise", "pairwise"]


class Comparing(ABC):
    """What a judge of single trajectories says about several."""

    @abstractmethod
    def judge(self, pairs: Sequence[tuple[Trajectory, "ActiveRubric"]]) -> list[Judgement]:
        """One judgement for each trajectory with its bound rubric."""

    @abstractmethod
    def pairs(self, requests: Sequence[PairRequest]) -> list[PairVerdict]:
        """One verdict a comparison, in both orders, below any rubric."""

    @overload
    def compare(
        self, a: Trajectory, b: Trajectory, rubric: "Rubric", *, tie_band: float = ...
    ) -> PairJudgement: ...
    @overload
    def compare(
        self, a: Trajectory, b: Trajectory, rubric: "Rubric", *, mode: Literal["pairwise"]
    ) -> PairVerdict: ...
    def compare(
        self,
        a: Trajectory,
        b: Trajectory,
        rubric: "Rubric",
        *,
        tie_band: float = TIE_BAND,
        mode: Side = "pointwise",
    ) -> PairJudgement | PairVerdict:
        """Which of two answers to one task is better.

        Args:
            a: one candidate.
            b: the other; pointwise, both are judged by the rubric bound to their own task's features.
            rubric: one rubric for both.
            tie_band: pointwise rewards that differ by at most this are a tie.
            mode: ``pointwise``: from two judgements. ``pairwise``: the judge sees both, in both orders, and
                is asked once for all criteria that apply to ``a``.

        Raises:
            ConfigError: something else than two trajectories and a rubric.
        """
        check_trajectories([a, b], "compare: candidates")
        check_rubric(rubric, "compare")
        if mode == "pairwise":
            active = self._bound(a, rubric)
            request = PairRequest(a, b, rubric_question(active), active.guidelines)
            return self.pairs([request])[0]
        left, right = self._pointwise([a, b], rubric)
        return compared(left, right, tie_band)

    @overload
    def rank(
        self, candidates: Sequence[Trajectory], rubric: "Rubric", *, tie_band: float = ...
    ) -> list[Ranked]: ...
    @overload
    def rank(
        self, candidates: Sequence[Trajectory], rubric: "Rubric", *, mode: Literal["pairwise"]
    ) -> list[TournamentPlace]: ...
    def rank(
        self,
        candidates: Sequence[Trajectory],
        rubric: "Rubric",
        *,
        tie_band: float = TIE_BAND,
        mode: Side = "pointwise",
    ) -> list[Ranked] | list[TournamentPlace]:
        """Candidates for one task, best first; those without a verdict stand last, without a place.

        Args:
            candidates: answers to one task.
            rubric: one rubric for all.
            tie_band: pointwise rewards that differ by at most this share a place.
            mode: ``pairwise``: each against each in both orders, for at most 8.

        Raises:
            ConfigError: something else than trajectories and a rubric.
        """
        check_trajectories(candidates, "rank: candidates")
        check_rubric(rubric, "rank")
        if mode == "pairwise" and candidates:
            active = self._bound(candidates[0], rubric)
            return tournament(candidates, rubric_question(active), active.guidelines, self.pairs)
        return ranked(self._pointwise(candidates, rubric), tie_band)

    def _bound(self, trajectory: Trajectory, rubric: "Rubric") -> "ActiveRubric":
        return rubric.bind(trajectory.task.features, task=trajectory.task_id or trajectory.id)

    def _pointwise(self, candidates: Sequence[Trajectory], rubric: "Rubric") -> list[Judgement]:
        return self.judge([(t, self._bound(t, rubric)) for t in candidates])
