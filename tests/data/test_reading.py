"""Reading chat logs: variants of every kind of fault that the public cases stand for, and properties."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axiomrm.data import ReadResult, Rejected, Trajectory, stream_trajectories
from axiomrm.errors import DataError

USER = {"role": "user", "content": "q"}
REPLY = {"role": "assistant", "content": "r"}
GOOD = json.dumps({"messages": [USER, REPLY]})


def read(tmp_path: Path, *lines: str | bytes, name: str = "log.jsonl") -> ReadResult[Trajectory]:
    raw = [line if isinstance(line, bytes) else line.encode("utf-8", "surrogatepass") for line in lines]
    path = tmp_path / name
    path.write_bytes(b"\n".join(raw) + b"\n")
    return Trajectory.read(path)


def load(tmp_path: Path, *messages: Any, **fields: Any) -> Trajectory:
    result = read(tmp_path, json.dumps({"messages": list(messages), **fields}))
    assert result.rejected == []
    return result[0]


def reason(tmp_path: Path, line: str | bytes) -> str:
    """Why ``line`` is rejected; its neighbours must load."""
    result = read(tmp_path, GOOD, line, GOOD)
    assert [t.id for t in result] == ["log.jsonl:1", "log.jsonl:3"]
    (rejected,) = result.rejected
    assert (rejected.file, rejected.line) == (str(tmp_path / "log.jsonl"), 2)
    return rejected.reason


def why_not(tmp_path: Path, *messages: Any, **fields: Any) -> str:
    return reason(tmp_path, json.dumps({"messages": list(messages), **fields}))


@pytest.mark.parametrize(
    ("line", "mentions"),
    [
        ("12", "a number"),
        ("true", "a boolean"),
        ('"text"', "a string"),
        ('[{"role": "user", "content": "q"}]', "a list"),
        ("{}", "'messages'"),
        ('{"conversations": [{"from": "human", "value": "hi"}]}', "ShareGPT"),
        ('{"messages": []}', "at least one message"),
        ('{"messages": "hi"}', "messages: expected a list"),
        ('{"messages": [3]}', "messages[0]"),
        ('{"messages": [{"content": "no role"}]}', "messages[0].role"),
        ('{"messages": [{"role": "human", "content": "x"}]}', "'human'"),
        ('{"messages": [{"role": ["user"], "content": "x"}]}', "messages[0].role"),
        ('{"messages": [{"role": "user"}]}', "messages[0].content"),
        ('{"messages": [{"role": "user", "content": {"text": "x"}}]}', "messages[0].content"),
        ('{"messages": [{"role": "user", "content": "x", "name": 3}]}', "messages[0].name"),
        ('{"messages": [{"role": "user", "content": "x"}], "messages": []}', "'messages' stands twice"),
        ('{"messages": [{"role": "user", "content": "x"}', "not valid JSON"),
        ("{'messages': []}", "not valid JSON"),
        (GOOD + GOOD, "not valid JSON"),
        (GOOD[:-1] + ', "metadata": {"x": Infinity}}', "Infinity"),
        (GOOD[:-1] + ', "metadata": {"x": -1e999}}', "-1e999"),
        (GOOD[:-1] + ', "metadata": []}', "metadata"),
        (GOOD[:-1] + ', "metadata": {"x": ' + "9" * 5000 + "}}", "JSON"),
        (GOOD[:-1] + ', "metadata": {"x": ' + "[" * 200 + "]" * 200 + "}}", "nested deeper"),
        (GOOD[:-1] + ', "metadata": {"x": ' + "[" * 100_000 + "]" * 100_000 + "}}", "nested deeper"),
        (GOOD[:-1] + ', "task": {"id": 3}}', "task: id"),
        (GOOD[:-1] + ', "task": {"ID": "x"}}', "task: ID"),
        (GOOD[:-1] + ', "tools": {"name": "f"}}', "tools"),
        (GOOD[:-1] + ', "id": {"oid": "7"}}', "id: expected text"),
        (GOOD[:-1] + ', "outcome": "passed"}', "outcome"),
        (GOOD[:-1] + ', "outcome": {"score": "1"}}', "outcome.score"),
    ],
)
def test_a_bad_record_is_rejected_with_its_reason(tmp_path: Path, line: str, mentions: str) -> None:
    assert mentions in reason(tmp_path, line)


@pytest.mark.parametrize(
    ("raw", "mentions"),
    [
        (GOOD.replace('"q"', '"café"').encode("latin-1"), "0xe9"),
        (GOOD.encode()[:20] + b"\xff\xfe" + GOOD.encode()[20:], "0xff"),
        (GOOD.encode().replace(b'"q"', b'"\xed\xa0\xbd"'), "UTF-8"),  # a surrogate encoded as CESU-8
        (GOOD.encode().replace(b'"q"', b'"\xf0\x9f\x98"'), "UTF-8"),  # an emoji cut in its bytes
        (b"\x00" * 64, "not valid JSON"),  # what a crashed machine leaves in a file
    ],
)
def test_a_line_that_is_not_utf8_takes_no_neighbour_along(tmp_path: Path, raw: bytes, mentions: str) -> None:
    assert mentions in reason(tmp_path, raw)


def test_files_joined_with_their_byte_order_marks_load(tmp_path: Path) -> None:
    marked = b"\xef\xbb\xbf" + GOOD.encode()
    assert len(read(tmp_path, marked, marked)) == 2


def test_utf16_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(GOOD, encoding="utf-16")
    (rejected,) = Trajectory.read(path).rejected
    assert "UTF-16" in rejected.reason


@pytest.mark.parametrize("where", ['"messages": [{"role": "user", "content": "\\udc00"}]', '"\\ud83d": 1'])
def test_a_lone_surrogate_is_found_wherever_it_is(tmp_path: Path, where: str) -> None:
    line = (
        "{"
        + where
        + (', "messages": [{"role": "user", "content": "x"}]}' if "messages" not in where else "}")
    )
    assert "surrogate" in reason(tmp_path, line)


def test_a_lone_surrogate_inside_argument_text_is_found(tmp_path: Path) -> None:
    call = {"id": "c", "function": {"name": "f", "arguments": '{"x": "\\ud83d"}'}}
    assert "surrogate" in why_not(tmp_path, USER, {"role": "assistant", "tool_calls": [call]})


def test_a_whole_emoji_written_as_two_escapes_is_text(tmp_path: Path) -> None:
    result = read(tmp_path, '{"messages": [{"role": "user", "content": "\\ud83d\\ude00"}]}')
    assert result[0].messages[0].content == "😀"


@pytest.mark.parametrize("mark", ["\u2028", "\u2029", "\x85", "\x1c", "\x0b"])
def test_only_a_line_feed_ends_a_line(tmp_path: Path, mark: str) -> None:
    line = json.dumps({"messages": [{"role": "user", "content": f"a{mark}b"}]}, ensure_ascii=False)
    escaped = line.replace("\x1c", "\\u001c").replace(
        "\x0b", "\\u000b"
    )  # control characters JSON wants escaped
    result = read(tmp_path, escaped + "\r", "", "   \r", escaped)
    assert [t.messages[0].content for t in result] == [f"a{mark}b"] * 2
    assert [t.id for t in result] == ["log.jsonl:1", "log.jsonl:4"]


def test_the_half_written_line_is_pointed_out_only_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"{GOOD}\n{GOOD[:-9]}\n{GOOD}\n{GOOD[:-9]}")
    middle, last = Trajectory.read(path).rejected
    assert "half-written" not in middle.reason and "half-written" in last.reason


def test_a_complete_last_line_needs_no_line_end(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(GOOD)
    assert len(Trajectory.read(path)) == 1


@pytest.mark.parametrize("content", [None, "missing"])
@pytest.mark.parametrize("role", ["assistant", "tool"])
def test_absent_content_is_no_text(tmp_path: Path, content: str | None, role: str) -> None:
    message = {"role": role} if content == "missing" else {"role": role, "content": None}
    assert load(tmp_path, USER, message).messages[1].content == ""


def test_a_refusal_is_what_was_said_where_there_is_no_content(tmp_path: Path) -> None:
    message = load(tmp_path, USER, {"role": "assistant", "content": None, "refusal": "No."}).messages[1]
    assert (message.content, message.extra) == ("No.", {"refusal": "No."})


def test_parts_are_joined_and_pictures_leave_a_mark(tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    parts = [{"type": "text", "text": "Hel"}, "lo ", picture, {"type": "thinking", "thinking": "hm"}]
    message = load(tmp_path, {"role": "user", "content": parts}).messages[0]
    assert message.content == "Hello [image_url]"
    assert message.extra["content_parts"] == parts


@pytest.mark.parametrize(
    "part", [{"type": "tool_use", "name": "f"}, {"text": "x"}, {"type": "text"}, 7, None]
)
def test_a_part_that_is_not_understood_is_never_dropped(tmp_path: Path, part: Any) -> None:
    assert "messages[0].content[1]" in why_not(
        tmp_path, {"role": "user", "content": [{"type": "text", "text": "a"}, part]}
    )


@pytest.mark.parametrize(
    ("content", "text"),
    [({"left": 4}, '{"left": 4}'), ([1, "é"], '[1, "é"]'), (3.5, "3.5"), (False, "false")],
)
def test_a_tool_result_that_is_not_text_is_kept_as_json(tmp_path: Path, content: Any, text: str) -> None:
    assert load(tmp_path, USER, {"role": "tool", "content": content}).messages[1].content == text


@pytest.mark.parametrize(
    ("arguments", "parsed", "raw"),
    [
        ({"x": 1}, {"x": 1}, None),
        ('{"x": 1}', {"x": 1}, None),
        ('"{\\"x\\": 1}"', {"x": 1}, None),  # encoded twice
        ("", {}, None),
        (" \n", {}, None),
        (None, {}, None),
        ("null", {}, None),
        ("{}", {}, None),
        ('{"x": 1', {}, '{"x": 1'),
        ('{"x": NaN}', {}, '{"x": NaN}'),
        ('{"x": 1e999}', {}, '{"x": 1e999}'),
        ('{"x": 1, "x": 2}', {}, '{"x": 1, "x": 2}'),
        ("SELECT 1", {}, "SELECT 1"),
        ("[1, 2]", {}, "[1, 2]"),
        ([1, 2], {}, "[1, 2]"),
        ('{"n": 12345678901234567890123}', {"n": 12345678901234567890123}, None),
    ],
)
def test_arguments_of_every_provider(
    tmp_path: Path, arguments: Any, parsed: dict[str, Any], raw: str | None
) -> None:
    nested = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    flat = {"id": "c1", "name": "f", "arguments": arguments}
    message = load(tmp_path, USER, {"role": "assistant", "tool_calls": [nested, flat]}).messages[1]
    assert [(c.name, c.id, c.arguments, c.raw_arguments) for c in message.tool_calls] == [
        ("f", "c1", parsed, raw)
    ] * 2


@pytest.mark.parametrize(
    ("calls", "place"),
    [
        ({"name": "f"}, "tool_calls"),
        (["f"], "tool_calls[0]"),
        ([{"id": "c"}], "tool_calls[0].name"),
        ([{"function": {"name": ""}}], "tool_calls[0].name"),
        ([{"name": "f", "id": 1.5}], "tool_calls[0].id"),
    ],
)
def test_a_call_that_cannot_be_read_is_named(tmp_path: Path, calls: Any, place: str) -> None:
    assert f"messages[1].{place}" in why_not(tmp_path, USER, {"role": "assistant", "tool_calls": calls})


def test_both_forms_of_a_call_count_once(tmp_path: Path) -> None:
    call = {"name": "f", "arguments": "{}"}
    both = {
        "role": "assistant",
        "content": None,
        "function_call": call,
        "tool_calls": [{"id": "1", "function": call}],
    }
    message = load(tmp_path, USER, both).messages[1]
    assert [c.id for c in message.tool_calls] == ["1"]
    assert message.extra == {"function_call": call}
    none = {"role": "assistant", "content": "x", "function_call": None, "tool_calls": None}
    assert load(tmp_path, USER, none).messages[1].tool_calls == ()


def test_a_missing_reward_or_outcome_is_never_a_number(tmp_path: Path) -> None:
    one = load(tmp_path, USER, REPLY, turn_rewards=[None], outcome={"score": None, "metrics": {"cost": 2}})
    assert one.turn_rewards is not None and math.isnan(one.turn_rewards[0])
    assert one.outcome is not None and one.outcome.score is None and one.outcome.metrics == {"cost": 2}
    nan = read(tmp_path, GOOD[:-1] + ', "outcome": {"score": NaN}}')[0]
    assert nan.outcome is not None and nan.outcome.score is None
    assert load(tmp_path, USER, REPLY).outcome is None


@pytest.mark.parametrize("rewards", [[], [1, 2], [True], ["1"], 1, {"0": 1}])
def test_rewards_that_do_not_fit_the_turns_are_rejected(tmp_path: Path, rewards: Any) -> None:
    assert why_not(tmp_path, USER, REPLY, turn_rewards=rewards).startswith("turn_rewards")


def test_what_the_log_adds_is_kept(tmp_path: Path) -> None:
    fields = {
        "model": "m",
        "metadata": {"model": "n", "k": 1},
        "task": "book",
        "outcome": {"score": True, "why": "x"},
    }
    one = load(tmp_path, USER, REPLY, id=7, functions=[{"name": "f"}], **fields)
    assert one.metadata == {"model": "n", "k": 1, "log.model": "m", "task": "book"}
    assert one.outcome is not None and (one.outcome.score, one.outcome.metrics) == (1.0, {"why": "x"})
    assert one.id == "7"
    assert one.tools == ({"type": "function", "function": {"name": "f"}},)


@pytest.mark.parametrize(
    ("text", "loaded"),
    [
        (f"[{GOOD},\n{GOOD}]", ["log.json:1", "log.json:2"]),
        ("[]", []),
        (json.dumps(json.loads(GOOD), indent=2), ["log.json:1"]),
        (json.dumps([USER, REPLY]), ["log.json:1"]),
        (f"{GOOD}\n{GOOD}\n", ["log.json:1", "log.json:2"]),
    ],
)
def test_a_json_document_is_read_too(tmp_path: Path, text: str, loaded: list[str]) -> None:
    (tmp_path / "log.json").write_text(text)
    result = Trajectory.read(tmp_path / "log.json")
    assert [t.id for t in result] == loaded and not result.rejected


def test_a_bad_element_of_a_document_keeps_its_line(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(f'[{GOOD},\n\n null, {GOOD},\n{{"messages": []}}]')
    result = Trajectory.read(tmp_path / "log.json")
    assert [t.id for t in result] == ["log.json:1", "log.json:3"]
    assert [r.line for r in result.rejected] == [3, 4]


def test_a_missing_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.jsonl: cannot be read"):
        Trajectory.read(tmp_path / "absent.jsonl")
    with pytest.raises(DataError, match="cannot be read"):
        Trajectory.read(tmp_path)


def test_streaming_reads_no_further_than_asked(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(f"{GOOD}\nbad\n{GOOD}\n")
    rejected: list[Rejected] = []
    stream = stream_trajectories(tmp_path / "log.jsonl", rejected)
    assert next(stream).id == "log.jsonl:1" and rejected == []
    assert next(stream).id == "log.jsonl:3" and [r.line for r in rejected] == [2]


def test_what_a_prefix_holds_is_cut_with_the_messages(tmp_path: Path) -> None:
    one = load(tmp_path, USER, REPLY, USER, REPLY, turn_rewards=[0.25, 0.5])
    assert one.until(0).turn_rewards == (0.25,) and len(one.until(0).messages) == 3
    assert one.before(1).turn_rewards == (0.25,) and one.until(1).turn_rewards == (0.25, 0.5)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
"""What may stand in a record."""


@given(
    value=json_values, place=st.sampled_from(["messages", "task", "outcome", "tools", "id", "turn_rewards"])
)
def test_any_value_anywhere_is_loaded_or_rejected_and_harms_no_other(
    tmp_path_factory: pytest.TempPathFactory, value: Any, place: str
) -> None:
    line = json.dumps({"messages": [USER, REPLY], place: value})
    result = read(tmp_path_factory.mktemp("any"), GOOD, line, GOOD)
    assert len(result) + len(result.rejected) == 3 and len(result) >= 2


@given(st.binary(max_size=60))
def test_any_bytes_are_loaded_or_rejected(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    result = read(tmp_path_factory.mktemp("bytes"), GOOD, raw.replace(b"\n", b" "), GOOD)
    assert [t.id for t in result] == ["log.jsonl:1", "log.jsonl:3"]
    assert len(result.rejected) == bool(raw.replace(b"\n", b" ").strip())
