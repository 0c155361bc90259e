"""One stage of judge training: examples in, a judge folder out; stages continue one another.

A stage folder holds ``stage.json`` (settings and hashes of its inputs), ``checkpoints/``, ``final/`` (model,
tokenizer, judge card) and ``result.json``. A finished stage is not run again, a killed one goes on from its
last complete checkpoint, and a folder started with other inputs is refused.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from axiomrm.data.synthesis.examples import JudgeExample
from axiomrm.data.trajectory import finite_json
from axiomrm.errors import ConfigError
from axiomrm.rm.card import CARD_FILE, JudgeCard, fitting_prompter, judge_folder, write_judge_card
from axiomrm.rm.engines.model_facts import weights_hash
from axiomrm.rm.labels import LabelSet
from axiomrm.rm.prompt import JudgePrompter
from axiomrm.rm.training.config import StageConfig
from axiomrm.rm.training.lora import with_lora
from axiomrm.rm.training.losses import mean_loss, plan_packing
from axiomrm.rm.training.packing import batches
from axiomrm.rm.training.row_set import RowSet
from axiomrm.rm.training.rows import make_rows
from axiomrm.rm.training.sft import run_sft

STAGES = ("rm.general", "rm.rubric", "rm.personal")
Evaluate = Callable[[Any], Mapping[str, Any]]
"""``evaluate(model) -> metrics``, called on the model before and after training."""


@dataclass(frozen=True)
class StageResult:
    """What a stage left."""

    folder: Path
    """Model, tokenizer and judge card."""
    counts: dict[str, Any]
    direct_share: float
    data_hash: str
    packed: bool
    labels_per_1000_tokens: float
    steps: int
    tokens: int
    seconds: float
    dev_loss_before: float | None
    """Mean loss (nats a trained token) on the dev examples; ``None``: none were given."""
    dev_loss_after: float | None
    metrics_before: dict[str, Any] = field(default_factory=dict)
    metrics_after: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, float]] = field(default_factory=list)


def train_stage(
    model: Any,
    tokenizer: Any,
    train_examples: Sequence[JudgeExample],
    dev_examples: Sequence[JudgeExample],
    out_dir: str | Path,
    config: StageConfig,
    *,
    evaluate: Evaluate | None = None,
    guidelines: str = "",
    label_sets: Mapping[str, LabelSet] | None = None,
    base: str = "",
    details: Mapping[str, Any] | None = None,
) -> StageResult:
    """Train one stage and write its judge folder.

    Args:
        model: a loaded causal language model, or the folder of one; the ``final`` folder of the stage before.
        tokenizer: its tokenizer; ``None``: the one in the folder.
        train_examples: what to learn.
        dev_examples: held-out examples for the loss before and after; may be empty.
        out_dir: the stage folder.
        config: settings.
        evaluate: further metrics before and after.
        guidelines: the rubric's text for all criteria.
        label_sets: by criterion id, where labels carry texts or values of their own.
        base: name of the model that the first stage starts from, for the card; later stages keep it.
        details: further entries of the card (rubric hashes, teacher names, overlap report …).

    Raises:
        ConfigError: nothing to train on, a folder of another run, or a judge of another template.
        DataError: an example's label is none of its labels.
    """
    out = Path(out_dir)
    net, tokenizer, folder = _loaded(model, tokenizer)
    prompter, card = fitting_prompter(tokenizer, folder, template=config.template, secret=config.secret)
    options: dict[str, Any] = {"guidelines": guidelines, "label_sets": label_sets}
    train, dev = (_rows(found, prompter, config, options) for found in (train_examples, dev_examples))
    plan = _plan(config, net, prompter, train, dev)
    _claim(out, plan)
    if (out / "result.json").exists():
        return _read_result(out)
    result = _train(net, tokenizer, train, dev, out, config, evaluate)
    entry = plan | {"result": _record(result), "versions": _versions()} | dict(details or {})
    _write_card(out, prompter, config, card, entry, base)
    _publish(out, result)
    return result


def _plan(
    config: StageConfig, net: Any, prompter: JudgePrompter, train: RowSet, dev: RowSet
) -> dict[str, Any]:
    """What decides the stage's result; a folder of another plan is refused."""
    return {
        "config": config.model_dump(mode="json"),
        "base_weights": weights_hash(net),
        "train_hash": train.data_hash(),
        "dev_hash": dev.data_hash(),
        "prompt": prompter.fingerprint,
    }


