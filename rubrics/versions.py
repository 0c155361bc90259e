"""Semantic versions and the three kinds of range that an import may use."""

import re
from typing import NamedTuple

_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_RANGE = re.compile(r"([\^~]?)(\d{1,9})(?:\.(\d{1,9}))?(?:\.(\d{1,9}))?")


class Version(NamedTuple):
    """``major.minor.patch``; a pre-release sorts before its release."""

    major: int
    minor: int
    patch: int
    release: tuple[int, str] = (1, "")
    """(1, "") for a release, (0, text) for a pre-release."""


def parse_version(text: str) -> Version | None:
    """``None`` if it is no semantic version."""
    match = _VERSION.fullmatch(text)
    if match is None:
        return None
    major, minor, patch = (int(g) for g in match.groups()[:3])
    return Version(major, minor, patch, (0, match.group(4)) if match.group(4) else (1, ""))


class Range(NamedTuple):
    """Half-open: ``low <= version < high``; exact if ``high`` is ``None``."""

    low: Version
    high: Version | None

    def holds(self, version: Version) -> bool:
        """Whether ``version`` is inside."""
        return version == self.low if self.high is None else self.low <= version < self.high


def parse_range(text: str) -> Range | None:
    """``1.2.0`` exact, ``^1.2`` same major, ``~1.2`` same minor; ``None`` if malformed.

    Below 1.0.0 a caret keeps the minor version, as every minor step may break there.
    """
    exact = parse_version(text)
    if exact is not None:
        return Range(exact, None)
    match = _RANGE.fullmatch(text)
    if match is None or not match.group(1):
        return None
    numbers = [int(g or 0) for g in match.groups()[1:]]
    major, minor, patch = numbers
    low = Version(major, minor, patch)
    # (0, "") sorts before every pre-release of the same numbers, so 2.0.0-rc is outside ^1.0.
    if match.group(1) == "^" and (major > 0 or match.group(3) is None):
        return Range(low, Version(major + 1, 0, 0, (0, "")))
    if match.group(1) == "~" and match.group(3) is None:
        return Range(low, Version(major + 1, 0, 0, (0, "")))
    return Range(low, Version(major, minor + 1, 0, (0, "")))
