"""The base of every class of settings, and the sizes beyond which a number is a typo."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

MANY = 1_000_000
"""Greatest number of iterations, tasks, episodes or rollouts; more would run for years."""
LONG = 10_000_000
"""Greatest number of tokens in a row, an episode or a forward pass."""

Place = tuple[str | int, ...]


class Settings(BaseModel):
    """Frozen; unknown fields are errors, and so is a boolean where a number is wanted."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _booleans_are_no_numbers(cls, values: Any) -> Any:
        """Python counts ``True`` as 1, and pydantic with it.

        A model's validator and not a field's: pydantic refuses the latter for ``kind`` of a union.
        """
        fields = cls.model_fields
        given = values.items() if isinstance(values, dict) else ()
        wrong = [
            at
            for name, value in given
            if name in fields and _wants_numbers(fields[name].annotation)
            for at in _booleans(value, (name,))
        ]
        if wrong:
            reason = {"error": ValueError("true and false are no numbers; write a number")}
            raise ValidationError.from_exception_data(
                cls.__name__,
                [{"type": "value_error", "loc": at, "input": found, "ctx": reason} for at, found in wrong],
            )
        return values


def _wants_numbers(annotation: Any) -> bool:
    """Whether an annotation is made of numbers and not of booleans, at whatever depth."""
    leaves = list(_leaves(annotation))
    return (int in leaves or float in leaves) and bool not in leaves


def _leaves(annotation: Any) -> Iterator[Any]:
    inner = get_args(annotation)
    if not inner:
        yield annotation
    for part in inner:
        yield from _leaves(part)


def _booleans(value: Any, place: Place) -> Iterator[tuple[Place, bool]]:
    if isinstance(value, bool):
        yield place, value
    elif isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _booleans(item, (*place, key))
