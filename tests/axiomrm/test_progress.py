import io

from rich.console import Console

from axiomrm.progress import Bar, Lines, headline


def test_plain_lines_are_few() -> None:
    lines: list[str] = []
    now = 0.0
    reporter = Lines(lines.append, clock=lambda: now)
    reporter.started("policy", 2, 3, resumed=False)
    for step in range(1, 31):
        now += 1.0
        reporter.advanced("policy", "iteration", step, 30)
    reporter.advanced("policy", "iteration", 31, None)
    reporter.finished("policy", {"success": 0.5, "name": "x"}, 31.0)
    assert lines == [
        "[2/3] policy: started",
        "  policy: iteration 10/30",
        "  policy: iteration 20/30",
        "  policy: iteration 30/30",
        "  policy: done in 31.0 s · success 0.5",
    ]


def test_a_bar_leaves_lines_and_takes_text_literally() -> None:
    out = io.StringIO()
    bar = Bar(Console(file=out, force_terminal=True, width=100))
    bar.started("rm_general", 1, 1, resumed=True)
    bar.advanced("rm_general", "[red]not markup", 3, 10)
    bar._progress.refresh()  # otherwise a timer's business
    bar.finished("rm_general", {}, 2.0)
    bar.close()
    text = out.getvalue()
    assert "rm_general: goes on where it was stopped" in text and "rm_general: done in 2.0 s" in text
    assert "[red]not markup" in text


def test_a_missing_number_does_not_appear_in_the_headline() -> None:
    assert headline({"a": None, "b": True, "c": 2, "d": 0.12345}) == " · c 2 · d 0.123"
