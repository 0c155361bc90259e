"""Prompt template files: jinja2 in a sandbox, strict about names, checked when loaded.

Graded text is a value, never template source, so ``{{`` in an answer is inert.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from axiomrm.errors import ConfigError

FOLDER = Path(__file__).parent / "templates"
VARIABLES = frozenset({"guidelines", "reference", "nonce", "turn", "ask", "labels", "mode"})
BLOCKS = ("system", "open", "close", "look", "question")


@dataclass(frozen=True)
class PromptTemplate:
    """A loaded template."""

    name: str
    hash: str
    """SHA-256 of the file: any change of wording is another judge."""
    _template: Template

    def block(self, name: str, **values: Any) -> str:
        """The text of one block."""
        context = self._template.new_context(values)
        return "".join(self._template.blocks[name](context))


def load_template(name_or_path: str) -> PromptTemplate:
    """A shipped template by name (``default``, ``compact``) or a ``.j2`` file by path.

    Raises:
        ConfigError: no such template, a syntax error, an unknown variable or a missing block.
    """
    path = Path(name_or_path) if name_or_path.endswith(".j2") else FOLDER / f"{name_or_path}.j2"
    if not path.is_file():
        shipped = sorted(p.stem for p in FOLDER.glob("*.j2"))
        raise ConfigError(
            f"prompt template {name_or_path!r}: no such file; shipped are {shipped}, or give a .j2 path"
        )
    return parse_template(path.read_text(encoding="utf-8"), str(name_or_path))


def parse_template(source: str, name: str = "inline") -> PromptTemplate:
    """A template from its source, checked as :func:`load_template` does."""
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    try:
        unknown = meta.find_undeclared_variables(environment.parse(source)) - VARIABLES
        template = environment.from_string(source)
    except TemplateError as error:
        raise ConfigError(f"prompt template {name!r}: {error}") from error
    if unknown:
        raise ConfigError(
            f"prompt template {name!r}: unknown variable {', '.join(map(repr, sorted(unknown)))}; "
            f"known are {sorted(VARIABLES)}"
        )
    missing = [block for block in BLOCKS if block not in template.blocks]
    if missing:
        raise ConfigError(f"prompt template {name!r}: missing block {', '.join(map(repr, missing))}")
    return PromptTemplate(name, hashlib.sha256(source.encode()).hexdigest(), template)
