"""Marks from verdicts, in the table and on the page."""

import csv
import io
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.report.html import to_html
from shoal_labs.check.fault import fault
from shoal_labs.check.marks import grade, load_weights, names_of
from shoal_labs.check.pages import student_page, to_csv, write_pages
from shoal_labs.check.solution import Checked, checks_of, verdicts_of
from shoal_labs.words import load_words

FOLDER = Path("/in/=cmd")
TWO_FAULTS = (fault("upwards"), fault("raises", error="NameError: \x1b[2J <b>"))


def graded(lang="en", absent=(), **faults):
    """Our verdicts on a folder of Lab 1 whose other tasks are right."""
    checks = checks_of("1")
    gone = (fault("missing_name", file="model.py", name="train_step"),)
    found = [gone if each.tasks[0] in absent else faults.get(each.tasks[0], ()) for each in checks]
    verdicts = verdicts_of(checks, FOLDER, [None] * len(checks), found)
    words = load_words("shoal_labs.lab1", lang)
    weights = {**load_weights(None, "1"), "gd_step": 2.0}
    return grade(Checked(FOLDER, verdicts), "=cmd", weights, words), words


def test_marks_are_the_weights_of_right_tasks():
    assert graded()[0].percent == 100
    wrong = graded(gd_step=TWO_FAULTS)[0]
    assert (wrong.mark, wrong.most) == (6, 8)
    assert not wrong.all_right


def test_tasks_that_the_courses_hand_out_has_not_count_only_if_one_of_them_is_there():
    course = graded(absent=("batches", "train_step"))[0]
    assert (course.mark, course.most, course.all_right) == (6, 6, True)
    ours = graded(absent=("train_step",))[0]
    assert (ours.mark, ours.most, ours.all_right) == (7, 8, False)


def test_a_spreadsheet_gets_text_and_no_formula():
    row = next(csv.DictReader(io.StringIO(to_csv([graded(gd_step=TWO_FAULTS)[0]]).removeprefix("\ufeff"))))
    assert row["student"] == "'=cmd"
    assert (row["mark (%)"], row["gd_step"], row["gd_step (points)"]) == ("75.0", "wrong", "0")
    assert "against it" in row["faults"]
    assert "NameError" in row["faults"]


@pytest.mark.parametrize(("lang", "title"), [("en", "Lab 1: =cmd"), ("zh", "实验 1：=cmd")])
def test_the_page_has_every_fault_and_obeys_none(lang, title):
    result, words = graded(lang, gd_step=TWO_FAULTS)
    html = to_html(student_page("1", result, words))
    assert title in html
    assert "75 %" in html.replace("\u00a0", " ")
    assert html.count("<li>") == 2
    assert words.sentences["task.gd_step"].partition("w")[0] in html  # what the task asks
    assert "\x1b" not in html
    assert "NameError: \\x1b[2J &lt;b&gt;" in html


def test_names_are_where_the_paths_differ():
    assert names_of([Path("/in/an/task1"), Path("/in/bo/task1"), Path("/in/bo/old")]) == [
        "an-task1",
        "bo-task1",
        "bo-old",
    ]


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        (("li-wei", "li/wei"), ["li-wei-2", "li-wei"]),
        (("li/wei", "li-wei"), ["li-wei", "li-wei-2"]),  # the same names in another order
        (("an", "An", "AN"), ["an-3", "An-2", "AN"]),
        (("a-b", "a/b", "a-b-2"), ["a-b-3", "a-b", "a-b-2"]),  # a name of its own is not taken from anybody
        (("J\u00fcrgen", "Ju\u0308rgen"), ["J\u00fcrgen-2", "Ju\u0308rgen"]),
        ((os.fsdecode(b"\xd5"), r"\udcd5"), [r"\udcd5-2", r"\udcd5"]),
    ],
)
def test_no_two_folders_get_one_page(folders, names):
    assert names_of([Path("/in", folder) for folder in folders]) == names


def test_points_and_lines_count_the_same_tasks():
    result, words = graded(adam_state=(fault("adam_eps_inside", size=1e-4),))
    assert [task.word for task in result.tasks] == [
        "right",
        "right",
        "right",
        "right",
        "wrong",
        "right",
        "right",
    ]
    assert (result.mark, result.most) == (7, 8)  # gd_step weighs 2
    assert "6 of 7 tasks" in result.summary(words)


def test_parts_that_are_right_give_their_share():
    result, _ = graded(batches=(fault("gd_batches", optimizer="gd", batches=2, samples=50),))
    (batches,) = [task for task in result.tasks if task.name == "batches"]
    assert (batches.word, round(batches.mark, 3)) == ("partly", 0.667)
    assert not result.all_right
    nothing, _ = graded(batches=(fault("died"),))
    assert nothing.tasks[5].mark == 0


def test_an_error_costs_the_task_in_which_it_is_and_later_ones_are_not_tested():
    for functions, found in (
        ("step", ["right", "wrong"]),
        ("helper,__init__", ["wrong", "not_asked"]),
        ("", ["wrong", "wrong"]),
    ):
        result, _ = graded(adam_state=(fault("raises", error="NameError: x", functions=functions),))
        assert [task.word for task in result.tasks[3:5]] == found


def test_a_class_has_a_page_with_the_marks_the_errors_and_a_link_for_each_student(tmp_path):
    names = {"index": {"gd_step": TWO_FAULTS}, "an": {"gd_step": TWO_FAULTS[:1]}, "bo": {}}
    grades = [replace(graded(**faults)[0], name=name) for name, faults in names.items()]
    *students, about_all = write_pages(tmp_path, "1", grades, graded()[1])
    assert [path.stem for path in students] == list(names)
    html = about_all.read_text()
    assert re.findall('href="(.*?)"', html) == [f"{name}.html" for name in names]
    assert "<strong>75\u00a0%</strong>" in html  # the median
    counts = re.findall(r'<td class="number[^>]*>(\d)</td><td>gd_step</td>', html)
    assert counts == ["2", "1"]
    assert "against it" in html
    assert len(write_pages(tmp_path / "one", "1", grades[:1], graded()[1])) == 1


def test_tasks_count_one_each_unless_the_file_says_otherwise(tmp_path):
    path = tmp_path / "weights.toml"
    path.write_text("[lab1]\nadam_step = 3\nzero_grad = 0.5\n[lab2]\ntrain_step = 9\n")
    weights = load_weights(path, "1")
    assert (weights["adam_step"], weights["zero_grad"], weights["gd_step"]) == (3.0, 0.5, 1.0)
    assert set(load_weights(None, "1").values()) == {1.0}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[lab1]\nadam_stp = 3\n", "adam_step"),
        ("[lab9]\nx = 1\n", "lab9"),
        ("[lab1]\nadam_step = -1\n", "adam_step = -1 is not a weight"),
        ("[lab1]\nadam_step = nan\n", "is not a weight"),
        ("[lab1]\nadam_step = true\n", "is not a weight"),
        ("[lab1]\nadam_step = '3'\n", "is not a weight"),
        ("adam_step = 3\n", "not in the table of a lab"),
        ("[lab1\n", "not valid TOML"),
        ("".join(["[lab1]\n", *(f"{task} = 0\n" for task in load_weights(None, "1"))]), "all weights are 0"),
    ],
)
def test_a_bad_file_is_refused_with_one_sentence(tmp_path, content, sentence):
    path = tmp_path / "weights.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=sentence):
        load_weights(path, "1")
    with pytest.raises(ConfigError, match="cannot read"):
        load_weights(tmp_path / "none.toml", "1")
