"""The training loop of POLICY.md section 14. It knows no algorithm by name.

Every random draw is keyed by (seed, purpose, iteration, …), so a run that was killed continues exactly as
it would have gone on: weights, optimizer, KL controller, statistics and buffer come from the last
checkpoint, and metrics rows after it are dropped and written again.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from axiomrm.data.trajectory import Task, canonical_json
from axiomrm.policy_opt import checkpoint
from axiomrm.policy_opt.algorithms.base import ActorCritic, Rescoring
from axiomrm.policy_opt.algorithms.build import build_algorithm
from axiomrm.policy_opt.arguments import check_training
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.policy_opt.engines.build import Published, admission_of, build_sampler
from axiomrm.policy_opt.kl import KLController
from axiomrm.policy_opt.logprobs import hidden_size
from axiomrm.policy_opt.monitoring.diagnostics import episode_diagnostics, update_diagnostics
from axiomrm.policy_opt.monitoring.metrics import rollout_metrics, update_metrics
from axiomrm.policy_opt.monitoring.monitors import HeldOut, Monitors
from axiomrm.policy_opt.monitoring.signals import warn_of_unused
from axiomrm.policy_opt.monitoring.trackers import Tracker
from axiomrm.policy_opt.monitoring.watch import Watch
from axiomrm.policy_opt.reference import starting_policy
from axiomrm.policy_opt.reuse_stop import moved_too_far
from axiomrm.policy_opt.rewards.answers import asked_about
from axiomrm.policy_opt.rewards.base import Episode, ForgetfulJudge, StatefulJudge, TurnJudge, apply_scores
from axiomrm.policy_opt.rewards.narrowed import Narrowed
from axiomrm.policy_opt.rollouts.chat_format import ChatFormat
from axiomrm.policy_opt.rollouts.env_calls import EnvFactory
from axiomrm.policy_opt.rollouts.rollout import collect, group_requests
from axiomrm.policy_opt.schedule import set_rates, share_of_peak
from axiomrm.policy_opt.seeds import generator
from axiomrm.policy_opt.team import Step, accelerator_of, join, leads, tell, together
from axiomrm.policy_opt.update import UpdateStats, attach_reference, optimizer_step, token_values

Metrics = dict[str, float]


class PolicyTrainer:
    """Trains ``model`` in place; ``run`` resumes from ``folder`` if it holds a checkpoint.

    Args:
        model: causal language model to train, holding the starting weights (also when resuming): they are the
            frozen reference. A model with adapters is fine: checkpoints then hold what is trained alone.
        chat: messages to ids and back.
        env_factory: makes a fresh environment an episode.
        tasks: training tasks, drawn without replacement, reshuffled each round.
        config: the run.
        folder: checkpoints and ``metrics.jsonl``.
        turn_judge: asked for turns whose reward the environment left to the judge; ``None`` = outcome only.
        on_iteration: called after each iteration with its number, metrics and rollouts, again for an
            iteration that a kill makes run again (for reports and bars).
        heldout: criteria that the policy is not rewarded for, for the monitors.
        tracker: gets each metrics row besides ``metrics.jsonl``.
        accelerator: for the update; default: as ``config.accelerate`` says. Of several processes each makes
            this trainer and calls ``run``, over one shared folder.
    """

    def __init__(
        self,
        model: Any,
        chat: ChatFormat,
        env_factory: EnvFactory,
        tasks: Sequence[Task],
        config: PolicyConfig,
        folder: Path,
        *,
        turn_judge: TurnJudge | None = None,
        on_iteration: Callable[[int, Metrics, list[Episode]], None] | None = None,
        heldout: HeldOut | None = None,
        tracker: Tracker | None = None,
        accelerator: Any = None,
    ) -> None:
        self.tasks = check_training(
            tasks, config, model=model, chat=chat, env_factory=env_factory, folder=folder,
            turn_judge=turn_judge, heldout=heldout, tracker=tracker, on_iteration=on_iteration,
        )  # fmt: skip
        self.model, self.chat, self.env_factory, self.config = model, chat, env_factory, config
        self.folder, self.turn_judge, self.on_iteration = Path(folder), turn_judge, on_iteration
        self.model.eval()  # No dropout: it would make the trainer's log-probs differ from the sampler's.
        self.reference_hash = checkpoint.weights_hash(model)
        self.algorithm = build_algorithm(config.algorithm)
        self.kl = KLController(config.kl.initial_beta, config.kl.target_nats_per_token)
        accelerator = accelerator or accelerator_of(config)
        if accelerator is not None:
            model.to(accelerator.device)
        optimizer = torch.optim.AdamW(
            self._parameter_groups(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.replica, self.optimizer = join(accelerator, model, optimizer, self.algorithm, config)
        self.reference = starting_policy(model) if config.kl.enabled and leads(self.replica) else None
        self.sampler = build_sampler(config.rollout, model, chat.end_ids)
        self.iteration, self.tracker = 0, tracker
        self.grad_norms: list[float] = []
        self.watch = Watch(Monitors(config.monitors, heldout), config.on_hack, self.folder, self.algorithm)
        self._asked = None if turn_judge is None else Narrowed(turn_judge, self.watch.left_out)
        if isinstance(self.algorithm, Rescoring):
            self.algorithm.turn_judge = self._asked

    def _parameter_groups(self) -> list[dict[str, Any]]:
        groups: list[dict[str, Any]] = [{"params": [p for p in self.model.parameters() if p.requires_grad]}]
        if isinstance(self.algorithm, ActorCritic):
            self.algorithm.open_critic(hidden_size(self.model))
            self.algorithm.critic.to(next(self.model.parameters()).device)
            head = list(self.algorithm.critic.parameters())
            groups.append({"params": head, "lr": self.algorithm.critic_learning_rate})
        return groups

    def run(self) -> list[Metrics]:
        """Run (the rest of) the iterations; returns one metrics row an iteration, earlier ones included."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with checkpoint.held(self.folder) if leads(self.replica) else nullcontext():
            self._resume()
            try:
                return together(self.replica, self._run, self._step)
            finally:
                if isinstance(self.sampler, Published):
                    self.sampler.close()

    def _run(self) -> list[Metrics]:
        rows = checkpoint.kept_rows(self._metrics_path, self.iteration)
        while self.iteration < self.config.iterations:
            self.watch.stop_if_gamed(self.iteration)
            metrics, episodes = self._iterate()
            rows.append(metrics)
            with self._metrics_path.open("a", encoding="utf-8") as file:
                file.write(canonical_json(metrics) + "\n")
            if self.tracker is not None:
                self.tracker.log(self.iteration, metrics)
            if self.on_iteration is not None:
                # Before the checkpoint: a kill in between repeats the iteration, callback included.
                self.on_iteration(self.iteration, metrics, episodes)
            self.iteration += 1
            last = self.iteration == self.config.iterations or self.watch.must_stop
            if last or self.iteration % self.config.checkpoint_every == 0:
                self._save()
        self.watch.stop_if_gamed(self.iteration)
        return rows

    def _iterate(self) -> tuple[Metrics, list[Episode]]:
        before = time.perf_counter()
        self._publish()
        started = time.perf_counter()
        episodes = self.rollout(self.draw_tasks(self.iteration))
        rolled = time.perf_counter()
        self._score(episodes)
        scored = time.perf_counter()
        records = [episode.record for episode in episodes]
        self._prepare(episodes)
        alarms = self.watch.look(self.iteration, episodes)
        metrics: Metrics = {"iteration": float(self.iteration), **rollout_metrics(episodes)}
        metrics |= self.algorithm.ingest(records, self.iteration)
        metrics |= self._update() | self.algorithm.finish(self.iteration)
        metrics |= alarms | self.watch.updated(self.iteration, metrics)
        metrics |= episode_diagnostics(episodes)
        metrics |= {"time/rollout_s": rolled - started, "time/judge_s": scored - rolled}
        metrics |= {"time/update_s": time.perf_counter() - scored, "time/publish_s": started - before}
        return metrics, episodes

    def _prepare(self, episodes: list[Episode]) -> None:
        """What an algorithm reads of the rollouts besides rewards."""
        records, budget = [episode.record for episode in episodes], self.config.tokens_per_forward
        if self.reference is not None and self.algorithm.needs_reference:
            with self.reference() as start:
                attach_reference(start, records, token_budget=budget)
        if isinstance(self.algorithm, ActorCritic):
            critic = self.algorithm.critic
            self.algorithm.take_values(token_values(self.model, critic, records, token_budget=budget))
        if isinstance(self.algorithm, Rescoring) and self.algorithm.keeps_transcripts:
            for episode in episodes:
                episode.record.transcript = episode.trajectory.model_dump_json()

    def draw_tasks(self, iteration: int) -> list[Task]:
        """Tasks of an iteration: consecutive pieces of reshuffled rounds over all tasks."""
        n, first = len(self.tasks), iteration * self.config.tasks_per_iteration
        drawn = []
        for position in range(first, first + self.config.tasks_per_iteration):
            order = generator(self.config.seed, "tasks", position // n).permutation(n)
            drawn.append(self.tasks[int(order[position % n])])
        return drawn

    def rollout(self, tasks: Sequence[Task]) -> list[Episode]:
        """One group of rollouts a task from the current weights."""
        self._publish()
        return collect(
            self.sampler,
            self.chat,
            self.env_factory,
            group_requests(tasks, self.config.group_size, f"it{self.iteration}"),
            limits=self.config.rollout.limits(),
            seed=self.config.seed,
            policy_version=self.iteration,
        )

    def _publish(self) -> None:
        if isinstance(self.sampler, Published) and self.sampler.version != self.iteration:
            self.sampler.publish(self.model, self.iteration)

    def _score(self, episodes: list[Episode]) -> None:
        self.watch.check_rollouts(episodes, self.iteration, self.config.max_failed_rollouts)
        asked = [e for e in episodes if e.record.ending != "env_error" and e.record.steps]
        if self._asked is not None and asked:
            answers = asked_about(self._asked, asked)
            warn_of_unused(asked, answers, self.iteration)
            apply_scores(asked, answers)
            self.watch.verdicts.check(asked, self.iteration, self.config.max_failed_verdicts)

    def _update(self) -> Metrics:
        fresh, reused, stopped = list[UpdateStats](), list[UpdateStats](), False
        known, target = self.grad_norms, self.config.kl.target_nats_per_token
        set_rates(self.optimizer, share_of_peak(self.config.schedule, self.iteration, self.config.iterations))
        rng = generator(self.config.seed, "plan", self.iteration)
        for minibatch in self.algorithm.plan(self.iteration, rng):
            if stopped := minibatch.reuse and moved_too_far(reused[-1:] or fresh, known, target):
                break
            known = self.grad_norms if minibatch.reuse else known
            accepted = admission_of(self.config.rollout, self.config.admission_max_gap)
            beta = self.kl.beta if self.reference is not None else 0.0
            stats = self._step(tell(self.replica, Step(minibatch, beta, None if fresh else accepted)))
            (reused if minibatch.reuse else fresh).append(stats)
            if not math.isnan(stats.grad_norm):
                self.grad_norms = [*self.grad_norms, stats.grad_norm][-100:]
        metrics = update_metrics(fresh, reused) | {"offpolicy/reuse_stopped": float(stopped)}
        self.kl.update(metrics.get("kl/k3_fresh_nats_per_token", math.nan))
        metrics |= update_diagnostics(fresh, reused)
        return metrics | self.kl.metrics()

    def _step(self, step: Step) -> UpdateStats:
        return optimizer_step(
            self.model,
            self.optimizer,
            self.algorithm,
            step.minibatch,
            kl_beta=step.kl_beta,
            grad_clip=self.config.grad_clip,
            token_budget=self.config.tokens_per_forward,
            admission=step.admission,
            replica=self.replica,
        )

    def forget(self, subject: str) -> int:
        """Consent withdrawn while the run goes on: the subject's stored rollouts go, and what the reward
        source keeps of the subject; the next checkpoint holds neither. Returns how many rollouts. For a run
        that stands still: `forget_subject`.
        """
        if isinstance(self.turn_judge, ForgetfulJudge):
            self.turn_judge.forget(subject)
        return self.algorithm.forget(subject)

    @property
    def _metrics_path(self) -> Path:
        return self.folder / "metrics.jsonl"

    def _save(self) -> None:
        checkpoint.save(
            self.folder,
            tensors={
                "model": checkpoint.trained_weights(self.model),
                "optimizer": self.optimizer.state_dict(),
                "torch_rng": torch.get_rng_state(),
            },
            state={
                "iteration": self.iteration,
                "algorithm": self.algorithm.state_dict(),
                "kl": self.kl.state_dict(),
                "grad_norms": self.grad_norms,
                "monitors": self.watch.state_dict(),
                "judge": self.turn_judge.state_dict() if isinstance(self.turn_judge, StatefulJudge) else None,
                "reference": self.reference_hash,
                "tasks": checkpoint.tasks_hash(self.tasks),
                "config": self.config.model_dump(mode="json"),
            },
        )

    def _resume(self) -> None:
        path = checkpoint.latest(self.folder)
        if path is None:
            return
        tensors, state = checkpoint.load(path)
        checkpoint.check_same_run(
            path, state, self.config, reference=self.reference_hash, tasks=checkpoint.tasks_hash(self.tasks)
        )
        checkpoint.load_trained(self.model, tensors["model"])
        self.optimizer.load_state_dict(tensors["optimizer"])
        torch.set_rng_state(tensors["torch_rng"])
        self.algorithm.load_state_dict(state["algorithm"])
        self.kl.load_state_dict(state["kl"])
        self.watch.load_state_dict(state["monitors"])
        if isinstance(self.turn_judge, StatefulJudge) and state.get("judge") is not None:
            self.turn_judge.load_state_dict(state["judge"])
        self.grad_norms, self.iteration = state["grad_norms"], state["iteration"]
