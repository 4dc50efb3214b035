"""The timeline of a run as a drawing."""

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from made_steps import MS, span, step, two_ranks, write_steps

from shoal.report.timeline import Interval, read_timeline
from shoal.report.timeline_svg import drawings_of, thinned
from shoal.report.words import page_words

SVG = "{http://www.w3.org/2000/svg}"


def drawn(folder, lang="en"):
    """The view of the first step, parsed, in the drawing for a page."""
    wide, _ = drawings_of(read_timeline(folder).steps, page_words(lang))
    return next(
        each for each in ElementTree.fromstring(wide).iter(f"{SVG}svg") if each.get("class") == "timeline"
    )


def test_each_interval_is_a_box_with_its_name_in_its_place(tmp_path):
    view = drawn(two_ranks(tmp_path / "run"))
    boxes = [each for each in view.iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]
    assert float(view.get("data-ms")) == 10
    assert [(each.get("x"), each.get("width")) for each in boxes[:4]] == [
        ("0%", "10%"), ("10%", "40%"), ("50%", "30%"), ("80%", "10%")
    ]  # fmt: skip
    titles = [each.find(f"{SVG}title").text for each in boxes]
    assert titles[2] == "all_reduce: wait, 3.00 ms, from 5.00 ms on"
    assert len({each.get("y") for each in boxes}) == 2, "a row for each worker"


def test_calls_are_joined_and_the_critical_path_is_drawn(tmp_path):
    view = drawn(two_ranks(tmp_path / "run"))
    lines = [each for each in view.iter(f"{SVG}line") if each.get("stroke") != "#d8dce0"]
    joins = [each for each in lines if each.find(f"{SVG}title") is not None]
    assert [(each.get("x1"), each.get("x2")) for each in joins] == [("50%", "80%")]
    assert "rank 1" in joins[0].find(f"{SVG}title").text
    path = [(each.get("x1"), each.get("x2")) for each in lines if each not in joins]
    assert path == [("80%", "100%"), ("0%", "80%"), ("80%", "80%")]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_both_drawings_are_xml_and_as_wide_as_their_pages(lang, tmp_path):
    drawings = drawings_of(read_timeline(two_ranks(tmp_path / "run")).steps, page_words(lang))
    widths = [float(ElementTree.fromstring(svg).get("viewBox").split()[2]) for svg in drawings]
    assert widths == [787, 346]


def test_names_of_others_are_text(tmp_path):
    records = [step(0, [span("<b>&", "compute", 0, 1)], 0.001)]
    (title, *_) = drawn(write_steps(tmp_path / "run", records)).iter(f"{SVG}title")
    assert title.text.startswith("<b>&: compute")


def test_very_many_intervals_are_thinned_and_long_ones_kept():
    edges = [*range(0, 10_000 * MS, MS), 20_000 * MS]
    intervals = [
        Interval(start, end, "wait" if end == edges[-1] else "compute", str(start))
        for start, end in pairwise(edges)
    ]
    kept = thinned(intervals, most=100)
    assert len(kept) <= 200
    assert kept[-1] == intervals[-1]
    assert [each.start_ns for each in kept[1:]] == [each.end_ns for each in kept[:-1]]
    assert (kept[0].start_ns, kept[-1].end_ns) == (0, edges[-1])


def test_the_zoom_of_the_page_needs_nothing_from_outside():
    from importlib import resources

    script = (resources.files("shoal.report") / "timeline.js").read_text(encoding="utf-8")
    assert not re.search(r"https?:|import|fetch|eval|innerHTML", script)
