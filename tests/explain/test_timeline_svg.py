"""The drawing of a schedule: every action, nothing outside the picture, both themes."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from shoal.explain.pipeline import explain_schedule
from shoal.explain.timeline_svg import WIDTH, TimelineWords, as_drawing, draw_timeline
from shoal.report.svg import for_page
from shoal.strategies.pipeline.schedule import Action, ActionKind
from shoal.strategies.pipeline.schedules import SCHEDULES
from shoal.strategies.pipeline.timing import TimedAction

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (4, 8), (5, 12)])
def test_every_action_is_drawn_inside_the_picture(name, stages, microbatches):
    explanation = explain_schedule(name, stages, microbatches)
    drawing = ElementTree.fromstring(as_drawing(explanation))
    hovers = [each.text.partition(":")[0] for each in drawing.iter(f"{SVG}title") if each.text]
    expected = [str(action) for row in explanation.schedule.compute_rows for action in row]
    assert set(hovers) == set(expected)
    assert len(hovers) >= len(expected)  # an action that is folded is drawn in two parts
    width, height = map(float, drawing.attrib["viewBox"].split()[2:])
    assert width == WIDTH
    for box in drawing.iter(f"{SVG}rect"):
        assert float(box.get("x", 0)) + float(box.attrib["width"]) <= width
        assert float(box.get("y", 0)) + float(box.attrib["height"]) <= height


def test_labels_fit_into_their_boxes():
    drawing = ElementTree.fromstring(as_drawing(explain_schedule("zero-bubble", 4, 12)))
    labelled = [group for group in drawing.iter(f"{SVG}g") if group.find(f"{SVG}text") is not None]
    assert len(labelled) == 4 * 12 * 3
    for group in labelled:
        box, label = group.find(f"{SVG}rect"), group.find(f"{SVG}text")
        assert len(label.text) * 0.6 * float(label.attrib["font-size"]) <= float(box.attrib["width"])


def test_a_file_has_a_dark_theme_and_a_page_its_own():
    svg = as_drawing(explain_schedule("1f1b", 4, 8))
    assert "prefers-color-scheme: dark" in svg
    used = set(re.findall(r'(?:fill|stroke)="(#\w+)"', svg))
    assert used == set(re.findall(r'\[(?:fill|stroke)="(#\w+)"\]', svg)), "a colour without a dark one"
    assert "var(--figure-forward, #dbeafe)" in for_page(svg)
    assert "<style" not in for_page(svg)


def test_measured_times_are_drawn_in_the_words_given():
    rows = [
        [TimedAction(Action(ActionKind.FORWARD, 0), 0.0, 12.5)],
        [TimedAction(Action(ActionKind.FORWARD, 0), 13.2, 25.7)],
    ]
    words = TimelineWords({ActionKind.FORWARD: "前向"}, idle="空闲", stage="阶段 {}", time="毫秒")
    svg = draw_timeline(rows, "实测", words=words)
    for word in ("实测", "F 前向", "空闲", "阶段 1", "毫秒", "F0: 13.2 to 25.7"):
        assert word in svg
