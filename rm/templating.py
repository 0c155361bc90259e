"""Prompt template files: jinja2 in a sandbox, strict about names, checked when loaded.

Graded text is a value, never template source, so ``{{`` in an answer is inert. A template of your own is a
``.j2`` file with the blocks of ``default.j2``; :func:`parse_template` renders each of them once with sample
values, so that what is wrong with it shows at load and not in the middle of a run.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from axiomrm.errors import ConfigError

FOLDER = Path(__file__).parent / "templates"
VARIABLES = frozenset({"guidelines", "reference", "nonce", "turn", "ask", "labels", "items", "mode"})
BLOCKS = ("system", "open", "close", "look", "question")
"""What every template has; ``joint`` (several criteria in one prompt) is needed by joint mode only."""
_NONCE = "sampul"


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

    def require(self, name: str) -> None:
        """Raise unless there is a block ``name``.

        Raises:
            ConfigError: there is none.
        """
        if name not in self._template.blocks:
            raise ConfigError(f"prompt template {self.name!r}: missing block {name!r}")


def load_template(name_or_path: str) -> PromptTemplate:
    """A shipped template by name (``default``, ``compact``) or a ``.j2`` file by path.

    Raises:
        ConfigError: no such template, a syntax error, an unknown variable, a missing block, or a block that
            does not print what the grammar needs.
    """
    path = Path(name_or_path) if name_or_path.endswith(".j2") else FOLDER / f"{name_or_path}.j2"
    if not path.is_file():
        shipped = sorted(p.stem for p in FOLDER.glob("*.j2"))
        raise ConfigError(
            f"prompt template {name_or_path!r}: no such file; shipped are {shipped}, or give a .j2 path"
        )
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"prompt template {name_or_path!r}: {error}") from error
    return parse_template(source, str(name_or_path))


def parse_template(source: str, name: str = "inline") -> PromptTemplate:
    """A template from its source, checked as :func:`load_template` does."""
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    try:
        unknown = meta.find_undeclared_variables(environment.parse(source)) - VARIABLES
        compiled = environment.from_string(source)
    except TemplateError as error:
        raise ConfigError(f"prompt template {name!r}: {error}") from error
    if unknown:
        raise ConfigError(
            f"prompt template {name!r}: unknown variable {', '.join(map(repr, sorted(unknown)))}; "
            f"known are {sorted(VARIABLES)}"
        )
    template = PromptTemplate(name, hashlib.sha256(source.encode()).hexdigest(), compiled)
    for block in BLOCKS:
        template.require(block)
    for block, values in _samples("joint" in compiled.blocks):
        _check_block(template, block, values)
    return template


def _samples(joint: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Blocks with values that take each branch of a sensible template."""
    labels = [
        {"token": token, "text": text, "standard": text == "yes"}
        for token, text in (("Y", "yes"), ("1", "x"))
    ]
    for text in ("", "some text"):
        yield "system", {"guidelines": text}
        yield "open", {"nonce": _NONCE, "reference": text}
    yield "close", {"nonce": _NONCE}
    yield from (("look", {"turn": turn}) for turn in (0, 2))
    for mode, shown in product(("direct", "notes"), (labels[:1], labels)):
        asked = {"ask": "Is it so?", "labels": shown}
        yield "question", {"nonce": _NONCE, "mode": mode, **asked}
        if joint:
            yield "joint", {"nonce": _NONCE, "mode": mode, "items": [asked, asked]}


def _check_block(template: PromptTemplate, block: str, values: dict[str, Any]) -> None:
    place = f"prompt template {template.name!r}: block {block!r}"
    try:
        text = template.block(block, **values)
    except Exception as error:  # a template can fail in any way that Python can
        raise ConfigError(f"{place} cannot be rendered: {error}") from error
    needed = {
        "open": [f"<data {_NONCE}>"],
        "close": [f"</data {_NONCE}>"],
        "question": [values.get("ask", "")],
        "joint": ["Is it so?"],
    }.get(block, [])
    missing = [part for part in needed if part not in text]
    if missing:
        shown = missing[0].replace(_NONCE, "{{ nonce }}").replace("Is it so?", "{{ ask }}")
        raise ConfigError(f"{place} must print {shown!r}")
    if block in ("open", "close", "look") and not text.endswith("\n"):
        raise ConfigError(f"{place} must end in a line break, found {text[-20:]!r}")
