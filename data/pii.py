"""Patterns and checksums of personal data, without any model.

Covers: e-mail addresses in Latin, Greek and Cyrillic letters, payment cards (Luhn sum), IBANs (length of the
country, checksum), phone numbers with a country code or in groups, mobile numbers of China where the text
says that they are one; all of them also beside Chinese characters, full-width, and broken up by characters
that nobody sees. Does not cover: names, postal addresses, dates of birth, official ids.

No pattern has ``\\b``: Chinese characters count as letters there, so nothing would be found beside them.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

_DASHES = "\\-\u2010-\u2015"
_LETTERS = "A-Za-z\u00c0-\u024f\u0370-\u052f"
"""Latin, Greek, Cyrillic: scripts that set words apart, so that none of a sentence sticks to an address."""
_CJK = "\u3400-\u4dbf\u4e00-\u9fff"

_LOCAL = f"{_LETTERS}0-9._%+-"
_EMAIL = re.compile(
    rf"(?<![{_LOCAL}])[{_LOCAL}]+@[{_LETTERS}0-9-]+(?:\.[{_LETTERS}0-9-]+)*\.[{_LETTERS}]{{2,24}}"
)

_PHONE = re.compile(
    r"(?<![A-Za-z0-9_])(?:\+\d{1,3}[ .-]?\(?\d{1,4}\)?(?:[ .-]?\d{2,4}){2,4}"
    r"|\(?\d{3}\)?[ .-]\d{3}[ .-]\d{4})(?![A-Za-z0-9_])"
)
_MOBILE = re.compile(r"(?<![A-Za-z0-9_.])1[3-9]\d(?:[ -]?\d{4}){2}(?![A-Za-z0-9_])")
_ABOUT_PHONES = re.compile(rf"[{_CJK}]|phone|tel|mobile|call|whatsapp|sms", re.IGNORECASE)
_NEAR = 16
"""Characters on either side of a bare mobile number in which something must say that it is one."""

_DIGITS = re.compile(rf"(?<![\d+-])\d(?:[ .{_DASHES}]?\d)*")
_CARD = re.compile(
    r"4\d{12}(?:\d{3}(?:\d{3})?)?|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3(?:0[0-5]|[689]\d)\d{11}"
    r"|35\d{14}|(?:6\d|5[0678])\d{14}(?:\d{3})?"
)
"""Numbers of the issuers: what they begin with, and how many digits they have."""
_CARD_DIGITS = range(13, 20)
_CARD_GROUPS = 6
"""Most groups of digits that a card is written in."""

_IBAN_START = re.compile(r"(?<![A-Za-z0-9])([A-Za-z]{2})[0-9]{2}")
_IBAN_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
_IBAN_LENGTHS = {country: n for n, countries in _IBAN_COUNTRIES.items() for country in countries.split()}
"""Country → characters of an IBAN, so that what stands behind it is not taken for a part of it."""
_IBAN_DIGITS = 9
"""Fewest digits of an IBAN; words that happen to have its length have fewer."""


def plain(text: str) -> str:
    """The text in which things are looked for: NFKC, without format characters (soft hyphens, joiners)."""
    if text.isascii():
        return text
    kept = "".join(c for c in text if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", kept)


def squeeze(text: str) -> str:
    """A text in lower case without blanks, brackets and separators, as numbers are compared."""
    return re.sub(rf"[\s().{_DASHES}]", "", text).casefold()


def personal_strings(text: str) -> set[str]:
    """Personal data in a text, in lower case; numbers without blanks and separators."""
    text = plain(text)
    found = {m.group().casefold() for m in _EMAIL.finditer(text)}
    return found | {squeeze(s) for find in (_phones, _cards, _ibans) for s in find(text)}


def _phones(text: str) -> Iterator[str]:
    for match in _PHONE.finditer(text):
        yield match.group()
    rest = _PHONE.sub("+", text)
    for match in _MOBILE.finditer(rest):
        before, after = (
            rest[max(0, match.start() - _NEAR) : match.start()],
            rest[match.end() : match.end() + _NEAR],
        )
        if _ABOUT_PHONES.search(before) or _ABOUT_PHONES.search(after):
            yield match.group()


def _cards(text: str) -> Iterator[str]:
    """Cards within runs of digits; where a run has none, the run itself if it could be one."""
    for match in _DIGITS.finditer(text):
        run, found = match.group(), False
        for card in _cards_within(run):
            found = True
            yield card
        digits = re.sub(r"[ -]", "", run)
        if not found and len(digits) in _CARD_DIGITS and digits.isdigit() and _luhn(digits):
            yield run


def _cards_within(run: str) -> Iterator[str]:
    """Neighbouring groups of three and more digits that make the number of an issuer.

    A group behind or before a point may belong to a decimal number, unless the card has points itself.
    """
    groups = list(re.finditer(r"\d+", run))
    for at, head in enumerate(groups):
        digits = ""
        for group in groups[at : at + _CARD_GROUPS]:
            digits += group.group()
            if len(group.group()) < 3 or len(digits) >= _CARD_DIGITS.stop:
                break
            start, end = head.start(), group.end()
            outside = run[max(0, start - 1) : start] + run[end : end + 1]
            if len(head.group()) > 3 and _CARD.fullmatch(digits) and "." not in outside and _luhn(digits):
                yield run[start:end]


def _ibans(text: str) -> Iterator[str]:
    for start in _IBAN_START.finditer(text):
        length = _IBAN_LENGTHS.get(start[1].upper())
        rest = _iban_rest(length).match(text, start.end()) if length else None
        found = start.group() + rest.group() if rest else ""
        if sum(c.isdigit() for c in found) >= _IBAN_DIGITS and _iban(re.sub(r"[^A-Za-z0-9]", "", found)):
            yield found


@cache
def _iban_rest(length: int) -> re.Pattern[str]:
    return re.compile(rf"(?:[ {_DASHES}]?[A-Za-z0-9]){{{length - 4}}}(?![A-Za-z0-9])")


def _luhn(digits: str) -> bool:
    doubled = [int(d) * (1 + i % 2) for i, d in enumerate(reversed(digits))]
    return sum(d - 9 if d > 9 else d for d in doubled) % 10 == 0


def _iban(text: str) -> bool:
    moved = text[4:] + text[:4]
    return int("".join(str(int(c, 36)) for c in moved)) % 97 == 1
