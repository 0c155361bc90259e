"""A toy world for the policy tests: copy the shown symbol, turn after turn, with a tiny Llama."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from axiomrm.data.environment import Action, Observation
from axiomrm.data.trajectory import Message, Task, Trajectory
from axiomrm.policy_opt.config import PolicyConfig
from axiomrm.policy_opt.rewards.base import TurnScores
from axiomrm.policy_opt.trainer import PolicyTrainer

END, BOS, USER, ASSISTANT, SYMBOLS = 1, 2, 3, 4, 8
VOCAB = 8 + SYMBOLS


class ToyChat:
    """One id a symbol: ids 8 … 15 are the symbols 0 … 7."""

    end_ids = frozenset({END})

    def prompt_ids(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]], first: bool
    ) -> list[int]:
        body = [i for m in messages for i in (USER, *(8 + int(s) for s in m.content.split()))]
        return [*([BOS] if first else []), *body, ASSISTANT]

    def parse(self, token_ids: Sequence[int]) -> Action:
        return Action(text=" ".join(str(i - 8) for i in token_ids if i >= 8), token_ids=tuple(token_ids))


class CopyEnv:
    """Shows a symbol a turn; the outcome is 1 if each of ``turns`` answers was that symbol."""

    def __init__(self, turns: int = 3, dense: bool = True) -> None:
        self.turns, self.dense = turns, dense

    def reset(
        self, *, seed: int | None = None, task: Task | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        assert task is not None
        self.shown = [int(s) for s in task.payload["symbols"]]
        self.right = 0
        self.turn = 0
        return self._show(), {"state_key": ("start", task.id)}

    def _show(self) -> Observation:
        return Observation((Message(role="user", content=str(self.shown[self.turn])),))

    def step(self, action: Action) -> tuple[Observation, float | None, bool, bool, dict[str, Any]]:
        good = action.text == str(self.shown[self.turn])
        self.right += good
        self.turn += 1
        reward = float(good) if self.dense else None
        info: dict[str, Any] = {"oracle_turn": 1 if good else -1}
        if self.turn == self.turns:
            return Observation(()), reward, True, False, info | {"outcome": float(self.right == self.turns)}
        return self._show(), reward, False, False, info

    def outcome(self) -> float:
        return float(self.right == self.turns)

    def close(self) -> None:
        pass


def copy_tasks(n: int, turns: int = 3, symbols: int = SYMBOLS) -> list[Task]:
    generator = torch.Generator().manual_seed(n)
    rows = torch.randint(symbols, (n, turns), generator=generator).tolist()
    return [Task(id=f"copy{i}", type="copy", payload={"symbols": row}) for i, row in enumerate(rows)]


def tiny_llama(*, hidden: int = 32, layers: int = 2, vocab: int = VOCAB, seed: int = 0) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=True,
        initializer_range=0.1, pad_token_id=0, bos_token_id=BOS, eos_token_id=END,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


@functools.cache
def _warm_state(turns: int, symbols: int) -> dict[str, torch.Tensor]:
    """Cold start: answers one random symbol and stops, blind to what was shown."""
    model, chat = tiny_llama(), ToyChat()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(1)
    for _ in range(60):
        shown, said = torch.randint(symbols, (2, 32, turns), generator=generator)
        rows = []
        for a_row, b_row in zip(shown.tolist(), said.tolist(), strict=True):
            ids: list[int] = []
            for t, (a, b) in enumerate(zip(a_row, b_row, strict=True)):
                ids += [*chat.prompt_ids([Message(role="user", content=str(a))], (), t == 0), 8 + b, END]
            rows.append(ids)
        batch = torch.tensor(rows)
        optimizer.zero_grad()
        logits = model(input_ids=batch).logits[:, :-1]
        trained = (batch[:, :-1] == ASSISTANT) | (batch[:, 1:] == END)
        torch.nn.functional.cross_entropy(logits[trained], batch[:, 1:][trained]).backward()  # type: ignore[no-untyped-call]  # torch
        optimizer.step()
    return {k: v.clone() for k, v in model.state_dict().items()}


def warm_llama(turns: int = 3, symbols: int = 3) -> Any:
    model = tiny_llama()
    model.load_state_dict(_warm_state(turns, symbols))
    return model


def oracle_judge(trajectories: Sequence[Trajectory]) -> list[TurnScores]:
    answers = []
    for trajectory in trajectories:
        turns = [(float(info.get("oracle_turn", -1)) + 1) / 2 for info in trajectory.metadata["turns"]]
        answers.append(TurnScores(turns, [None] * len(turns), "oracle-1", "toy"))
    return answers


@dataclass(frozen=True)
class Toy:
    """What a test needs of the toy world."""

    chat: ToyChat
    env: Callable[..., CopyEnv]
    tasks: Callable[..., list[Task]]
    model: Callable[..., Any]
    warm: Callable[..., Any]
    judge: Callable[[Sequence[Trajectory]], list[TurnScores]]

    def trainer(self, folder: Path, config: PolicyConfig, *, turns: int = 3, **kwargs: Any) -> PolicyTrainer:
        tasks = kwargs.pop("tasks", None) or copy_tasks(4, turns, symbols=3)
        model = kwargs.pop("model", None) or warm_llama(turns)
        return PolicyTrainer(model, self.chat, lambda: CopyEnv(turns), tasks, config, folder, **kwargs)


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def toy() -> Toy:
    return Toy(ToyChat(), CopyEnv, copy_tasks, tiny_llama, warm_llama, oracle_judge)
