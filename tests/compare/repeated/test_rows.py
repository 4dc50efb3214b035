"""Rows of a table: means, intervals, differences paired by seed, and a choice that never sees the test set."""

import json
from dataclasses import replace

import pytest
from made_rows import made_rows, three_rows

from shoal.compare.repeated.report import latex_of_rows
from shoal.compare.repeated.rows import as_data
from shoal.compare.repeated.table import TUNED, row_legend, row_notes, row_table
from shoal.report.words import page_words

EN, ZH = (page_words(lang, "shoal.compare") for lang in ("en", "zh"))


def test_a_row_is_the_mean_over_its_seeds_with_its_interval(tmp_path):
    rows = three_rows(tmp_path)
    first = rows.rows[0].result("test")
    assert first.mean == pytest.approx(100 * (0.91 + 0.93 + 0.91) / 3)
    # 4.3027 · s / √3, with s of 91, 93 and 91
    assert first.half == pytest.approx(4.3027 * 1.1547 / 3**0.5, rel=1e-4)
    assert [len(row.runs) for row in rows.rows] == [3, 3, 3]


def test_differences_are_paired_by_seed(tmp_path):
    """What a seed does to both rows falls out: the rows overlap widely, and their difference is clear."""
    luck = [0.5, 0.7, 0.9, 0.6]
    rows = made_rows(
        tmp_path,
        {
            "single": [(each, each) for each in luck],
            "better": [(each, each + 0.01 + 0.001 * number) for number, each in enumerate(luck)],
            "worse": [(each, each - 0.01 - 0.001 * number) for number, each in enumerate(luck)],
        },
    )
    assert [rows.verdict(row) for row in rows.rows] == ["reference", "better", "worse"]
    assert rows.difference(rows.rows[1]).mean == pytest.approx(1.15)
    assert rows.rows[1].result("test").half > 20


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ([0.91, 0.92, 0.93], "same"),
        ([0.90, 0.91, 0.92], "undecided"),  # all differ by the same: nothing is known of their scatter
        ([0.95, 0.90, 0.93], "undecided"),
        ([0.95], "undecided"),
    ],
)
def test_an_interval_that_holds_zero_decides_nothing(tmp_path, others, verdict):
    rows = made_rows(
        tmp_path,
        {"single": [(None, each) for each in (0.91, 0.92, 0.93)], "other": [(None, each) for each in others]},
    )
    assert rows.verdict(rows.rows[1]) == verdict


def test_without_a_seed_in_common_there_is_no_difference(tmp_path):
    rows = made_rows(tmp_path, {name: [(None, 0.9), (None, 0.8)] for name in ("single", "other")})
    first, second = rows.rows
    reference, apart = replace(first, runs=first.runs[:1]), replace(second, runs=second.runs[1:])
    assert rows.verdict(second) == "same"
    assert replace(rows, rows=(reference, apart), reference=reference).verdict(apart) == "unknown"


def test_the_best_of_a_sweep_is_chosen_on_the_validation_set_alone(tmp_path):
    rows = three_rows(tmp_path)
    assert [row.name for row in rows.tuned] == ["topk ratio=0.1"]
    header, cells = row_table(rows, EN)
    assert [row[0].endswith(TUNED) for row in cells] == [False, True, False]
    assert float(cells[1][header.index("test accuracy (%)")].split()[0]) < float(
        cells[2][header.index("test accuracy (%)")].split()[0]
    )
    assert TUNED.strip() in row_legend(rows, EN)


def test_without_a_validation_set_nothing_is_chosen_and_a_note_says_so(tmp_path):
    rows = made_rows(
        tmp_path,
        {name: [(None, 0.9), (None, 0.8)] for name in ("single", "topk,ratio=0.1", "topk,ratio=0.01")},
    )
    assert rows.tuned == ()
    assert TUNED.strip() not in latex_of_rows(rows, EN)
    assert any("--validation" in note for note in row_notes(rows, EN))
    assert "validation accuracy (%)" not in row_table(rows, EN)[0]


def test_a_swept_reference_is_the_setting_that_was_chosen(tmp_path):
    rows = made_rows(
        tmp_path,
        {"single,lr=0.1": [(0.5, 0.9)], "single,lr=0.2": [(0.6, 0.8)], "topk,ratio=0.1": [(0.7, 0.7)]},
    )
    assert rows.reference.name == "single lr=0.2"


def test_a_busy_machine_and_missing_seeds_are_noted(tmp_path):
    given = {"single": [(0.9, 0.9), (0.9, 0.9)], "topk": [(0.9, 0.9)]}
    noted = " ".join(row_notes(made_rows(tmp_path, given, topk={"not_scheduled": 0.4}), EN))
    assert "the times of topk" in noted
    assert "Of topk there are fewer than 2 seeds" in noted


def test_without_accuracies_the_loss_decides_and_less_is_better(tmp_path):
    def losses(*values):
        return {
            "test_accuracy": None,
            "validation_accuracy": None,
            "validation_loss": values[0],
            "test_loss": values[0],
        }

    given = {"single": [(0.5, None)], "topk,ratio=0.1": [(0.5, None)], "topk,ratio=0.01": [(0.5, None)]}
    options = {name: losses(value) for name, value in zip(given, (0.3, 0.4, 0.2), strict=True)}
    rows = made_rows(tmp_path, given, **options)
    assert [row.name for row in rows.tuned] == ["topk ratio=0.01"]
    assert "0.2000" in row_table(rows, EN)[1][2]


def test_a_row_is_numbers_for_other_programs(tmp_path):
    rows = three_rows(tmp_path)
    found = as_data(rows.rows[1], rows)
    json.dumps(found)
    assert (found["name"], found["variant"], found["tuned"], found["seeds"]) == (
        "topk ratio=0.1",
        "topk",
        True,
        3,
    )
    assert found["test_accuracy"] == pytest.approx((0.90 + 0.92 + 0.92) / 3)
    assert found["test_accuracy_difference"] == pytest.approx(-0.01 / 3)
    assert found["bytes_sent"] == 40_000


def test_the_table_is_latex_in_both_languages(tmp_path):
    rows = three_rows(tmp_path)
    for words in (EN, ZH):
        text = latex_of_rows(rows, words)
        assert r"topk ratio=0.1 $\dagger$ &" in text
        assert r"$\pm$" in text
        assert "†" not in text


@pytest.mark.parametrize("words", [EN, ZH], ids=["en", "zh"])
def test_a_row_with_a_run_that_failed_has_no_numbers_and_is_never_chosen(tmp_path, words):
    """Its other seed is better than all others."""
    rows = made_rows(
        tmp_path,
        {
            "single": [(0.90, 0.91), (0.92, 0.93)],
            "topk,ratio=0.1": [(0.89, 0.90), (0.92, 0.92)],
            "topk,ratio=0.9": [(0.99, 0.99)],
        },
        {"topk,ratio=0.9,seed=1": "the loss is nan", "topk,ratio=0.9,seed=2": "the loss is inf"},
    )
    assert [row.name for row in rows.rows] == ["single", "topk ratio=0.1"]
    assert [row.name for row in rows.tuned] == ["topk ratio=0.1"]
    _, cells = row_table(rows, words)
    assert cells[-1] == ["topk ratio=0.9", *["–"] * (len(cells[0]) - 1)]
    (note,) = row_notes(rows, words)
    assert "topk,ratio=0.9,seed=1" in note
    assert "the loss is nan" in note
    assert "topk ratio=0.9 & -- & --" in latex_of_rows(rows, words)
