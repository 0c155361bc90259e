"""import(export(r)) has the hash of r where the report is empty; it is empty on what a format can say."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from axiomrm.errors import DataError
from axiomrm.rubrics import Rubric
from axiomrm.rubrics.convert import FORMATS, export_rubric, import_rubrics
from axiomrm.rubrics.convert.build import Criterion, activated, build
from axiomrm.rubrics.model import Anchor

WORDS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")) | st.sampled_from("\n\t\u2028:#{}'\"- "),
    min_size=1,
    max_size=25,
).filter(lambda text: bool(text.strip()))
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}(\.[a-z0-9][a-z0-9_]{0,4})?", fullmatch=True)
WEIGHTS = st.floats(min_value=1e-6, max_value=1e6) | st.integers(1, 20).map(float)


@dataclass(frozen=True)
class Says:
    """What a format holds without loss."""

    penalties: bool = False
    names: bool = False
    tags: bool = False
    guidelines: bool = False
    title: bool = False
    grid: int = 0
    """Anchors: 0 none, -1 anywhere, -2 evenly spaced, otherwise multiples of 1/grid."""
    steps: bool = False
    one: bool = False


SAYS = {
    "autorubric": Says(penalties=True, names=True, guidelines=True, grid=-1),
    "healthbench": Says(penalties=True, tags=True),
    "promptfoo": Says(penalties=True, names=True, title=True),
    "verifiers": Says(names=True, grid=-2),
    "auraone": Says(names=True, guidelines=True, title=True, grid=-1),
    "prometheus": Says(one=True, grid=5),
    "rubrichub": Says(penalties=True, tags=True),
    "rar": Says(penalties=True, names=True),
    "geval": Says(names=True, guidelines=True, steps=True, grid=10, one=False),
}


def anchors(grid: int) -> st.SearchStrategy[tuple[Anchor, ...]]:
    def even(n: int) -> tuple[float, ...]:
        return tuple(i / (n - 1) for i in range(n))

    if grid == 5:
        values = st.just(even(5))
    elif grid == -2:
        values = st.integers(2, 7).map(even)
    elif grid == 10:
        values = st.sets(st.integers(1, 9), max_size=5).map(
            lambda s: (0.0, *(v / 10 for v in sorted(s)), 1.0)
        )
    else:
        inner = st.sets(st.integers(1, 999), max_size=5)
        values = inner.map(lambda s: (0.0, *(v / 1000 for v in sorted(s)), 1.0))

    def texted(points: tuple[float, ...]) -> st.SearchStrategy[tuple[Anchor, ...]]:
        texts = st.lists(WORDS, min_size=len(points), max_size=len(points), unique=True)
        return texts.map(
            lambda found: tuple(Anchor(value=v, text=t) for v, t in zip(points, found, strict=True))
        )

    return values.flatmap(texted).filter(lambda found: [a.text for a in found] != ["no", "yes"])


@st.composite
def criteria(draw: st.DrawFn, says: Says) -> Criterion:
    scale: tuple[Anchor, ...] = ()
    if says.grid and (says.one or draw(st.booleans())):
        scale = draw(anchors(says.grid))
    return Criterion(
        statement=draw(WORDS),
        weight=1.0 if says.one or says.steps else draw(WEIGHTS),
        polarity=draw(st.sampled_from(["reward", "penalty"])) if says.penalties else "reward",
        anchors=scale,
        id=draw(NAMES) if says.names and draw(st.booleans()) else "",
        tags=tuple(draw(st.lists(WORDS, max_size=2, unique=True))) if says.tags else (),
    )


@st.composite
def rubrics(draw: st.DrawFn, says: Says) -> Rubric:
    found = draw(st.lists(criteria(says), min_size=1, max_size=1 if says.one else 5))
    extra: dict[str, Any] = {}
    if says.guidelines and draw(st.booleans()):
        steps = draw(
            st.lists(
                st.from_regex(r"[A-Za-z]{1,8}( [a-z]{1,8}){0,3}", fullmatch=True), min_size=1, max_size=3
            )
        )
        extra["guidelines"] = (
            "\n".join(f"{i}. {s}" for i, s in enumerate(steps, 1)) if says.steps else draw(WORDS)
        )
    if says.title and draw(st.booleans()):
        extra["title"] = draw(WORDS)
    if says.title and not says.guidelines and any(c.polarity == "penalty" for c in found):
        extra["scale"] = "signed"
    return Rubric.from_model(activated(build("some_rubric", found, **extra)))


def suffix(name: str) -> str:
    return "x.yaml" if name in ("autorubric", "promptfoo") else "x.json"


@pytest.mark.parametrize("name", FORMATS)
def test_the_import_of_the_export_has_the_same_hash(name: str) -> None:
    seen: list[int] = []

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(rubrics(SAYS[name]))
    def check(rubric: Rubric) -> None:
        text, report = export_rubric(rubric, name)
        assert report.empty, report.text()
        back = import_rubrics(text, name, name=rubric.id, activate=True)
        assert len(back.rubrics) == 1
        loaded = Rubric.from_model(back.rubrics[0].model)
        assert len(loaded.theorems) >= 1
        assert loaded.hash == rubric.hash
        seen.append(len(loaded.theorems))

    check()
    assert len(seen) >= 25


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(rubrics(Says(penalties=True, names=True, tags=True, guidelines=True, title=True, grid=-1)), st.data())
def test_an_empty_report_means_an_equal_hash_for_any_rubric_and_format(
    rubric: Rubric, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(sorted(FORMATS)))
    try:
        text, report = export_rubric(rubric, name)
    except DataError:
        assert name in ("verifiers", "prometheus", "auraone", "geval")  # the only formats that refuse
        return
    back = Rubric.from_model(import_rubrics(text, name, name=rubric.id, activate=True).rubrics[0].model)
    assert (not report.empty) or back.hash == rubric.hash
    assert report.empty or {loss.kind for loss in report.losses} <= {"dropped", "approximated", "inferred"}


LIBRARY = ("support_agent", "general_quality")


@pytest.mark.parametrize("rubric", LIBRARY)
@pytest.mark.parametrize("name", FORMATS)
def test_a_library_rubric_cannot_be_exported_without_a_report(name: str, rubric: str) -> None:
    loaded = Rubric.load(rubric)
    try:
        text, report = export_rubric(loaded, name)
    except DataError as error:
        assert name in ("verifiers", "prometheus")
        assert "penalties" in str(error) or "--criterion" in str(error)
        return
    assert not report.empty
    told = {loss.path for loss in report.losses}
    assert {f"axioms/{a.id}" for a in loaded.axioms} <= told
    assert {f"features/{f}" for f in loaded.features} <= told
    assert {f"theorems/{t.id}" for t in loaded.theorems} <= told
    back = import_rubrics(text, name, name=rubric, activate=True).rubrics[0].model
    assert Rubric.from_model(back).theorems
