"""What test_vllm_sampler asks of a real vLLM, in a process of its own: vLLM leaves traces in the one it runs in.

Usage: vllm_policy_run.py FOLDER, an empty folder; FOLDER/found.json gets what was seen.
"""

import copy
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from axiomrm.errors import DataError
from axiomrm.policy_opt.config import PolicyConfig, RolloutConfig
from axiomrm.policy_opt.engines.config import VllmEngine
from axiomrm.policy_opt.engines.live_rows import Generation
from axiomrm.policy_opt.engines.vllm import VllmRows, VllmSampler
from axiomrm.policy_opt.envs.service_desk import ServiceDesk, sample_task
from axiomrm.policy_opt.envs.service_desk.judges import desk_oracle
from axiomrm.policy_opt.logprobs import selected_logprobs
from axiomrm.policy_opt.rewards.base import Episode
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.policy_opt.trainer import PolicyTrainer
from axiomrm.stages.world import base_folder, load_model

PROMPTS = [[[2, *range(3, 60)], [7, 8, 9]], [[2, 5, 6], [3]], [[2, *range(20, 55)], list(range(40))]]
ENDS = frozenset({1, 5})
T = 0.7


def tiny(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, max_position_embeddings=256, tie_word_embeddings=True, initializer_range=0.1,
        pad_token_id=0, bos_token_id=2, eos_token_id=1,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def draws(row: int, turn: int, n: int = 24) -> Any:
    return np.random.default_rng((row, turn)).random(n)


def turn(live: VllmRows, new_ids: dict[int, list[int]], uniforms: dict[int, Any]) -> dict[int, Generation]:
    for row, ids in new_ids.items():
        live.feed(row, ids, uniforms[row])
    return dict(live.step())


def play(sampler: VllmSampler, rows: list[int]) -> dict[str, Any]:
    """Two turns of each row: its ids, where it was sampled, its log-probs and stops."""
    live = sampler.open(len(rows))
    seen: dict[int, dict[str, list[Any]]] = {
        row: {"ids": [], "at": [], "logp": [], "stop": []} for row in rows
    }
    for number in range(2):
        prompts = {place: PROMPTS[row][number] for place, row in enumerate(rows)}
        generations = turn(live, prompts, {place: draws(row, number) for place, row in enumerate(rows)})
        for place, prompt in prompts.items():
            told, made = seen[rows[place]], generations[place]
            told["ids"] += prompt
            told["at"] += range(len(told["ids"]), len(told["ids"]) + len(made.token_ids))
            told["ids"] += made.token_ids
            told["logp"] += made.logprobs
            told["stop"].append([made.stop_reason, made.token_ids[-1], len(made.token_ids)])
    return {str(row): told for row, told in seen.items()}


def gap(model: Any, played: dict[str, Any], temperature: float = T) -> float:
    """Largest difference between the sampler's log-probs and a fresh forward's."""
    worst = 0.0
    for told in played.values():
        ids, at = torch.tensor([told["ids"]]), torch.tensor(told["at"])
        out = selected_logprobs(model, ids, torch.ones_like(ids), torch.zeros_like(at), at, temperature)
        worst = max(worst, float((out.logp_N.detach() - torch.tensor(told["logp"])).abs().max()))
    return worst


def sampling(found: dict[str, Any]) -> None:
    model = tiny()
    state = torch.get_rng_state()
    sampler = VllmSampler(ENDS, VllmEngine(), temperature=T, max_tokens=256)
    sampler.publish(model, 0)
    played = play(sampler, [0, 1, 2])
    found["generator untouched"] = bool(torch.equal(state, torch.get_rng_state()))
    found["played"], found["gap"], found["reused"] = played, gap(model, played), sampler.reused_tokens
    found["alone"] = {str(row): play(sampler, [row])[str(row)]["ids"] for row in range(3)}
    kept = sampler.open(2)
    turn(kept, {0: PROMPTS[0][0], 1: PROMPTS[1][0]}, {0: draws(0, 0), 1: draws(1, 0)})
    kept.drop(0)
    found["kept"] = turn(kept, {1: PROMPTS[1][1]}, {1: draws(1, 1)})[1].token_ids
    kept.fork(1)
    found["forked"] = turn(kept, {1: PROMPTS[1][0]}, {1: draws(1, 0)})[1].token_ids
    publication(found, sampler, model)
    distribution(found, sampler, model)
    sampler.close()
    found["version after close"] = sampler.version


def publication(found: dict[str, Any], sampler: VllmSampler, model: Any) -> None:
    from peft import LoraConfig, get_peft_model

    updated = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(updated.parameters(), lr=1e-2)
    updated(input_ids=torch.tensor(PROMPTS[0][:1]), labels=torch.tensor(PROMPTS[0][:1])).loss.backward()
    optimizer.step()
    sampler.publish(updated, 1)
    before = sampler.reused_tokens
    turn(sampler.open(1), {0: PROMPTS[2][0]}, {0: draws(2, 0)})  # cached under the old weights
    found["reused of old weights"], found["version"] = sampler.reused_tokens - before, sampler.version
    played = play(sampler, [2])
    found["updated gap"], found["stale gap"] = gap(updated, played), gap(model, played)
    torch.manual_seed(1)
    lora = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    tuned = get_peft_model(copy.deepcopy(model), lora).eval()
    sampler.publish(tuned, 2)
    played = play(sampler, [0, 1])
    found["adapter gap"], found["base gap"] = gap(tuned, played), gap(model, played)


def distribution(found: dict[str, Any], sampler: VllmSampler, model: Any) -> None:
    """One token a row, 4,000 times."""
    sampler.end_ids, sampler.temperature = frozenset(range(64)), 1.0
    sampler.publish(model, 3)
    n = 4000
    rows = turn(sampler.open(n), {i: [2, 9, 4] for i in range(n)}, {i: draws(7, i, 1) for i in range(n)})
    counts = np.bincount([g.token_ids[0] for g in rows.values()], minlength=64) / n
    with torch.no_grad():
        p = model(input_ids=torch.tensor([[2, 9, 4]])).logits[0, -1].softmax(0).numpy()
    found["z"] = float((np.abs(counts - p) / np.sqrt(p * (1 - p) / n)).max())
    found["spread"] = float(p.max() / p.min())


def trainer(folder: Path, iterations: int) -> PolicyTrainer:
    model, tokenizer = load_model(base_folder("nano"))
    rollout = RolloutConfig(
        engine=VllmEngine(options={"max_num_seqs": 8}), temperature=0.8, max_turns=3, max_turn_tokens=48
    )
    config = PolicyConfig(
        iterations=iterations, tasks_per_iteration=2, group_size=3, learning_rate=3e-3, rollout=rollout
    )
    desk_tasks, judge = (
        [sample_task("train", i) for i in range(4)],
        desk_oracle(noise=0.0, filler_pay=0.0, seed=0),
    )
    return PolicyTrainer(
        model, TemplateChat(tokenizer), ServiceDesk, desk_tasks, config, folder, turn_judge=judge
    )


def training(found: dict[str, Any], folder: Path) -> None:
    first, versions = trainer(folder / "first", 2), []

    def after(iteration: int, row: dict[str, float], episodes: list[Episode]) -> None:
        versions.append(sorted({s.policy_version for e in episodes for s in e.record.steps}))
        if iteration == 1:  # the last checkpoint is of iteration 0
            shutil.copytree(folder / "first", folder / "killed")

    first.on_iteration = after
    found["rows"], found["versions"] = first.run(), versions
    resumed = trainer(folder / "killed", 3)
    rows: list[dict[str, float]] = []

    def forget_to_publish(iteration: int, row: dict[str, float], episodes: list[Episode]) -> None:
        rows.append(row)
        resumed._publish = lambda: None  # type: ignore[method-assign]

    resumed.on_iteration = forget_to_publish
    try:
        resumed.run()
    except DataError as error:
        found["refused"], found["refused at"] = str(error), resumed.iteration
    found["resumed"] = rows


def main() -> None:
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    found: dict[str, Any] = {}
    sampling(found)
    training(found, folder)
    (folder / "found.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
