"""Figures of repeated comparisons: what is drawn against which cost, in which colours, and where the front runs."""

import re

import numpy as np
import pytest
from made_rows import made_rows, three_rows

from shoal.compare.repeated.figures import MOST_STYLES, _curves, figures, front, progress
from shoal.compare.repeated.report import Trained, judged_rows
from shoal.compare.variants import Variant
from shoal.report.words import page_words

EN, ZH = (page_words(lang, "shoal.compare") for lang in ("en", "zh"))


def texts(drawing):
    return re.findall(r"<text[^>]*>([^<]*)</text>", drawing.wide_svg)


def test_progress_is_steps_seconds_and_bytes_until_each_validation(tmp_path):
    rows = three_rows(tmp_path)
    found = progress(rows.rows[1])
    assert found.shape == (3, 2, 4)
    assert found[0, :, 0].tolist() == [20, 40]
    assert found[0, :, 1] == pytest.approx([0.2, 0.4], rel=0.02)
    assert found[0, :, 2] == pytest.approx([0.02, 0.04])  # 1000 bytes in each step of each worker
    assert found[:, 1, 3] == pytest.approx([89, 92, 91])


def test_seeds_that_stopped_at_different_epochs_are_drawn_as_far_as_all_went(tmp_path):
    rows = made_rows(tmp_path, {"single": [(0.8, 0.8), (0.9, 0.9)]})
    assert progress(rows.rows[0]).shape[1] == 2
    longer = rows.rows[0].runs[0].run.validations * 2
    object.__setattr__(rows.rows[0].runs[0].run, "validations", longer)
    assert progress(rows.rows[0]).shape[1] == 2


def test_panels_name_every_row_and_leave_out_one_worker_where_bytes_are_the_cost(tmp_path, svg_alone):
    drawings, columns = figures(three_rows(tmp_path), EN)
    assert list(columns) == ["progress-steps", "progress-time", "progress-bytes", "front-time", "front-bytes"]
    shown = texts(drawings["progress"])
    assert {"single", "topk ratio=0.1", "topk ratio=0.01", "steps", "training time (s)"} <= set(shown)
    assert shown.count("validation accuracy (%)") == 1
    alone, _ = figures(made_rows(tmp_path / "alone", {"single": [(0.8, 0.8)]}), EN)
    assert "sent by a worker (MB)" not in texts(alone["progress"])


def test_a_curve_by_bytes_begins_where_a_row_has_sent_some(tmp_path):
    rows = three_rows(tmp_path)
    run = rows.rows[1].runs[0].run
    object.__setattr__(run, "validations", ({"step": 0, "accuracy": 0.1}, *run.validations))
    for other in rows.rows[1].runs[1:]:
        object.__setattr__(other.run, "validations", ({"step": 0, "accuracy": 0.1}, *other.run.validations))
    assert progress(rows.rows[1])[:, 0, 2].tolist() == [0, 0, 0]
    _, _, (cost, panel) = _curves(rows, EN)
    assert (cost, [line.style.label for line in panel.lines]) == (
        "bytes",
        ["topk ratio=0.1", "topk ratio=0.01"],
    )
    assert [line.x.tolist() for line in panel.lines] == [pytest.approx([0.02, 0.04])] * 2


def test_with_many_rows_the_reference_and_the_chosen_ones_have_bands(tmp_path):
    def banded(folder, values):
        given = {f"topk,ratio={value}": [(0.5 + value / 100, 0.5), (0.5, 0.5)] for value in values}
        rows = made_rows(folder, {"single": [(0.9, 0.9), (0.8, 0.8)], **given})
        (_, panel), *_ = _curves(rows, EN)
        return [line.style.label for line in panel.lines if line.low is not None]

    assert banded(tmp_path / "few", [1, 2]) == ["single", "topk ratio=1", "topk ratio=2"]
    assert banded(tmp_path / "many", [1, 2, 3, 4]) == ["single", "topk ratio=4"]


def test_without_a_validation_set_there_is_no_figure(tmp_path):
    assert figures(made_rows(tmp_path, {"single": [(None, 0.9)]}), EN) == ({}, {})


def test_of_many_rows_the_chosen_ones_have_curves_and_a_variant_one_kind_of_point(tmp_path, svg_alone):
    many = {f"topk,ratio={number}": [(0.5 + number / 100, 0.5)] for number in range(1, MOST_STYLES + 1)}
    drawings, _ = figures(made_rows(tmp_path, {"single": [(0.9, 0.9)], **many}), EN)
    named = [text for text in texts(drawings["progress"]) if text.startswith(("topk", "single"))]
    assert named == ["single", f"topk ratio={MOST_STYLES}"]
    assert [text for text in texts(drawings["front"]) if text.startswith(("topk", "single"))] == [
        "single",
        "topk",
    ]


def test_the_front_has_the_rows_that_no_other_beats_in_both():
    ends = [(1.0, 5.0), (2.0, 4.0), (3.0, 7.0), (3.0, 6.0), (4.0, 7.0)]
    assert front(ends, 1) == [(1.0, 5.0), (3.0, 7.0)]
    assert front(ends, -1) == [(1.0, 5.0), (2.0, 4.0)]
    draw = np.random.default_rng(0)
    for _ in range(50):
        ends = [tuple(each) for each in draw.integers(0, 6, (8, 2)).tolist()]
        beaten = [
            any(c <= cost and v >= value and (c, v) != (cost, value) for c, v in ends) for cost, value in ends
        ]
        assert set(front(ends, 1)) == {
            end for end, is_beaten in zip(ends, beaten, strict=True) if not is_beaten
        }


@pytest.mark.parametrize("words", [EN, ZH], ids=["en", "zh"])
def test_the_page_has_the_table_the_figures_and_every_run(tmp_path, words, svg_alone):
    rows = three_rows(tmp_path / "runs")
    runs = [run.run.folder.path for row in rows.rows for run in row.runs]
    variants = [
        Variant(run.name, run.config, row=row.name.replace(" ", ","), swept_from=row.swept_from)
        for row in rows.rows
        for run in row.runs
    ]
    judged_rows(Trained(runs, {}), variants, tmp_path / "page", "shoal compare x --seeds 3", words)
    files = {
        str(path.relative_to(tmp_path / "page")) for path in (tmp_path / "page").rglob("*") if path.is_file()
    }
    assert {"report.html", "report.md", "tables/rows.csv", "tables/runs.csv", "figures/progress.png"} <= files
    assert len([name for name in files if name.endswith(".pdf")]) == 5
    page = (tmp_path / "page/report.md").read_text(encoding="utf-8")
    assert "| topk ratio=0.1 † |" in page
    assert all(str(run) in page for run in runs)
    assert "{" not in page
