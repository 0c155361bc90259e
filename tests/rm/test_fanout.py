import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.base import Generation, Prompt, Sampling
from axiomrm.rm.engines.transformers import Budget, TransformersEngine
from axiomrm.rm.labels import LabelTable

TABLE = LabelTable("verdict[gamu]=", (11, 12, 13), {"Y": 30, "N": 31, "X": 32})


def criteria(count: int) -> list[Prompt]:
    """One conversation of 100 tokens, suffixes of three of which the first is shared."""
    return [Prompt(tuple(range(40, 140)), (7, 20 + i, 9), (), "gamu") for i in range(count)]


def test_sharing_spends_the_tokens_of_the_tree(tiny_llama: Any, tiny_tokenizer: Any) -> None:
    engine = TransformersEngine(tiny_llama, tiny_tokenizer)
    asked = criteria(8)
    engine.label_logprobs(asked, [TABLE] * 8)
    # one trunk and the shared 7; then each prompt has two suffix tokens and the lead-in's three
    assert engine.usage["prompt_tokens"] == 100 + 1 + 8 * (2 + 3)
    assert engine.usage["prefix_reused"] == 8 * (100 + 3 + 3) - engine.usage["prompt_tokens"]


def test_samples_and_turns_share_the_conversation_too(tiny_llama: Any, tiny_tokenizer: Any) -> None:
    engine = TransformersEngine(tiny_llama, tiny_tokenizer)
    engine.generate(criteria(1) * 4, Sampling(max_new_tokens=3))
    assert engine.usage["prompt_tokens"] == 102 + 4  # all but the last token once, the last for each sample
    engine = TransformersEngine(tiny_llama, tiny_tokenizer)
    whole = tuple(range(40, 140))
    turns = [Prompt(whole[:n], (7, 200 + c, 9), (), "gamu") for n in (25, 50, 75, 100) for c in range(3)]
    engine.label_logprobs(turns, [TABLE] * 12)
    # the conversation, and for each turn the shared 7 and three times two suffix and three lead-in tokens
    assert engine.usage["prompt_tokens"] == 100 + 4 * (1 + 3 * (2 + 3))


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's base is untyped
    """Bytes of the tensors that operations make, from their making until they are freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else [made]:
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu":
                self._seen(tensor.untyped_storage())
        return made

    def _seen(self, storage: Any) -> None:
        address, size = storage.data_ptr(), storage.nbytes()
        if address in self._known or not size:
            return
        self._known.add(address)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._freed, address, size)

    def _freed(self, address: int, size: int) -> None:
        self._known.discard(address)
        self.live -= size


@pytest.mark.parametrize("writes", [False, True])
def test_peak_memory_grows_with_batch_tokens_and_not_with_criteria(
    writes: bool, tiny_llama: Any, tiny_tokenizer: Any
) -> None:
    def peak(count: int, batch_tokens: int) -> int:
        budget = Budget(batch_tokens=batch_tokens, decode_rows=batch_tokens // 16, branch_tokens=64)
        engine = TransformersEngine(tiny_llama, tiny_tokenizer, budget=budget)
        asked = criteria(count)
        with LiveBytes() as memory:
            if writes:
                engine.generate(asked, Sampling(max_new_tokens=3))
            else:
                engine.label_logprobs(asked, [TABLE] * count)
        return int(memory.peak)

    few, many = peak(96, 256), peak(384, 256)
    assert many < 1.05 * few
    assert peak(384, 1024) > 1.5 * many


def test_out_of_memory_while_writing_halves_and_finishes(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model()
    engine = TransformersEngine(model, tiny_tokenizer)
    forward = model.forward

    def limited(*args: Any, **options: Any) -> Any:
        if 10 < options["input_ids"].numel() < 101:  # the trunk has 101, which no halving makes fewer
            raise torch.OutOfMemoryError("out of memory")
        return forward(*args, **options)

    how = Sampling(max_new_tokens=3, temperature=1.0)
    expected = engine.generate(criteria(24), how)
    model.forward = limited
    assert engine.generate(criteria(24), how) == expected
    assert all(isinstance(row, Generation) for row in expected)


def test_an_error_fails_the_prompts_of_its_batch_and_no_others(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model()
    engine = TransformersEngine(model, tiny_tokenizer, budget=Budget(batch_tokens=110))
    forward = model.forward

    def broken(*args: Any, **options: Any) -> Any:
        if bool((options["input_ids"] == 250).any()):
            raise RuntimeError("device lost")
        return forward(*args, **options)

    model.forward = broken
    bad = [Prompt((250,) * 100, (7, i, 9), (), "gamu") for i in (50, 51)]
    found = engine.label_logprobs([*criteria(2), *bad], [TABLE] * 4)
    assert [isinstance(row, Failed) for row in found] == [False, False, True, True]
    assert isinstance(found[2], Failed) and "device lost" in found[2].detail
