"""A template of one's own: a file, tried when it is loaded, part of the judge's identity."""

from pathlib import Path
from typing import Any

import pytest

from axiomrm.errors import ConfigError
from axiomrm.rm import RewardModel
from axiomrm.rm.prompt import JudgePrompter
from axiomrm.rm.templating import FOLDER, load_template, parse_template

DEFAULT = (FOLDER / "default.j2").read_text(encoding="utf-8")


def changed(old: str, new: str) -> str:
    assert old in DEFAULT
    return DEFAULT.replace(old, new)


def test_a_file_of_ones_own_is_used_and_is_another_judge(
    tmp_path: Path, tiny_llama: Any, tiny_tokenizer: Any
) -> None:
    path = tmp_path / "mine.j2"
    path.write_text(changed("To check: ", "Consider: "), encoding="utf-8")
    mine = RewardModel.from_model(tiny_llama, tiny_tokenizer, template=str(path))
    shipped = RewardModel.from_model(tiny_llama, tiny_tokenizer)
    assert mine.prompter is not None and shipped.prompter is not None
    assert mine.prompter.fingerprint["template_hash"] != shipped.prompter.fingerprint["template_hash"]
    assert mine.judge_revision != shipped.judge_revision
    copy = tmp_path / "copy.j2"
    copy.write_text(DEFAULT, encoding="utf-8")
    same = JudgePrompter(tiny_tokenizer, template=str(copy)).fingerprint
    assert same["template_hash"] == shipped.prompter.fingerprint["template_hash"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{{ ask }}", "{{ asks }}", "unknown variable 'asks'"),
        ("{{ label.text }}", "{{ label.txt }}", "block 'question' cannot be rendered.*'txt'"),
        ("{{ item.ask }}", "{{ item.question }}", "block 'joint' cannot be rendered.*'question'"),
        ("{{ mode }}", "{{ mode | shout }}", "No filter named 'shout'"),
        ("{{ mode }}", "{{ mode.upper( }}", "unexpected"),
        ("{{ mode }}", "{{ mode.__class__.__mro__ }}", "cannot be rendered"),
        ("{{ mode }}", "{{ 1 // 0 }}", "cannot be rendered"),
        ("<data {{ nonce }}>", "<recording>", r"block 'open' must print '<data \{\{ nonce \}\}>'"),
        ("</data {{ nonce }}>", "</data>", r"block 'close' must print '</data \{\{ nonce \}\}>'"),
        ("To check: {{ ask }}", "To check.", r"block 'question' must print '\{\{ ask \}\}'"),
        (
            "Look at turn {{ turn }}.\n",
            "Look at turn {{ turn }}.{{ '' -}}\n",
            "'look' must end in a line break",
        ),
        ("{% block look %}", "{% block watch %}", "missing block 'look'"),
    ],
)
def test_what_is_wrong_with_a_template_shows_at_load(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"prompt template 'mine': .*{message}|{message}"):
        parse_template(changed(old, new), "mine")


def test_files_that_are_no_templates(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shipped are"):
        load_template(str(tmp_path / "absent.j2"))
    latin = tmp_path / "latin.j2"
    latin.write_bytes("Prüfe".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.j2.*utf-8"):
        load_template(str(latin))


def test_both_shipped_templates_pass_their_own_check() -> None:
    for name in ("default", "compact"):
        load_template(name).require("joint")


def test_the_single_question_of_the_shipped_templates_is_what_judges_were_trained_on(
    tiny_tokenizer: Any,
) -> None:
    from axiomrm.data.trajectory import Message, Trajectory
    from axiomrm.rm.prompt import Criterion

    talk = Trajectory(messages=(Message(role="user", content="hi"), Message(role="assistant", content="yo")))
    prompt = JudgePrompter(None).render(talk, Criterion("c", "Is it so?"), 0, "critique", nonce="gamu")
    assert prompt.messages[1]["content"] == (  # type: ignore[union-attr]
        "<data gamu>\n[t1 user] hi\n[t1 assistant] yo\n</data gamu>\nLook at turn 1.\nTo check: Is it so?\n"
        "Labels: Y = yes; N = no; X = the recording does not tell\nMode: notes\nWrite exactly this, then stop:\n"
        'notes: <what speaks for and against>\nquote t<turn>: "<words copied from it>"\nverdict[gamu]=<label>'
    )
