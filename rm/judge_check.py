"""Whether a local judge can be used, told without reading its weights."""

from axiomrm.rm.calibration import read_calibration
from axiomrm.rm.card import fitting_prompter, judge_folder
from axiomrm.rm.engines.model_load import check_model


def check_judge(folder_or_id: str) -> None:
    """What ``RewardModel.from_pretrained`` would refuse, in a second instead of at its call.

    Raises:
        ConfigError: there is no such model, or its configuration, tokenizer, judge card or calibrator cannot
            be used.
    """
    tokenizer = check_model(folder_or_id)
    folder = judge_folder(folder_or_id)
    fitting_prompter(tokenizer, folder)
    read_calibration(folder)
