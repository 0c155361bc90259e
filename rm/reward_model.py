"""``RewardModel``: the judge as users meet it."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from axiomrm.data.trajectory import Trajectory, canonical_json
from axiomrm.data.verdict import Failed, Verdict
from axiomrm.errors import DataError
from axiomrm.rm.asking import Asking, VerdictRequest, ask
from axiomrm.rm.card import check_judge_card, read_judge_card
from axiomrm.rm.engines.base import Engine
from axiomrm.rm.judgement import Judgement, PairJudgement, Ranked, ahead
from axiomrm.rm.judging import judge_all
from axiomrm.rm.prompt import DEFAULT_SECRET, JudgePrompter, Mode
from axiomrm.rm.readout import Readout

if TYPE_CHECKING:
    from axiomrm.rubrics import ActiveRubric, Personal, Rubric

BATCH = 64
"""Trajectories judged together by ``score_many``."""
TIE_BAND = 0.05
"""Rewards that differ by at most this are a tie; our own starting value."""


class RewardModel:
    """Scores trajectories against rubrics with one judge, or without one for items that need none."""

    def __init__(
        self,
        engine: Engine | None,
        prompter: JudgePrompter | None,
        asking: Asking = Asking(),  # noqa: B008
    ) -> None:
        """Put a judge together by hand; users call one of the class methods."""
        self.engine, self.prompter, self.asking = engine, prompter, asking

    @classmethod
    def from_pretrained(
        cls,
        folder_or_id: str | Path,
        *,
        template: str | None = None,
        mode: Mode = "direct",
        min_mass: float | None = None,
        dtype: str = "float32",
        device: str | None = None,
        readout: Readout = "expected",
        secret: str = DEFAULT_SECRET,
        **options: Any,
    ) -> "RewardModel":
        """A local judge.

        Args:
            folder_or_id: a checkpoint folder, or a hub id where the hub can be reached.
            template: prompt template; by default the judge card's, ``default`` without a card.
            mode: ``direct`` (verdict alone) or ``critique`` (notes first).
            min_mass: smallest captured mass; by default the card's, 0 for a model that was never
                trained as a judge (its verdicts carry the flag ``untrained_judge``).
            dtype: ``float32``, ``bfloat16`` or ``float16``.
            device: torch device; the CPU by default.
            readout: how label probabilities become a value.
            secret: key of the nonces; see ``axiomrm.rm.prompt.DEFAULT_SECRET``.
            **options: further fields of ``Asking`` (``temperature``, ``max_notes_tokens``, ``seed``).

        Raises:
            ConfigError: the model, its tokenizer or its judge card cannot be used.
        """
        from axiomrm.rm.engines.transformers import TransformersEngine

        engine = TransformersEngine.load(str(folder_or_id), dtype=dtype, device=device)
        return cls.from_engine(
            engine,
            engine.tokenizer,
            folder=folder_or_id,
            template=template,
            min_mass=min_mass,
            secret=secret,
            mode=mode,
            readout=readout,
            **options,
        )

    @classmethod
    def from_model(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        template: str = "default",
        min_mass: float = 0.8,
        secret: str = DEFAULT_SECRET,
        untrained: bool = False,
        **options: Any,
    ) -> "RewardModel":
        """A judge out of a model in memory; ``options`` as in ``from_pretrained``.

        The weights are hashed once: after training them further, make a new one.
        """
        from axiomrm.rm.engines.transformers import TransformersEngine

        prompter = JudgePrompter(tokenizer, template=template, secret=secret)
        engine = TransformersEngine(model, tokenizer, end_ids=prompter.end_ids)
        return cls(engine, prompter, Asking(min_mass=min_mass, untrained=untrained, **options))

    @classmethod
    def from_engine(
        cls,
        engine: Engine,
        tokenizer: Any | None,
        *,
        folder: str | Path | None = None,
        template: str | None = None,
        min_mass: float | None = None,
        secret: str = DEFAULT_SECRET,
        **options: Any,
    ) -> "RewardModel":
        """A judge behind any engine; ``folder`` is where a judge card may lie."""
        card = read_judge_card(folder) if folder is not None else None
        prompter = JudgePrompter(
            tokenizer, template=template or (card.template if card else "default"), secret=secret
        )
        if card is not None:
            check_judge_card(card, prompter, str(folder))
        if min_mass is None:
            min_mass = card.min_mass if card else 0.0
        return cls(engine, prompter, Asking(min_mass=min_mass, untrained=card is None, **options))

    @classmethod
    def connect(
        cls,
        url: str,
        *,
        model: str,
        min_mass: float | None = None,
        template: str = "default",
        deadline_s: float = 60.0,
        **options: Any,
    ) -> "RewardModel":
        """A judge behind an OpenAI-compatible server; the key comes from ``OPENAI_API_KEY``.

        Args:
            url: base URL, up to and with ``/v1``.
            model: the server's name of the model.
            min_mass: 0 by default: such a model counts as never trained as a judge unless this is set.
            template: prompt template.
            deadline_s: seconds for one verdict, retries included.
            **options: ``mode``, ``readout``, ``temperature``, ``max_notes_tokens``, ``seed``, ``secret``.

        Raises:
            ConfigError: the URL cannot be used.
        """
        from axiomrm.rm.engines.openai import HttpLimits, OpenAIEngine

        secret = options.pop("secret", DEFAULT_SECRET)
        prompter = JudgePrompter(None, template=template, secret=secret)
        engine = OpenAIEngine(url, model, HttpLimits(deadline_s=deadline_s))
        return cls(engine, prompter, Asking(min_mass=min_mass or 0.0, untrained=min_mass is None, **options))

    @classmethod
    def programmatic(cls) -> "RewardModel":
        """No model: programmatic and constraint items get verdicts, the rest is ``Failed`` and counted."""
        return cls(None, None)

    @property
    def judge_revision(self) -> str:
        """SHA-256 over all on the model's side that changes a verdict; ``programmatic`` without a model."""
        if self.engine is None or self.prompter is None:
            return "programmatic"
        parts = {
            "engine": dict(self.engine.identity),
            "prompt": self.prompter.fingerprint,
            "mode": self.asking.mode,
            "readout": self.asking.readout,
        }
        return hashlib.sha256(canonical_json(parts).encode()).hexdigest()

    def with_settings(self, **changes: Any) -> "RewardModel":
        """The same loaded model asked otherwise (``mode``, ``readout``, ``min_mass`` …)."""
        return RewardModel(self.engine, self.prompter, replace(self.asking, **changes))

    def verdicts(self, requests: Sequence[VerdictRequest]) -> list[Verdict]:
        """One verdict a request, in order, below any rubric.

        Requests of one trajectory share its computation; put all that you have into one call.
        """
        if self.engine is None or self.prompter is None:
            return [Failed(kind="infrastructure", detail="this reward model has no judge model")] * len(
                requests
            )
        return ask(self.engine, self.prompter, requests, self.asking)

    def judge(self, pairs: Sequence[tuple[Trajectory, "ActiveRubric"]]) -> list[Judgement]:
        """One judgement for each trajectory with the rubric bound to its task (``rubric.bind``), in order.

        This is what to call with personal rubrics, or when binding is done elsewhere.
        """
        before = dict(self.usage)
        judgements = judge_all(pairs, self.verdicts, self.judge_revision)
        if len(pairs) == 1:
            spent = {name: count - before[name] for name, count in self.usage.items()}
            only = judgements[0]
            judgements = [only.model_copy(update={"usage": {**only.usage, **spent}})]
        return judgements

    def score(
        self, trajectory: Trajectory, rubric: "Rubric", personal: "Personal | None" = None
    ) -> Judgement:
        """Judge one trajectory.

        Args:
            trajectory: the recording; ``task.features`` decide which criteria apply.
            rubric: ``Rubric.load(...)``.
            personal: slot values and share of one user.

        Raises:
            DataError: the task lacks a feature that the rubric needs.
        """
        active = rubric.bind(trajectory.task.features, personal, task=trajectory.task_id or trajectory.id)
        return self.judge([(trajectory, active)])[0]

    def score_many(
        self, trajectories: Iterable[Trajectory], rubric: "Rubric", *, batch: int = BATCH
    ) -> Iterator[Judgement | Failed]:
        """Judge a stream, in order; where the rubric cannot be bound there is a ``Failed("bad_input")``.

        Args:
            trajectories: read as needed.
            rubric: one rubric for all.
            batch: trajectories judged together.
        """
        stream = iter(trajectories)
        while group := list(islice(stream, batch)):
            yield from self._score_group(group, rubric)

    def _score_group(self, group: Sequence[Trajectory], rubric: "Rubric") -> list[Judgement | Failed]:
        results: list[Judgement | Failed] = []
        pairs, places = [], []
        for trajectory in group:
            try:
                active = rubric.bind(trajectory.task.features, task=trajectory.task_id or trajectory.id)
                for turn in trajectory.turns:
                    active.at_turn(trajectory.before(turn.index))
            except DataError as error:
                results.append(Failed(kind="bad_input", detail=str(error)))
                continue
            places.append(len(results))
            pairs.append((trajectory, active))
            results.append(_PENDING)
        for place, judgement in zip(places, self.judge(pairs), strict=True):
            results[place] = judgement
        return results

    def compare(
        self, a: Trajectory, b: Trajectory, rubric: "Rubric", *, tie_band: float = TIE_BAND
    ) -> PairJudgement:
        """Which of two answers to one task is better, from two pointwise judgements.

        Args:
            a: one candidate.
            b: the other; both are judged by the rubric bound to their own task's features.
            rubric: one rubric for both.
            tie_band: rewards that differ by at most this are a tie.
        """
        left, right = self._pointwise([a, b], rubric)
        margin = None if left.reward is None or right.reward is None else left.reward - right.reward
        return PairJudgement(winner=ahead(left, right, tie_band), margin=margin, a=left, b=right)

    def rank(
        self, candidates: Sequence[Trajectory], rubric: "Rubric", *, tie_band: float = TIE_BAND
    ) -> list[Ranked]:
        """Candidates for one task, best first; those that abstain stand last, without a place."""
        judgements = self._pointwise(candidates, rubric)
        known = [(j.rank_key, i) for i, j in enumerate(judgements) if j.rank_key is not None]
        ranked: list[Ranked] = []
        for position, (_, i) in enumerate(sorted(known, key=lambda x: (x[0], -x[1]), reverse=True), 1):
            leader = next((r for r in ranked if r.place == ranked[-1].place), None)
            tied = leader is not None and ahead(leader.judgement, judgements[i], tie_band) == "tie"
            place = leader.place if tied and leader is not None else position
            ranked.append(Ranked(index=i, place=place, judgement=judgements[i]))
        missing = [
            Ranked(index=i, place=None, judgement=j) for i, j in enumerate(judgements) if j.rank_key is None
        ]
        return ranked + missing

    @property
    def usage(self) -> Mapping[str, int]:
        """Tokens that the engine counted since it was loaded; empty if it counts none."""
        return dict(getattr(self.engine, "usage", {}))

    def _pointwise(self, candidates: Sequence[Trajectory], rubric: "Rubric") -> list[Judgement]:
        return self.judge([(t, rubric.bind(t.task.features, task=t.task_id or t.id)) for t in candidates])


_PENDING = Failed(kind="engine_error", detail="not judged yet")
