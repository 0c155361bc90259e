"""The rubric's defaults in the fields that an item does not set."""

from typing import Any

from axiomrm.rubrics.model import Defaults, Template, Theorem


def expand_theorem(item: Theorem, defaults: Defaults) -> Theorem:
    """``item`` with the rubric's defaults in the fields that it does not set.

    An object (``evidence``, ``judge``, ``scale``) is taken whole or not at all.
    """
    return item.model_copy(update=_unset(item, defaults))


def expand_template(item: Template, defaults: Defaults) -> Template:
    """As ``expand_theorem``."""
    return item.model_copy(update=_unset(item, defaults))


def _unset(item: Theorem | Template, defaults: Defaults) -> dict[str, Any]:
    given = {name: getattr(defaults, name) for name in Defaults.model_fields}
    free = type(item).model_fields.keys() - item.model_fields_set
    return {k: v for k, v in given.items() if v is not None and k in free}
