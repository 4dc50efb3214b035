"""Who owns what, as a table that fits and as a figure that repeats."""

import io
import xml.etree.ElementTree as ElementTree

import matplotlib.image
import numpy as np
import pytest

from shoal.report.ownership import Ownership, as_text, draw_ownership


def owned(lists, labels=None, num_samples=None):
    lists = [np.array(own, dtype=np.int64) for own in lists]
    num_samples = num_samples or sum(map(len, lists))
    codes = np.array(labels if labels is not None else [], dtype=np.int64)
    names = sorted(set(codes.tolist()))
    histogram = np.array([[int((codes[own] == name).sum()) for name in names] for own in lists]).reshape(
        len(lists), -1
    )
    whole = np.array([int((codes == name).sum()) for name in names])
    return Ownership(
        "six samples",
        num_samples,
        lists,
        names,
        histogram,
        whole,
        [0.25] * len(lists),
        coverage=1.0,
        overlap=0.125,
    )


SIX = owned([[0, 1, 2, 3], [4, 5]], labels=[3, 3, 3, 7, 7, 7])


def test_the_table_has_samples_parts_skew_and_a_number_for_each_label():
    assert as_text(SIX, width=80).splitlines()[2:6] == [
        "worker  samples  of all  skew  label  3  7",
        "     0        4  66.7 %  0.25         3  1",
        "     1        2  33.3 %  0.25         ·  2",
        " whole        6                       3  3",
    ]


def test_coverage_and_overlap_stand_below():
    text = as_text(SIX, width=80)
    assert "coverage 100.0 %" in text
    assert "overlap   12.5 %" in text


def test_where_there_is_no_room_for_numbers_there_are_bars_and_then_neither():
    many = owned([range(60), range(60, 120)], labels=[number % 40 for number in range(120)])
    bars = as_text(many, width=80).splitlines()
    assert bars[2].endswith("labels")
    assert len(bars[3]) == len("     0       60  50.0 %  0.25   ") + 40
    assert max(map(len, bars[2:6])) <= 80
    assert as_text(many, width=40).splitlines()[3] == "     0       60  50.0 %  0.25"


def test_without_labels_there_is_nothing_about_them():
    text = as_text(owned([[0, 1], [2]]), width=80)
    assert text.splitlines()[2:5] == [
        "worker  samples  of all",
        "     0        2  66.7 %",
        "     1        1  33.3 %",
    ]
    assert "skew" not in text


def test_many_workers_are_cut_short_above_the_whole():
    lines = as_text(owned([[rank] for rank in range(50)], labels=[0] * 50), width=80).splitlines()
    assert lines[2 + 1 + 40] == "… and 10 more"
    assert lines[2 + 1 + 41].split() == ["whole", "50", "50"]


def test_a_worker_without_samples_has_no_skew():
    row = as_text(owned([[0, 1], []], labels=[0, 1]), width=80).splitlines()[4]
    assert row.split() == ["1", "0", "0.0", "%", "–", "·", "·"]


def test_the_picture_is_a_picture_and_grows_with_the_workers():
    few, many = (
        matplotlib.image.imread(
            io.BytesIO(draw_ownership(owned([[rank] for rank in range(size)], labels=[0] * size), "png"))
        )
        for size in (2, 20)
    )
    assert few.shape[1] == many.shape[1]
    assert few.shape[0] < many.shape[0]
    assert few[..., :3].min() < 0.5


def test_the_svg_is_well_formed_repeats_and_keeps_its_words_as_words():
    first, again = (draw_ownership(SIX, "svg") for _ in range(2))
    assert first == again
    words = "".join(ElementTree.fromstring(first).itertext())
    assert all(word in words for word in ("six samples", "worker", "label", "samples"))


@pytest.mark.parametrize(
    ("lists", "labels", "kind", "start"),
    [([[0]], None, "png", b"\x89PNG"), ([[], [0]], [5], "pdf", b"%PDF")],
)
def test_the_smallest_divisions_can_be_drawn(lists, labels, kind, start):
    assert draw_ownership(owned(lists, labels), kind).startswith(start)
