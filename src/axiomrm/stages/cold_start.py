"""Stage ``cold_start``: fine-tune the base on demonstrations until the dev loss stops falling."""

from axiomrm.config import RunConfig
from axiomrm.data.trajectory import Trajectory
from axiomrm.errors import ConfigError
from axiomrm.policy_opt.cold_start import ColdStartSettings, dialogue_row, fine_tune
from axiomrm.policy_opt.rollouts.chat import TemplateChat
from axiomrm.rm.engines.model_load import check_model
from axiomrm.stage_context import Metrics, StageContext
from axiomrm.stages.world import base_folder, load_model, save_model


def check(config: RunConfig) -> None:
    """Whether the base model can be loaded, without reading its weights.

    Raises:
        ConfigError: names what its folder lacks.
    """
    try:
        check_model(str(base_folder(config.base)))
    except ConfigError as error:
        raise ConfigError(f"base: {error}") from error


def run(ctx: StageContext) -> Metrics:
    """Write ``policy/``, the cold-started policy."""
    import torch

    torch.manual_seed(ctx.seed)
    settings = ctx.config.cold_start
    model, tokenizer = load_model(base_folder(ctx.config.base))
    chat = TemplateChat(tokenizer)
    rows = {split: _rows(ctx, chat, split) for split in ("train", "dev")}

    def tell(epoch: int, loss: float) -> None:
        ctx.progress(f"epoch {epoch}, dev loss {loss:.3f}", epoch, settings.max_epochs)
        ctx.kill_point("epoch")

    result = fine_tune(
        model,
        rows["train"],
        rows["dev"],
        ColdStartSettings(**settings.model_dump(), seed=ctx.seed),
        ctx.stage_dir / "training",
        pad_id=tokenizer.pad_token_id,
        on_epoch=tell,
    )
    save_model(model, tokenizer, ctx.stage_dir / "policy")
    (ctx.stage_dir / "training" / "cold_start.pt").unlink()
    return {
        "dialogues": len(rows["train"]),
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "dev_loss_before": result.dev_losses[0],
        "dev_loss": min(result.dev_losses),
    }


def _rows(ctx: StageContext, chat: TemplateChat, split: str) -> list[tuple[list[int], list[int]]]:
    demos = Trajectory.read(ctx.artifact("synthesize", f"demos_{split}.jsonl"))
    return [dialogue_row(chat, t) for t in demos]
