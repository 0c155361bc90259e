"""Writing in a batch that prompts join and leave: against prompts written alone, and what it holds."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from axiomrm.data.verdict import Failed
from axiomrm.rm.engines.base import Generation, Prompt, Sampling
from axiomrm.rm.engines.forward import Forward
from axiomrm.rm.engines.plain import Plain
from axiomrm.rm.engines.slots import Writing
from axiomrm.rm.engines.transformers import Budget, TransformersEngine


def asked(conversations: int = 4, criteria: int = 4, turns: int = 2, length: int = 30) -> list[Prompt]:
    """Criteria of turns of conversations, prompts that share nothing, and one prompt three times."""
    rng = random.Random(1)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(rng.randrange(40, 400) for _ in range(n))

    made = [Prompt(ids(rng.randint(3, 40)), (7,), (), "gamu") for _ in range(3)]
    for _ in range(conversations):
        prefix: tuple[int, ...] = ()
        for _ in range(turns):
            prefix += ids(rng.randint(length // 2, length))
            made += [Prompt(prefix, (7, *ids(rng.randint(2, 12))), (), "gamu") for _ in range(criteria)]
    made += [made[-1], made[-1]]
    rng.shuffle(made)
    return made


def often_ending(tokenizer: Any, model: Any, **options: Any) -> TransformersEngine:
    """An engine of which a third of all tokens end an answer, so that lengths differ."""
    return TransformersEngine(model, tokenizer, end_ids=range(0, 420, 3), **options)


def alone(model: Any, tokenizer: Any, prompts: list[Prompt], how: Sampling) -> list[Generation | Failed]:
    """Each prompt in a call and a batch of its own, through plain passes; copies of a prompt in one call."""
    engine = often_ending(tokenizer, model, budget=Budget(decode_rows=1))
    engine._forward = Plain(model)
    found: list[Generation | Failed] = []
    for i, prompt in enumerate(prompts):
        copies = prompts[: i + 1].count(prompt)
        found.append(engine.generate([prompt] * copies, how)[-1])
    return found


@pytest.mark.parametrize("family", ["Llama", "Qwen3", "Gemma"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "budget",
    [
        Budget(),
        Budget(decode_rows=5, batch_tokens=60),
        Budget(decode_rows=8, branch_tokens=1, cache_bytes=100_000, packed_bytes=0),
        Budget(branch_tokens=100, mask_cells=1),
    ],
)
def test_what_is_written_together_is_what_is_written_alone(
    family: str, temperature: float, budget: Budget, make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model, prompts = make_model(family), asked()
    how = Sampling(max_new_tokens=12, temperature=temperature, seed=5)
    engine = often_ending(tiny_tokenizer, model, budget=budget)
    assert engine.capabilities.prefix_reuse
    together = engine.generate(prompts, how)
    assert together == alone(model, tiny_tokenizer, prompts, how)
    lengths = {len(row.token_ids) for row in together if isinstance(row, Generation)}
    assert len(lengths) > 2  # or nothing would leave early


DEEPSEEK = {  # values narrower than keys, which no kernel takes here
    "kv_lora_rank": 8,
    "q_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 6,
    "num_key_value_heads": 4,
    "first_k_dense_replace": 2,
    "n_routed_experts": 4,
}


@pytest.mark.parametrize(
    ("family", "options", "shares"),
    [
        ("GPTNeoX", {}, True),
        ("Mixtral", {"sliding_window": None, "num_local_experts": 2}, True),
        ("DeepseekV3", DEEPSEEK, True),
        ("GPTJ", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4}, False),
        ("GptOss", {"head_dim": 8, "num_local_experts": 2, "layer_types": ["full_attention"] * 2}, False),
    ],
)
def test_other_families_write_the_same_together_and_alone(
    family: str, options: dict[str, Any], shares: bool, make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model, prompts = make_model(family, **options), asked(conversations=2)
    engine = often_ending(tiny_tokenizer, model, budget=Budget(decode_rows=6))
    assert engine.capabilities.prefix_reuse is shares
    how = Sampling(max_new_tokens=8, temperature=1.0)
    assert engine.generate(prompts, how) == alone(model, tiny_tokenizer, prompts, how)


@pytest.fixture()
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Prompts in each writing pass."""
    seen: list[int] = []
    plain = Forward.next

    def counted(self: Forward, tokens: torch.Tensor, positions: torch.Tensor, how: Writing) -> torch.Tensor:
        seen.append(len(tokens))
        return plain(self, tokens, positions, how)

    monkeypatch.setattr(Forward, "next", counted)
    return seen


