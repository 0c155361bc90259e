"""The metrics that a stage logs and reads back."""

from pathlib import Path

from axiomrm.config import RunConfig
from axiomrm.stage_context import StageContext

SPLITTER = "a\u2028b\x85c"
"""Line ends to str.splitlines, not to JSON."""


def test_metrics_with_line_ends_in_their_names_are_read_back_and_rewound(tmp_path: Path) -> None:
    ctx = StageContext(tmp_path, tmp_path, RunConfig(name="toy"), 0)
    for step in range(3):
        ctx.log_metrics({"step": step, SPLITTER: 0.5})
    ctx.rewind_metrics(lambda row: row["step"] < 2)
    assert ctx.logged_metrics() == [{"step": 0, SPLITTER: 0.5}, {"step": 1, SPLITTER: 0.5}]
