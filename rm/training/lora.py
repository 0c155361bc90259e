"""Low-rank adapters for a stage."""

from typing import Any

import torch
from peft import LoraConfig, get_peft_model

from axiomrm.rm.training.config import LoraSettings


def with_lora(net: Any, lora: LoraSettings) -> Any:
    """``net`` with fresh adapters, the rest frozen; ``merge_and_unload()`` gives a plain model back."""
    last: dict[str, Any] = {}
    if lora.last_layers:
        head = net.get_output_embeddings()
        linear = [n for n, m in net.named_modules() if isinstance(m, torch.nn.Linear) and m is not head]
        layers = range(net.config.get_text_config().num_hidden_layers)
        last["target_modules"] = sorted({name.rpartition(".")[2] for name in linear})
        last["layers_to_transform"] = list(layers)[-lora.last_layers :]
    return get_peft_model(
        net,
        LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            lora_dropout=lora.dropout,
            task_type="CAUSAL_LM",
            **{"target_modules": "all-linear"} | last,
        ),
    )
