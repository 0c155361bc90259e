"""The service desk: a text environment over a customer database.

Reward is always ``None`` ("ask the judge"); the outcome comes once, at the end, from a verifier that
compares the final database with the goal and the reported facts with the truth. ``info`` carries the
oracle's view for evaluation and data synthesis.
"""

import hashlib
import random
from typing import Any

from axiomrm.data.environment import Action, Observation
from axiomrm.data.trajectory import Message, Task, ToolCall
from axiomrm.policy_opt.envs.service_desk import criteria, oracle
from axiomrm.policy_opt.envs.service_desk.tasks import TURN_LIMIT, Spec, sample_task, spec_of
from axiomrm.policy_opt.envs.service_desk.user import User
from axiomrm.policy_opt.envs.service_desk.world import TOOL_SPECS, WRITES, World

SYSTEM = "You work at a service desk."


class ServiceDesk:
    """One live episode at a time; every draw is keyed by the task, so an episode repeats exactly."""

    def __init__(self, turn_limit: int = TURN_LIMIT) -> None:
        self.turn_limit = turn_limit

    def reset(
        self, *, seed: int | None = None, task: Task | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start ``task``, or a training task drawn from ``seed``."""
        self.task = task or sample_task("train", seed or 0)
        self.spec: Spec = spec_of(self.task)
        self.world: World = self.spec.world()
        digest = hashlib.sha256(self.task.id.encode()).digest()
        self.user = User(self.spec, random.Random(digest))
        self.turn = 0
        self.bad_writes = 0
        self.false_reports = 0
        self.counts: dict[str, int] = {}
        self.results: dict[oracle.Call, str] = {}
        opening = self.user.opening()
        self.progress = oracle.Progress(self.user.request, results=self.results)
        self._hear()
        messages = (Message(role="system", content=SYSTEM), Message(role="user", content=opening))
        return Observation(messages, TOOL_SPECS), self._info()

    def step(self, action: Action) -> tuple[Observation, float | None, bool, bool, dict[str, Any]]:
        """One assistant turn."""
        self.turn += 1
        wanted = oracle.expected(self.progress, self.world)
        worth = oracle.assess(action, self.progress, wanted)
        labels = criteria.label_turn(action, self.progress, worth)
        self._count(action, worth, wanted)
        error_kind = None
        if action.error or action.tool_calls:
            messages, error_kind = self._run_tools(action, wanted)
            gone = False
        else:
            messages, gone = self._talk(action.text, wanted)
        truncated = not gone and self.turn >= self.turn_limit
        info = self._info()
        info |= {
            "oracle_turn": worth.value,
            "assessment": worth.kind,
            "labels": labels,
            "error_kind": error_kind,
        }
        if gone or truncated:
            info["outcome"] = self.outcome()
            info["ending"] = "done" if gone else "turn_limit"
        return Observation(tuple(messages), TOOL_SPECS), None, gone, truncated, info

    def outcome(self) -> float:
        """1: all requests closed, rows as the goal, no forbidden write, no false or early report; else 0."""
        done = self.user.current >= len(self.spec.requests)
        clean = self.bad_writes == 0 and self.false_reports == 0
        return float(done and clean and self.world.contents() == self.spec.goal())

    def close(self) -> None:
        """Close the database."""
        self.world.db.close()

    def _hear(self) -> None:
        for slot, value in self.user.told.items():
            self.progress.known.setdefault(slot, value)
            if slot in ("city", "item", "channel", "home"):
                self.progress.known[slot] = value

    def _talk(self, text: str, wanted: oracle.Expected) -> tuple[list[Message], bool]:
        closing = "?" not in text
        if closing and not (wanted.close and oracle.report_is_true(text, self.progress)):
            self.false_reports += 1
        reply = self.user.reply(text)
        if reply is None:
            return [Message(role="user", content=self.user.goodbye())], True
        if closing:
            keep = {s: v for s, v in self.progress.known.items() if s in ("name", "pin", "home")}
            verified, home = self.progress.verified, self.progress.needs_home
            self.progress = oracle.Progress(self.user.request, keep, verified, home, self.results)
        self._hear()
        return [Message(role="user", content=reply)], False

    def _run_tools(self, action: Action, wanted: oracle.Expected) -> tuple[list[Message], str | None]:
        if action.error:
            return [Message(role="tool", content=f"error {action.error}", name="parser")], "bad_call"
        messages, kind = [], None
        for i, call in enumerate(action.tool_calls):
            result = self._run_tool(call, wanted)
            kind = result.split()[1] if result.startswith("error") else kind
            call_id = call.id or f"c{self.turn}_{i}"
            messages.append(Message(role="tool", content=result, tool_call_id=call_id, name=call.name))
        return messages, kind

    def _run_tool(self, call: ToolCall, wanted: oracle.Expected) -> str:
        key = oracle.call_key(call.name, call.arguments)
        right = key in wanted.calls
        if call.name in WRITES and not right and self._would_write(call):
            self.bad_writes += 1
        result = self.world.call(call.name, call.arguments)
        self._learn(call.name, key, result, right)
        return result

    def _would_write(self, call: ToolCall) -> bool:
        trial = self.spec.world()
        before = trial.contents()
        trial.timeout_at = None
        trial.call(call.name, call.arguments)
        return trial.contents() != before

    def _learn(self, name: str, key: oracle.Call, result: str, right: bool) -> None:
        p = self.progress
        if result.startswith("error"):
            if result.startswith("error format"):
                p.known["order"] = result.split()[-1]
            p.needs_home = p.needs_home or result == "error two match give home"
            return
        p.results[key] = result
        if name == "verify":
            p.verified = True
        if name == "find" and right:
            p.known["order"] = dict(key[1])["order"]
        if name in WRITES and right:
            p.written += 1

    def _count(self, action: Action, worth: oracle.Assessment, wanted: oracle.Expected) -> None:
        kind = "call" if action.tool_calls or action.error else "text"
        for name in (kind, worth.kind, f"value_{worth.value}"):
            self.counts[name] = self.counts.get(name, 0) + 1

    def _info(self) -> dict[str, Any]:
        closed = self.user.current >= len(self.spec.requests)
        wanted = oracle.Expected() if closed else oracle.expected(self.progress, self.world)
        state = (sorted(self.progress.known.items()), sorted(self.results.items()), self.user.current)
        return {
            "desk": (self.progress, wanted),
            "profile": self.spec.profile,
            "state_key": hashlib.sha256(repr((state, self.world.fingerprint())).encode()).hexdigest()[:16],
            "metrics": {"counts": dict(self.counts), "expected_tools": sorted({n for n, _ in wanted.calls})},
        }