def test_prompts_that_end_leave_and_waiting_ones_of_other_conversations_take_their_place(
    steps: list[int], tiny_llama: Any, tiny_tokenizer: Any
) -> None:
    budget = Budget(decode_rows=8, batch_tokens=100)
    engine = often_ending(tiny_tokenizer, tiny_llama, budget=budget)
    prompts = asked(conversations=12, criteria=3)
    found = engine.generate(prompts, Sampling(max_new_tokens=12, temperature=1.0))
    picked = 0
    for row in found:
        assert isinstance(row, Generation)
        picked += len(row.token_ids) + (row.stop == "stop")
    # the first token of a prompt comes from reading it, and none is fed after its last
    assert sum(steps) == picked - len(prompts)
    assert max(steps) <= 8
    drained = next(i for i in range(len(steps)) if sum(steps[i:]) <= 8 * 12)
    assert sum(steps[:drained]) / drained > 5  # refilled whenever two of eight are free


def test_a_trunk_is_held_once_for_all_that_is_written_after_it(
    make_model: Callable[..., Any], tiny_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []
    from axiomrm.rm.engines.slots import Slots

    begin = Slots.__init__

    def sized(self: Slots, slots: int, columns: int, like: Any) -> None:
        begin(self, slots, columns, like)
        taken.append(sum(t.numel() for t in (*self.keys, *self.values)))

    monkeypatch.setattr(Slots, "__init__", sized)
    model = make_model()
    engine = TransformersEngine(model, tiny_tokenizer)
    prefix = tuple(40 + i % 300 for i in range(1000))
    prompts = [Prompt(prefix, (7, 20 + i, 9), (), "gamu") for i in range(32)]
    engine.generate(prompts, Sampling(max_new_tokens=5, temperature=0))
    # 32 slots of two own tokens (the shared 7 is the trunk's) and five written ones; 2 layers, 2 heads, 8 wide
    assert taken == [32 * (2 + 5) * 2 * (2 * 2 * 8)]


def test_keys_and_values_stay_within_their_bytes_whatever_the_number_of_conversations(
    tiny_llama: Any, tiny_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from axiomrm.rm.engines import writing

    held: list[int] = []
    take = writing.Session._take

    def counted(self: writing.Session, rows: Any) -> None:
        take(self, rows)
        trunks = sum(layers[0][0].shape[1] for layers in self.trunks.values())
        held.append(trunks + self.size * self.columns)

    monkeypatch.setattr(writing.Session, "_take", counted)
    column = 2 * 2 * 2 * 8 * 4  # keys and values, layers, heads, width, bytes
    budget = Budget(cache_bytes=600 * column)
    engine = TransformersEngine(tiny_llama, tiny_tokenizer, budget=budget)
    starts = [(40 + c, *range(100, 108)) for c in range(25)]
    starts += [(390 + c, *range(100, 218)) for c in range(5)]  # and five long ones, one after the other
    prompts = [Prompt(start, (7, 20 + i, 9), (), "gamu") for start in starts for i in range(4)]
    engine.generate(prompts, Sampling(max_new_tokens=6, temperature=1.0))
    assert len(held) > 3 and max(held) <= 600
    assert max(held) > 400  # and they are used


def poison(model: Any, broken: Callable[[torch.Tensor], bool]) -> None:
    """Make the model's passes fail where ``broken`` says so."""
    forward = model.forward

    def checked(*args: Any, **options: Any) -> Any:
        if broken(options["input_ids"]):
            raise RuntimeError("device lost")
        return forward(*args, **options)

    model.forward = checked


def test_an_error_while_reading_fails_those_prompts_and_the_others_are_written(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model()
    engine = TransformersEngine(model, tiny_tokenizer, budget=Budget(batch_tokens=110))
    good = [Prompt(tuple(range(40, 140)), (7, i, 9), (), "gamu") for i in range(20, 24)]
    bad = [Prompt((450 - 200,) * 100, (7, i, 9), (), "gamu") for i in (50, 51)]
    how = Sampling(max_new_tokens=4, temperature=0)
    expected = engine.generate(good, how)
    poison(model, lambda ids: bool((ids == 250).any()) and ids.numel() > 10)
    found = engine.generate([*bad, *good], how)
    assert [isinstance(row, Failed) for row in found] == [True, True, *[False] * 4]
    assert found[2:] == expected


def test_an_error_while_writing_fails_what_is_written_and_what_waits_goes_on(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model()
    engine = TransformersEngine(model, tiny_tokenizer, budget=Budget(decode_rows=2))
    prompts = [Prompt(tuple(range(40, 140)), (7, i, 9), (), "gamu") for i in range(20, 26)]
    how = Sampling(max_new_tokens=4, temperature=0)
    expected = engine.generate(prompts, how)
    calls: list[int] = []

    def second_step(ids: torch.Tensor) -> bool:
        calls.append(ids.numel())
        return sum(n <= 2 for n in calls) == 2 and ids.numel() <= 2

    poison(model, second_step)
    found = engine.generate(prompts, how)
    failed = [isinstance(row, Failed) for row in found]
    assert sum(failed) == 2
    assert [row for row in found if not isinstance(row, Failed)] == [
        row for row, bad in zip(expected, failed, strict=True) if not bad
    ]
