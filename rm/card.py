"""The judge card: ``axiomrm_judge.json`` in a checkpoint folder says that the model was trained as a judge.

Loading compares its hashes with what is at hand: a judge behind another template, grammar, chat template or
tokenizer than it was trained with is another judge, and an error.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from axiomrm.errors import ConfigError
from axiomrm.rm.calibration import CALIBRATION_FILE
from axiomrm.rm.prompt import DEFAULT_SECRET, JudgePrompter

CARD_FILE = "axiomrm_judge.json"


class JudgeCard(BaseModel):
    """What a trained judge must be used with."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_: Literal["axiomrm/judge-1"] = Field(default="axiomrm/judge-1", alias="schema")
    template: str
    template_hash: str
    grammar: str
    chat_template_hash: str
    tokenizer_hash: str
    min_mass: float = Field(default=0.8, ge=0, le=1)
    """Smallest captured mass for a reading of this judge to count."""
    base: str = ""
    """Id or hash of the model that training started from."""
    stages: tuple[str, ...] = ()
    """Training stages, in order."""
    details: dict[str, Any] = Field(default_factory=dict)
    """Counts, data hashes, metrics: free-form, for people and reports."""


def write_judge_card(
    folder: str | Path,
    prompter: JudgePrompter,
    *,
    min_mass: float = 0.8,
    base: str = "",
    stages: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
) -> JudgeCard:
    """Write the card of a judge that was trained on ``prompter``'s rows; atomic."""
    card = JudgeCard(
        **prompter.fingerprint,
        min_mass=min_mass,
        base=base,
        stages=tuple(stages),
        details=dict(details or {}),
    )
    path = Path(folder) / CARD_FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(
        json.dumps(card.model_dump(mode="json", by_alias=True), indent=1) + "\n", encoding="utf-8"
    )
    os.replace(temporary, path)
    return card


def judge_folder(folder_or_id: str | Path) -> Path:
    """Where the card and the calibrator of a model lie: its folder, or the local copy of a hub id.

    What loads a model fetches neither of them, so they are fetched here where the hub can be reached.

    Raises:
        ConfigError: neither a folder nor a model of the hub that can be had.
    """
    folder = Path(folder_or_id)
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(folder_or_id), allow_patterns=[CARD_FILE, CALIBRATION_FILE]))
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"model {str(folder_or_id)!r}: no such folder, and no copy of a model of this name from the hub "
            f"({reason})"
        ) from error


def read_judge_card(folder: str | Path) -> JudgeCard | None:
    """The card in a checkpoint folder; ``None``: never trained as a judge.

    Raises:
        ConfigError: there is a card that cannot be read.
    """
    path = Path(folder) / CARD_FILE
    if not path.is_file():
        return None
    try:
        return JudgeCard.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not a judge card: {str(error).splitlines()[-1].strip()}") from error


def fitting_prompter(
    tokenizer: Any | None,
    folder: str | Path | None,
    *,
    template: str | None = None,
    secret: str = DEFAULT_SECRET,
) -> tuple[JudgePrompter, JudgeCard | None]:
    """The prompter that a judge is used with, and its card.

    Args:
        tokenizer: as ``JudgePrompter`` takes it.
        folder: where a card may lie; ``None``: there is none.
        template: by default the card's, ``default`` without a card.
        secret: key of the nonces.

    Raises:
        ConfigError: the card cannot be read, or the judge was trained with other prompts.
    """
    card = read_judge_card(folder) if folder is not None else None
    prompter = JudgePrompter(
        tokenizer, template=template or (card.template if card else "default"), secret=secret
    )
    if card is not None:
        check_judge_card(card, prompter, str(folder))
    return prompter, card


def check_judge_card(card: JudgeCard, prompter: JudgePrompter, place: str) -> None:
    """Raise unless the prompter is the one that the judge was trained with.

    Raises:
        ConfigError: names each part that differs.
    """
    now = prompter.fingerprint
    then = card.model_dump()
    wrong = [name for name in now if now[name] != then[name] and name != "template"]
    if wrong:
        found = ", ".join(f"{name} {now[name][:12]!r} (trained with {then[name][:12]!r})" for name in wrong)
        raise ConfigError(
            f"{place}: this judge was trained with template {card.template!r} and does not fit: {found}; "
            "use the template and tokenizer of its checkpoint, or train it again"
        )
