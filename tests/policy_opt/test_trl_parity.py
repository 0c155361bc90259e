"""Our advantages, losses and gradients beside TRL 1.16's own trainers, on the rollouts that TRL sampled."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from axiomrm.policy_opt.algorithms.base import Algorithm
from axiomrm.policy_opt.algorithms.grpo import GRPO
from axiomrm.policy_opt.algorithms.rloo import RLOO
from axiomrm.policy_opt.config import GRPOConfig, RLOOConfig
from axiomrm.policy_opt.records import StepRecord, TrajectoryRecord
from axiomrm.policy_opt.update import accumulate_gradient, attach_reference

GROUP, VOCABULARY = 4, 16
PROMPTS = ["w8 w9", "w10 w11 w12"]


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(VOCABULARY)}
    plain = Tokenizer(models.WordLevel(words, unk_token="w5"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="w0", eos_token="w1", unk_token="w5")


def reward(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    return [(sum(ids) % 7) / 6 for ids in completion_ids]


def their_trainer(kind: str, model: Any, folder: Path, **options: Any) -> Any:
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    config = {"grpo": trl.GRPOConfig, "rloo": trl.RLOOConfig}[kind](
        output_dir=str(folder), per_device_train_batch_size=8, num_generations=GROUP, max_completion_length=6,
        report_to="none", use_cpu=True, beta=0.0, num_iterations=2, bf16=False, save_strategy="no", **options,
    )  # fmt: skip
    return {"grpo": trl.GRPOTrainer, "rloo": trl.RLOOTrainer}[kind](
        model=model, args=config, reward_funcs=reward, processing_class=tokenizer(),
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
    )  # fmt: skip


def as_records(batch: dict[str, torch.Tensor], model: Any) -> list[TrajectoryRecord]:
    """TRL's padded rows as trajectories of one turn."""
    rows = []
    for i in range(len(batch["prompt_ids"])):
        prompt = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist()
        said = batch["completion_ids"][i][batch["completion_mask"][i].bool()].tolist()
        ids = np.array([*prompt, *said], dtype=np.int32)
        step = StepRecord(f"t{i}", 0, 0, len(prompt), len(ids), 0, np.zeros(len(said), dtype=np.float32))
        rows.append(
            TrajectoryRecord(f"t{i}", "", str(i // GROUP), [ids], [step], 0, outcome=reward([said])[0])
        )
    attach_reference(model, rows, token_budget=10_000)
    for row in rows:
        for step in row.steps:
            assert step.ref_logprobs is not None
            step.behaviour_logprobs, step.ref_logprobs = step.ref_logprobs, None
    return rows


def gradient_of(model: Any) -> torch.Tensor:
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).clone()
    model.zero_grad()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "ours", "options"),
    [
        ("grpo", GRPO(GRPOConfig()), {"loss_type": "grpo"}),
        ("grpo", GRPO(GRPOConfig(scale="none", aggregation="constant")), {"loss_type": "dr_grpo", "scale_rewards": "none"}),
        ("rloo", RLOO(RLOOConfig()), {"normalize_advantages": False}),
    ],
    ids=["grpo", "dr_grpo", "rloo"],
)  # fmt: skip
def test_advantages_loss_and_gradient_are_trls(
    toy: Any, tmp_path: Path, kind: str, ours: Algorithm, options: dict[str, Any]
) -> None:
    model = toy.model()
    trainer = their_trainer(kind, model, tmp_path, **options)
    model.eval()
    batch = trainer._generate_and_score_completions([{"prompt": p} for p in PROMPTS for _ in range(GROUP)])
    rows = as_records(batch, model)
    ours.ingest(rows, 0)
    (minibatch,) = ours.plan(0, np.random.default_rng(0))
    got = {item.record.traj_id: item.advantage for item in minibatch.steps}
    np.testing.assert_allclose([got[f"t{i}"] for i in range(8)], batch["advantages"], atol=1e-5)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # off the sampler's policy, so that ratios and clips matter
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn(parameter.shape, generator=generator)
    theirs = trainer._compute_loss(model, batch)
    theirs.backward()
    expected = gradient_of(model)
    if minibatch.aggregation == "constant" and kind == "grpo":
        minibatch = type(minibatch)(minibatch.steps, False, "constant", 6.0)  # / (B * max completion length)
    stats = accumulate_gradient(model, ours, minibatch, kl_beta=0.0, token_budget=10_000)
    assert max(abs(r - 1) for r in stats.rho) > 0.2, "nothing would be clipped"
    assert stats.loss == pytest.approx(theirs.item(), abs=1e-5)
    torch.testing.assert_close(gradient_of(model), expected, atol=1e-6, rtol=1e-4)
