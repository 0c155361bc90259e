"""The base of every class of settings, and the sizes beyond which a number is a typo."""

from collections.abc import Iterator
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, model_validator

MANY = 1_000_000
"""Greatest number of iterations, tasks, episodes or rollouts; more would run for years."""
LONG = 10_000_000
"""Greatest number of tokens in a row, an episode or a forward pass."""
HOTTEST = 100.0
"""Greatest sampling temperature; at more, every token is as likely as any other."""
Rate = Annotated[float, Field(gt=0, le=1)]
"""A learning rate."""

Place = tuple[str | int, ...]


class Settings(BaseModel):
    """Frozen; unknown fields are errors, and so are a boolean where a number is wanted, NaN and infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _booleans_are_no_numbers(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Python counts ``True`` as 1, and pydantic with it.

        A model's validator and not a field's: pydantic refuses the latter for ``kind`` of a union.
        """
        fields = cls.model_fields
        wrong = [
            at
            for name, value in (values.items() if isinstance(values, dict) else ())
            if name in fields and _wants_numbers(fields[name].annotation)
            for at in _booleans(value, (name,))
        ]
        if not wrong:
            return handler(values)
        reason = {"error": ValueError("true and false are no numbers; write a number")}
        faults: list[Any] = [
            {"type": "value_error", "loc": at, "input": found, "ctx": reason} for at, found in wrong
        ]
        named = {place[0] for place, _ in wrong}
        others = _faults(handler, {name: value for name, value in values.items() if name not in named})
        faults += [fault for fault in others if not named & {*fault["loc"][:1]}]
        raise ValidationError.from_exception_data(cls.__name__, faults)


def _faults(handler: ModelWrapValidatorHandler[Any], values: dict[str, Any]) -> list[Any]:
    """What a section is refused for, as ``ValidationError.from_exception_data`` takes it."""
    try:
        handler(values)
    except ValidationError as error:
        return [
            {"type": e["type"], "loc": e["loc"], "input": e["input"], "ctx": e.get("ctx", {})}
            for e in error.errors()
        ]
    return []


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
