import importlib.util
import itertools
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from axiomrm.eval.estimate import NOT_MEASURED, Estimate, wilson
from axiomrm.eval.report import points, render_report, show, show_signed, write_report
from axiomrm.eval.report_data import (
    Headline,
    JudgeRow,
    ReportData,
    Transcript,
    TranscriptMessage,
    TranscriptTurn,
)
from axiomrm.eval.svg import Row, Series, dot_chart, line_chart

VOID = {"meta", "link", "br", "img", "hr", "input"}


def _sample() -> ReportData:
    path = Path(__file__).with_name("sample_report.py")
    spec = importlib.util.spec_from_file_location("sample_report", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    filled: ReportData = module.filled()
    return filled


@pytest.fixture(scope="module")
def sample() -> ReportData:
    return _sample()


@pytest.fixture(scope="module")
def page(sample: ReportData) -> str:
    return render_report(sample)


class Nesting(HTMLParser):
    """Checks that every tag is closed in order; collects text and addresses."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.addresses: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [
            v or "" for k, v in attrs if k in ("src", "href", "action", "srcset", "data", "xlink:href")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)


def parse(page: str) -> Nesting:
    parser = Nesting()
    parser.feed(page)
    assert parser.open == []
    return parser


def text(page: str) -> str:
    return re.sub(r"\s+", " ", " ".join(parse(page).words))


def test_the_page_is_well_formed_and_asks_for_nothing_outside(page: str) -> None:
    parsed = parse(page)
    assert all(address.startswith("#") for address in parsed.addresses) and parsed.addresses
    assert "script" not in parsed.tags and "link" not in parsed.tags and "iframe" not in parsed.tags
    assert "default-src 'none'" in page and "url(" not in page and "@import" not in page


def test_every_part_of_the_run_is_on_the_page(page: str) -> None:
    shown = text(page)
    for words in (
        "Untrained base",
        "Bradley–Terry",
        "Relational criteria",
        "reports_tool_result",
        "Equal quality",
        "The profile carries the gain",
        "process + replay",
        "> 640 (1 of 1 never)",
        "Was RL worth it?",
        "Best of 8 + SFT",
        "redundant step rate",
        "track_order · task h000",
        "failed: truncated",
        "oracle: no",
        "axiomrm run configs/quickstart.yaml",
        "6 missing",
    ):
        assert words in shown, words


def test_numbers_on_the_page_are_those_of_the_data(sample: ReportData, page: str) -> None:
    assert sample.worth is not None and sample.personal is not None
    success, gain = sample.worth.rows[2].success, sample.personal.gain
    for estimate in (success, sample.judges[3].relational):
        assert estimate.value is not None and estimate.low is not None and estimate.high is not None
        assert f"{100 * estimate.value:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]" in text(
            page
        )
    assert gain.value is not None and f"{100 * gain.value:+.1f} points" in text(page)


def test_text_from_the_run_is_escaped(page: str, sample: ReportData) -> None:
    assert "It is A-1042 &lt;b&gt;please&lt;/b&gt; &amp; hurry" in page
    evil = "</style><script>alert(1)</script>\"'>"
    message = TranscriptMessage(role="user", content=evil, calls=(evil,))
    transcript = Transcript(title=evil, policy=evil, why=evil, turns=(TranscriptTurn(messages=(message,)),))
    everywhere = sample.model_copy(
        update={
            "run": evil,
            "summary": evil,
            "judges": (JudgeRow(label=evil, note=evil),),
            "transcripts": (transcript,),
            "criteria": {evil: next(iter(sample.criteria.values()))},
            "curves": tuple(c.model_copy(update={"label": evil}) for c in sample.curves),
            "notes": (evil,),
            "provenance": {evil: evil},
            "headlines": (Headline(label=evil, estimate=NOT_MEASURED, note=evil),),
        }
    )
    assert "script" not in parse(render_report(everywhere)).tags


def test_an_empty_run_shows_that_nothing_was_measured_and_no_zero() -> None:
    page = render_report(ReportData(run="empty", headlines=(Headline(label="x", estimate=NOT_MEASURED),)))
    shown = text(page)
    assert shown.count("Not measured in this run.") == 7
    assert "not measured" in shown and "svg" not in parse(page).tags
    assert not re.search(r"\b0(\.0)?\s*%", shown)


def test_a_number_shows_its_interval_and_what_is_missing() -> None:
    assert text(show(wilson(8, 10, missing=2))) == "80.0 % [49.0, 94.3] n = 10 2 missing"
    assert text(show(Estimate(value=0.5, n=1))) == "50.0 % no interval n = 1"
    assert text(show(NOT_MEASURED)) == text(show_signed(NOT_MEASURED)) == "not measured"
    assert (
        text(show_signed(Estimate(value=-0.1234, low=-0.2, high=0.0, n=40))) == "−12.3 points [−20.0, +0.0]"
    )
    assert points(-0.0001) == "+0.0"


def test_a_missing_point_breaks_the_line_and_is_not_drawn() -> None:
    values = [(0, wilson(1, 10)), (10, NOT_MEASURED), (20, wilson(3, 10)), (30, wilson(4, 10))]
    chart = str(line_chart([Series("a", values)], x_label="x", y_label="y"))
    assert chart.count("<circle") == 3
    path = re.search(r'd="([^"]+)"', chart)
    assert path is not None and path.group(1).count("M") == 2 and path.group(1).count("L") == 1
    assert line_chart([Series("a", [(0, NOT_MEASURED)])], x_label="x", y_label="y") == ""
    assert dot_chart([Row("a", (NOT_MEASURED,))], ["x"]) == ""


def test_a_dot_stands_where_its_value_is() -> None:
    chart = str(dot_chart([Row("a", (Estimate(value=0.25, low=0.0, high=0.5),))], ["s"]))
    x = float(re.findall(r'<circle class="dot s0" cx="([\d.]+)"', chart)[-1])
    whisker = re.search(r'class="whisker s0" x1="([\d.]+)" y1="[\d.]+" x2="([\d.]+)"', chart)
    assert whisker is not None
    low, high = map(float, whisker.groups())
    assert x == pytest.approx((low + high) / 2, abs=0.1)
    assert low == 230.0 and high - low == pytest.approx((760 - 230 - 28) / 2, abs=0.1)


def test_labels_of_lines_that_end_together_do_not_overlap() -> None:
    series = [Series(n, [(0, wilson(1, 10)), (1, wilson(5, 10))]) for n in ("a", "b", "c")]
    chart = str(line_chart(series, x_label="x", y_label="y"))
    places = sorted(float(y) for y in re.findall(r'<text class="end s\d" x="[\d.]+" y="([\d.]+)"', chart))
    assert len(places) == 3 and min(b - a for a, b in itertools.pairwise(places)) >= 15


@pytest.mark.parametrize("x_max", [1, 7, 20, 64, 640, 1280, 5000, 123456])
def test_ticks_of_any_range_are_few_and_round(x_max: int) -> None:
    chart = str(
        line_chart([Series("a", [(0, wilson(1, 10)), (x_max, wilson(2, 10))])], x_label="x", y_label="y")
    )
    ticks = re.findall(r'class="tick"[^>]*text-anchor="middle">([^<]+)<', chart)
    assert 2 <= len(ticks) <= 7


def test_the_report_appears_whole_and_data_survives_json(sample: ReportData, tmp_path: Path) -> None:
    path = write_report(sample, tmp_path / "report.html")
    assert path.read_text(encoding="utf-8") == render_report(sample)
    again = ReportData.model_validate_json(sample.model_dump_json())
    assert render_report(again) == render_report(sample)
