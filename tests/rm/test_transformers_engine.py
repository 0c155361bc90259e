import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from axiomrm.data.trajectory import Message, Trajectory
from axiomrm.data.verdict import Failed
from axiomrm.rm import RewardModel
from axiomrm.rm.engines.base import Generation, LabelReading, Prompt, Sampling
from axiomrm.rm.engines.transformers import Budget, TransformersEngine
from axiomrm.rm.labels import LabelTable
from axiomrm.rubrics import Rubric

TABLE = LabelTable("verdict[gamu]=", (11, 12, 13), {"Y": 30, "N": 31, "X": 32})


def prompts(count: int = 3) -> list[Prompt]:
    """Three dialogues; turns extend the prefix, criteria share it."""
    rng = random.Random(0)
    made = []
    for _ in range(count):
        prefix: tuple[int, ...] = ()
        for _ in range(3):
            prefix += tuple(rng.randrange(40, 400) for _ in range(rng.randint(5, 20)))
            for _ in range(3):
                suffix = (7, *(rng.randrange(40, 400) for _ in range(rng.randint(2, 9))))
                made.append(Prompt(prefix, suffix, (), "gamu"))
    rng.shuffle(made)
    return made


MODELS: dict[str, Any] = {}


def alone(model: Any, ids: Sequence[int]) -> torch.Tensor:
    """Outside reference: one prompt, no packing, no padding."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([list(ids)])).logits[0, -1].float()
    return torch.log_softmax(logits, dim=-1)


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "Gemma"])
@pytest.mark.parametrize(
    "budget", [Budget(), Budget(branch_tokens=20, batch_tokens=60), Budget(mask_cells=1)]
)
def test_packed_readings_equal_prompts_read_alone(
    family: str, budget: Budget, make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model(family)
    engine = TransformersEngine(model, tiny_tokenizer, budget=budget)
    assert engine.capabilities.prefix_reuse
    asked = prompts()
    found = engine.label_logprobs(asked, [TABLE] * len(asked))
    for prompt, reading in zip(asked, found, strict=True):
        assert isinstance(reading, LabelReading)
        reference = alone(model, prompt.ids + TABLE.lead_in_ids)
        for label, token in TABLE.label_ids.items():
            assert reading.logprobs[label] == pytest.approx(float(reference[token]), abs=1e-4)
    assert engine.usage["unshared_tokens"] == sum(len(p.ids) + 3 for p in asked)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sequences=st.lists(st.lists(st.integers(3, 5), min_size=2, max_size=14), min_size=1, max_size=12),
    family=st.sampled_from(["Llama", "Qwen2", "Qwen3"]),
    budget=st.builds(
        Budget,
        batch_tokens=st.integers(1, 60),
        mask_cells=st.integers(1, 2000),
        decode_rows=st.just(3),
        cache_bytes=st.integers(1, 50_000),
        branch_tokens=st.none() | st.integers(1, 40),
    ),
)
def test_any_prompts_in_any_order_and_batch_read_as_alone(
    sequences: list[list[int]],
    family: str,
    budget: Budget,
    make_model: Callable[..., Any],
    tiny_tokenizer: Any,
) -> None:
    model = MODELS.setdefault(family, make_model(family))
    engine = TransformersEngine(model, tiny_tokenizer, budget=budget)
    asked = [Prompt(tuple(ids[:-1]), (ids[-1],), (), "gamu") for ids in sequences]
    for prompt, reading in zip(asked, engine.label_logprobs(asked, [TABLE] * len(asked)), strict=True):
        assert isinstance(reading, LabelReading)
        reference = alone(model, prompt.ids + TABLE.lead_in_ids)
        wanted = {label: float(reference[token]) for label, token in TABLE.label_ids.items()}
        assert reading.logprobs == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("Mistral", {"sliding_window": 8}),
        ("Qwen2", {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0}),
    ],
)
def test_sliding_windows_take_the_plain_path_and_say_so(
    family: str, options: dict[str, Any], make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model(family, **options)
    engine = TransformersEngine(model, tiny_tokenizer)
    assert not engine.capabilities.prefix_reuse
    asked = prompts(1)
    for prompt, reading in zip(asked, engine.label_logprobs(asked, [TABLE] * len(asked)), strict=True):
        assert isinstance(reading, LabelReading)
        reference = alone(model, prompt.ids + TABLE.lead_in_ids)
        assert reading.logprobs["Y"] == pytest.approx(float(reference[30]), abs=1e-4)
    assert engine.usage["prompt_tokens"] == engine.usage["unshared_tokens"]


def test_models_of_other_kinds_take_the_plain_path(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    asked = prompts(1)
    for family in ("Bloom", "Mamba"):  # positions inside the attention; no attention at all
        model = make_model(family, num_attention_heads=4)
        engine = TransformersEngine(model, tiny_tokenizer)
        assert not engine.capabilities.prefix_reuse
        for prompt, reading in zip(asked, engine.label_logprobs(asked, [TABLE] * len(asked)), strict=True):
            assert isinstance(reading, LabelReading)
            reference = alone(model, prompt.ids + TABLE.lead_in_ids)
            assert reading.logprobs["Y"] == pytest.approx(float(reference[30]), abs=1e-3)


def test_bf16_reads_close_to_fp32(make_model: Callable[..., Any], tiny_tokenizer: Any) -> None:
    asked = prompts(1)
    exact = TransformersEngine(make_model(), tiny_tokenizer).label_logprobs(asked, [TABLE] * len(asked))
    engine = TransformersEngine(make_model().bfloat16(), tiny_tokenizer)
    assert engine.capabilities.prefix_reuse
    for a, b in zip(exact, engine.label_logprobs(asked, [TABLE] * len(asked)), strict=True):
        assert isinstance(a, LabelReading) and isinstance(b, LabelReading)
        assert b.logprobs["Y"] == pytest.approx(a.logprobs["Y"], abs=0.5)


@pytest.mark.parametrize(("family", "options"), [("Llama", {}), ("Mistral", {"sliding_window": 8})])
def test_greedy_text_equals_transformers_own_generate(
    family: str, options: dict[str, Any], make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model(family, **options)
    engine = TransformersEngine(model, tiny_tokenizer)
    asked = prompts(2)
    written = engine.generate(asked, Sampling(max_new_tokens=12, temperature=0))
    for prompt, found in zip(asked, written, strict=True):
        assert isinstance(found, Generation)
        reference = model.generate(
            torch.tensor([prompt.ids]), max_new_tokens=12, do_sample=False, eos_token_id=2, pad_token_id=0
        )[0, len(prompt.ids) :].tolist()
        reference = reference[: reference.index(2)] if 2 in reference else reference
        assert list(found.token_ids) == reference
        assert found.stop == ("stop" if len(reference) < 12 else "length")


def test_samples_depend_on_seed_and_prompt_not_on_the_batch(tiny_llama: Any, tiny_tokenizer: Any) -> None:
    asked = prompts(1)
    how = Sampling(max_new_tokens=10, temperature=1.0, seed=3)
    whole = TransformersEngine(tiny_llama, tiny_tokenizer).generate(asked, how)
    small = TransformersEngine(tiny_llama, tiny_tokenizer, budget=Budget(decode_rows=2)).generate(
        asked[::-1], how
    )
    assert whole == small[::-1]
    twice = TransformersEngine(tiny_llama, tiny_tokenizer).generate([asked[0], asked[0]], how)
    assert twice[0] == whole[0] and twice[1] != twice[0]
    other = TransformersEngine(tiny_llama, tiny_tokenizer).generate(asked[:1], Sampling(10, 1.0, seed=4))
    assert other[0] != whole[0]


def test_sampled_tokens_follow_the_model_s_distribution(tiny_llama: Any, tiny_tokenizer: Any) -> None:
    engine = TransformersEngine(tiny_llama, tiny_tokenizer)
    prompt = Prompt((50, 60, 70), (7,), (), "gamu")
    written = engine.generate([prompt] * 600, Sampling(max_new_tokens=1, temperature=1.0))
    p = alone(tiny_llama, prompt.ids).exp()
    top = int(p.argmax())
    share = sum(isinstance(g, Generation) and g.token_ids == (top,) for g in written) / 600
    sd = float((p[top] * (1 - p[top]) / 600).sqrt())
    assert abs(share - float(p[top])) < 4 * sd


def test_a_too_long_row_fails_alone_without_a_model_call(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    engine = TransformersEngine(make_model(max_position_embeddings=64), tiny_tokenizer)
    long = Prompt(tuple(range(40, 140)), (7,), (), "gamu")
    fine = Prompt((50, 51), (7,), (), "gamu")
    for results in (
        engine.label_logprobs([fine, long, fine], [TABLE] * 3),
        engine.generate([fine, long, fine], Sampling(max_new_tokens=2)),
    ):
        assert [isinstance(r, Failed) for r in results] == [False, True, False]
        assert isinstance(results[1], Failed) and results[1].kind == "context_overflow"
    only = engine.label_logprobs([long], [TABLE])
    assert isinstance(only[0], Failed)


def test_a_model_that_gives_no_finite_logits_fails_every_row(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model()
    engine = TransformersEngine(model, tiny_tokenizer)
    with torch.no_grad():
        model.lm_head.weight.fill_(float("nan"))
    (found,) = engine.label_logprobs([Prompt((50,), (7,), (), "gamu")], [TABLE])
    assert isinstance(found, Failed) and found.kind == "engine_error"


def test_out_of_memory_halves_the_batch_and_finishes(
    make_model: Callable[..., Any], tiny_tokenizer: Any
) -> None:
    model = make_model()
    engine = TransformersEngine(model, tiny_tokenizer)
    forward, sizes = model.forward, []

    def limited(*args: Any, **options: Any) -> Any:
        sizes.append(options["input_ids"].numel())
        if options["input_ids"].numel() > 100:
            raise torch.OutOfMemoryError("out of memory")
        return forward(*args, **options)

    expected = engine.label_logprobs(prompts(), [TABLE] * 27)
    model.forward = limited
    found = engine.label_logprobs(prompts(), [TABLE] * 27)
    assert max(sizes) > 100
    for a, b in zip(expected, found, strict=True):
        assert isinstance(a, LabelReading) and isinstance(b, LabelReading)
        assert b.logprobs == pytest.approx(a.logprobs, abs=1e-4)


def test_identity_changes_with_any_weight(make_model: Callable[..., Any], tiny_tokenizer: Any) -> None:
    first, second = make_model(), make_model()
    assert (
        TransformersEngine(first, tiny_tokenizer).identity
        == TransformersEngine(second, tiny_tokenizer).identity
    )
    with torch.no_grad():
        second.lm_head.weight[0, 0] += 1e-3
    assert (
        TransformersEngine(first, tiny_tokenizer).identity
        != TransformersEngine(second, tiny_tokenizer).identity
    )


def test_the_documented_lines_run(
    tiny_llama: Any, tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "judge.md").read_text(encoding="utf-8")
    section = page.split("\n## Engines\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"^```python\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    tiny_llama.save_pretrained(tmp_path / "judge")
    tiny_tokenizer.save_pretrained(tmp_path / "judge")
    monkeypatch.chdir(tmp_path)
    said = [Message(role="user", content="hi"), Message(role="assistant", content="Hello.")]
    names: dict[str, Any] = {
        "RewardModel": RewardModel,
        "trajectory": Trajectory(messages=tuple(said)),
        "rubric": Rubric.load("general_quality"),
    }
    exec(compile(block, "docs/judge.md", "exec"), names)
    usage = names["judge"].usage
    assert usage["prefix_reused"] > 0 and usage["completion_tokens"] == 0
