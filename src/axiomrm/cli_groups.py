"""Options of a command in groups: a dataclass in its signature becomes one option for each field.

So that a command with many options has few parameters, and its groups go on whole to what needs them.
"""

from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

import typer

_TOLD = ("COMMANDLINE", "ENVIRONMENT")


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """The command that typer sees, with the fields of ``function``'s dataclass parameters after its own.

    Args:
        function: every field of its dataclasses is ``Annotated`` as a typer option and has a default.
    """
    groups: dict[str, Any] = {
        name: hint for name, hint in get_type_hints(function).items() if is_dataclass(hint)
    }

    def command(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        function(**given, **made)

    plain = [p for p in signature(function, eval_str=True).parameters.values() if p.name not in groups]
    options = [option for kind in groups.values() for option in _options(kind)]
    command.__signature__ = Signature([*plain, *options])  # type: ignore[attr-defined]  # read by inspect
    command.__annotations__ = {p.name: p.annotation for p in (*plain, *options)}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def given(context: typer.Context) -> dict[str, str]:
    """The options that the command line or the environment gives: parameter → as typed there."""
    return {
        parameter.name: max(parameter.opts, key=len)
        for parameter in context.command.params
        if parameter.name and getattr(context.get_parameter_source(parameter.name), "name", "") in _TOLD
    }


def _options(kind: Any) -> list[Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    assert not [field.name for field in fields(kind) if field.default is MISSING]
    return [
        Parameter(field.name, Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(kind)
    ]
