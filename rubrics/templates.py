"""Personal templates: slot values → a theorem with the parameters filled in."""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

from axiomrm.errors import DataError
from axiomrm.rubrics.model import Template


def instantiate(template: Template, slots: Mapping[str, Any]) -> Template | None:
    """The template for one user.

    Args:
        template: an active personal template.
        slots: slot → value; only those in ``template.reads`` are looked at.

    Returns:
        ``None`` if a slot that it reads is not there, or an empty set.

    Raises:
        DataError: a slot value has no entry in the parameter's map; it is not repeated.
    """
    seen = {name: slots[name] for name in template.reads if slots.get(name) is not None}
    if len(seen) < len(template.reads):
        return None
    values: dict[str, str] = {}
    for name, param in template.params.items():
        chosen = _parameter(template, name, seen.get(param.slot))
        if chosen is None:
            return None
        values[name] = chosen
    return fill(template, values)


def _parameter(template: Template, name: str, value: Any) -> str | None:
    table = template.params[name].map
    if value is None:
        return None
    if isinstance(value, list | tuple | set | frozenset):
        words = sorted(_entry(template, name, v, table) for v in value)
        return ", ".join(words) or None
    return _entry(template, name, value, table)


def _entry(template: Template, name: str, value: Any, table: Mapping[str, Any]) -> str:
    key = slot_key(value)
    if key not in table:
        slot, found = template.params[name].slot, f"a value of type {type(value).__name__}"
        raise DataError(
            f"{template.id}: slot {slot!r} has {found} that is not in the map, which has {', '.join(table)}"
        )
    return slot_key(table[key])


def slot_key(value: Any) -> str:
    """A slot value or parameter as text: ``true``, ``3``, ``0.5``, ``short``."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def fill(template: Template, values: Mapping[str, str]) -> Template:
    """``{name}`` replaced in statement, inverse, condition and requires; nothing else is a placeholder."""

    def put(text: str) -> str:
        for name, value in values.items():
            text = text.replace("{" + name + "}", value)
        return text

    update: dict[str, Any] = {
        "statement": put(template.statement),
        "inverse": put(template.inverse),
        "applies_when": put(template.applies_when),
        "requires": put(template.requires) if template.requires is not None else None,
    }
    return template.model_copy(update=update)


MAX_VARIANTS = 500


def variant_count(template: Template) -> int:
    """Number of ways to fill a template; above ``MAX_VARIANTS`` not all of them are searched."""
    return prod(map(len, _options(template)))


def variants(
    template: Template, limit: int = MAX_VARIANTS
) -> Iterator[tuple[dict[str, tuple[str, str]], Template]]:
    """Every value of the parameters: name → (slot value, parameter), and the template filled.

    Parameters of one slot move together. At most ``limit`` variants.
    """
    for count, combination in enumerate(product(*_options(template))):
        if count >= limit:
            return
        chosen = {n: pair for group in combination for n, pair in group.items()}
        yield chosen, fill(template, {n: parameter for n, (_, parameter) in chosen.items()})


def _options(template: Template) -> list[list[dict[str, tuple[str, str]]]]:
    """For each slot, what its values make of the parameters that read it."""
    by_slot: dict[str, list[str]] = {}
    for name, param in template.params.items():
        by_slot.setdefault(param.slot, []).append(name)
    options = []
    for names in by_slot.values():
        keys = [k for k in template.params[names[0]].map if all(k in template.params[n].map for n in names)]
        options.append([{n: (k, slot_key(template.params[n].map[k])) for n in names} for k in keys])
    return options
