"""Personal data by patterns and checksums: what must be found, what looks like it and must not."""

import time

import pytest

from axiomrm.data.pii import personal_strings, plain, squeeze

CARD, IBAN = "4111111111111111", "de89370400440532013000"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("My card is 4111 1111 1111 1111, thanks", CARD),
        ("card 4111 1111 1111 1111 12/27", CARD),  # with its end
        ("4111 1111 1111 1111 123", CARD),  # with its check digits
        ("4111 1111 1111 1111 12/27 123", CARD),
        ("Order 7 4111 1111 1111 1111", CARD),
        ("12-05 4111-1111-1111-1111", CARD),
        ("卡号4111111111111111有效期", CARD),
        ("4111.1111.1111.1111", CARD),
        ("4111\u20131111\u20131111\u20131111", CARD),
        ("4111\u00a01111\u00a01111\u00a01111", CARD),
        ("4111\u200b1111\u200b11111111", CARD),
        ("Amex 3782 822463 10005 1234", "378282246310005"),
        ("6212 3456 7890 0000 003 987", "6212345678900000003"),
        ("1234567812345670", "1234567812345670"),  # of no issuer, but the sum is right
        ("IBAN DE89 3704 0044 0532 0130 00", IBAN),
        ("IBAN DE89 3704 0044 0532 0130 00 BIC COBADEFFXXX", IBAN),
        ("DE89370400440532013000 BIC COBADEFF", IBAN),
        ("de89 3704 0044 0532 0130 00 please", IBAN),
        ("账号DE89370400440532013000请", IBAN),
        ("GB82 WEST 1234 5698 7654 32 and more", "gb82west12345698765432"),
        ("write to Jane.Roe+x@corp.example.", "jane.roe+x@corp.example"),
        ("您的邮箱alice@example.com", "alice@example.com"),
        ("我的邮箱是alice@example.com。", "alice@example.com"),
        ("发到alice@example.com谢谢", "alice@example.com"),
        ("alice＠example.com", "alice@example.com"),
        ("schreib an José@example.com", "josé@example.com"),
        ("jose\u0301@example.com", "josé@example.com"),  # the accent is a character of its own
        ("jürgen@müller.example", "jürgen@müller.example"),
        ("почта: иван@почта.рф", "иван@почта.рф"),
        ("γράψε στη μαρία@example.gr", "μαρία@example.gr"),
        ("ali\u00adce@exam\u200bple.com", "alice@example.com"),
        ("call 555-123-4567 now", "5551234567"),
        ("+1 (555) 123-4567", "+15551234567"),
        ("电话+49 151 2345 6789", "+4915123456789"),
        ("电话13812345678", "13812345678"),
        ("手机号：138 1234 5678", "13812345678"),
        ("my phone is 13812345678", "13812345678"),
    ],
)
def test_personal_data_is_found_whatever_stands_beside_it(text: str, found: str) -> None:
    assert personal_strings(text) == {found}


@pytest.mark.parametrize(
    "text",
    [
        "the total is 1234 5678 9012 3456",  # Luhn sum is wrong
        "4111 1111 1111 1112 12/27",
        "0.4111111111111111",  # the rest of a decimal
        "12.4111111111111111 s",
        "4111 1111 1111 1111.5",
        "DE89 3704 0044 0532 0130 01",  # checksum is wrong
        "DE89370400440532013000X",  # longer than one of Germany
        "no12 monkeys in a row",
        "react@18.2.0 and root@10.0.0.1",
        "order 13812345678 is on its way",
        "0.13812345678",
        "version 1.2.3, 2026-03-01, 12:30, 1,000,000 rows, 10 20 30 40 50",
        "550e8400-e29b-41d4-a716-446655440000",
    ],
)
def test_what_only_looks_like_it_is_left_alone(text: str) -> None:
    assert personal_strings(text) == set()


def test_two_in_one_run_of_digits_are_both_found() -> None:
    found = personal_strings("4111 1111 1111 1111 5500 0000 0000 0004")
    assert found == {CARD, "5500000000000004"}


def test_plain_text_is_normal_and_without_characters_that_nobody_sees() -> None:
    assert plain("ｐreg\u00adna\u200bnt") == "pregnant"
    assert squeeze("(0)171\u2013234-56.78 X") == "01712345678x"


@pytest.mark.parametrize(
    "unit",
    [
        "1 ",
        "4",
        "4111 ",
        "411 ",
        "a@",
        "a.",
        "b.1",
        "+123 456 ",
        "DE89 3704 ",
        "13812345678 ",
        "电话138",
        "\ufdfa",
    ],
)
def test_the_time_grows_with_the_length_alone(unit: str) -> None:
    text = "a@" + unit * ((1 << 18) // len(unit))
    start = time.process_time()
    personal_strings(text)
    assert time.process_time() - start < 3