def _write_card(
    out: Path,
    prompter: JudgePrompter,
    config: StageConfig,
    before: JudgeCard | None,
    entry: Mapping[str, Any],
    base: str,
) -> None:
    write_judge_card(
        out / "final.tmp",
        prompter,
        min_mass=config.min_mass,
        base=before.base if before else base or str(entry["base_weights"]),
        stages=(*(before.stages if before else ()), config.stage),
        details=finite_json((dict(before.details) if before else {}) | {config.stage: entry}),
    )


def _loaded(model: Any, tokenizer: Any) -> tuple[Any, Any, str | Path | None]:
    """Model, tokenizer, and the folder that they came from, if one."""
    if not isinstance(model, str | Path):
        return model, tokenizer, None
    tokenizer = tokenizer or AutoTokenizer.from_pretrained(model)
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), tokenizer, judge_folder(model)


def _rows(
    examples: Sequence[JudgeExample], prompter: JudgePrompter, config: StageConfig, options: Mapping[str, Any]
) -> RowSet:
    return make_rows(
        examples,
        prompter,
        direct_share=config.direct_share,
        joint_share=config.joint_share,
        joint_size=config.joint_size,
        max_tokens=config.max_tokens,
        seed=config.seed,
        label_weight=config.label_weight,
        **options,
    )


def _claim(out: Path, plan: Mapping[str, Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "stage.json"
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        # Read back through the model, so that a field added since then has its default.
        before["config"] = StageConfig.model_validate(before.get("config", {})).model_dump(mode="json")
        wrong = [key for key in plan if before.get(key) != plan[key]]
        if wrong:
            raise ConfigError(
                f"{out}: this folder belongs to a stage with another {', '.join(wrong)}; "
                "use a new folder, or delete this one"
            )
    else:
        _write_json(path, plan)


def _train(
    net: Any,
    tokenizer: Any,
    train: RowSet,
    dev: RowSet,
    out: Path,
    config: StageConfig,
    evaluate: Evaluate | None,
) -> StageResult:
    before = _before(net, tokenizer, dev, out, config, evaluate)
    packed, trees = plan_packing(net, tokenizer, train.rows, config)
    made = batches(trees, max_tokens=config.batch_tokens, seed=config.seed)
    torch.manual_seed(config.seed)  # adapters start from random weights
    trained = with_lora(net, config.lora) if config.lora else net
    done = run_sft(trained, tokenizer, made, out / "checkpoints", config, packed=packed)
    merged = trained.merge_and_unload() if config.lora else trained
    _restore_forward(merged)
    _save_model(merged, tokenizer, out / "final.tmp")
    merged.eval()
    return StageResult(
        folder=out / "final",
        counts=train.counts(),
        direct_share=train.direct_share or 0.0,
        data_hash=train.data_hash(),
        packed=packed,
        labels_per_1000_tokens=1000 * sum(len(row.items) for row in train.rows) / sum(t.size for t in trees),
        steps=done.steps,
        tokens=done.tokens,
        seconds=done.seconds,
        dev_loss_before=before["dev_loss"],
        dev_loss_after=mean_loss(merged, tokenizer, dev.rows, config),
        metrics_before=before["metrics"],
        metrics_after=dict(evaluate(merged)) if evaluate else {},
        history=done.history,
    )


def _before(
    net: Any, tokenizer: Any, dev: RowSet, out: Path, config: StageConfig, evaluate: Evaluate | None
) -> dict[str, Any]:
    """Measured once: a resumed run keeps the numbers of its first start."""
    path = out / "before.json"
    if not path.exists():
        net.eval()
        metrics = dict(evaluate(net)) if evaluate else {}
        _write_json(path, {"dev_loss": mean_loss(net, tokenizer, dev.rows, config), "metrics": metrics})
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _restore_forward(model: Any) -> None:
    # trl puts a fused head in front of the instance's forward.
    model.__dict__.pop("forward", None)


def _save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _publish(out: Path, result: StageResult) -> None:
    shutil.rmtree(out / "final", ignore_errors=True)
    os.replace(out / "final.tmp", out / "final")
    _write_json(out / "result.json", _record(result))
    shutil.rmtree(out / "checkpoints", ignore_errors=True)


def _read_result(out: Path) -> StageResult:
    if not (out / "final" / CARD_FILE).exists():
        raise ConfigError(f"{out / 'final'}: the finished judge is gone; delete {out} to train it again")
    record = json.loads((out / "result.json").read_text(encoding="utf-8"))
    return StageResult(**record | {"folder": out / "final"})


def _record(result: StageResult) -> dict[str, Any]:
    record: dict[str, Any] = finite_json(asdict(result) | {"folder": "final"})
    return record


def _write_json(path: Path, value: Any) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(finite_json(value), indent=1) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("axiomrm", "torch", "transformers", "trl", "peft")}
