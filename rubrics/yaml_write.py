"""Plain values → YAML text that our own reader takes back unchanged."""

from typing import Any

import yaml

from axiomrm.rubrics.yaml_nodes import Reader


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    probe = Reader("", "")
    plain = probe.plain(value, 1, 1)
    quote = plain != value or bool(probe.findings) or value.startswith(("-", "?", "."))
    quote = quote or "{" in value or "\x85" in value  # a raw U+0085 is a line break to YAML
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"' if quote else None)


def _number(dumper: yaml.SafeDumper, value: float) -> yaml.Node:
    if value == int(value) and abs(value) < 1e15:
        return dumper.represent_scalar("tag:yaml.org,2002:int", str(int(value)))
    # PyYAML takes 1e-06 for a text and would write a tag before it; 1.0e-06 it takes for a number.
    mantissa, e, exponent = repr(value).partition("e")
    text = f"{mantissa}.0e{exponent}" if e and "." not in mantissa else repr(value)
    return dumper.represent_scalar("tag:yaml.org,2002:float", text)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(float, _number)


def to_yaml(value: Any) -> str:
    """Block style, keys in the given order, numbers without a needless ``.0``."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100))
