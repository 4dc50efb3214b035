"""Twelve students at once, some of them hostile: each gets the marks of the tasks that work, and nothing is harmed."""

import csv
import json
import os

import pytest
from hand_ins import hand_in, twelve

from shoal.cli.main import main
from shoal.labs.check.sandbox.task import Answer

ALL = {"zero_grad", "gd_step", "sgd_step", "adam_state+adam_step", "batches", "train_step"}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    root = tmp_path_factory.mktemp("hand-ins")
    outside = tmp_path_factory.mktemp("teacher") / "grades.txt"
    folders = twelve(root, outside)
    before = contents(root)
    out = tmp_path_factory.mktemp("out")
    arguments = [
        "--work-s",
        "10",
        "--jobs",
        "2",
        "--csv",
        str(out / "grades.csv"),
        "--pages",
        str(out / "pages"),
    ]
    code = main(["lab", "check", "1", *map(str, folders.values()), *arguments])
    with (out / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    return code, rows, out, contents(root) == before and not outside.exists()


def contents(root):
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def words(row):
    return {task: row[task] for task in ALL}


@pytest.mark.timeout(600)
def test_every_folder_has_a_row_and_a_page(graded):
    code, rows, out, _ = graded
    assert code == 1
    assert len(rows) == 12
    assert {path.stem for path in (out / "pages").glob("*.html")} == set(rows)


def test_nothing_outside_and_no_folder_was_changed(graded):
    assert graded[3]


def test_right_and_unfinished(graded):
    rows = graded[1]
    assert set(words(rows["right"]).values()) == {"right"}
    assert rows["right"]["mark (%)"] == "100.0"
    assert set(words(rows["unfinished"]).values()) == {"open"}
    assert rows["unfinished"]["mark (%)"] == "0.0"


def test_the_courses_shape_is_accepted_as_it_is(graded):
    row = graded[1]["course"]
    assert {task for task, word in words(row).items() if word == "not_asked"} == {"batches", "train_step"}
    assert set(words(row).values()) == {"right", "not_asked"}, row["faults"]
    assert row["mark (%)"] == "100.0"


@pytest.mark.parametrize(
    ("student", "task", "sentence"),
    [
        ("loops", "gd_step", "timed out"),
        ("forks", "sgd_step", "timed out"),
        ("writes", "adam_state+adam_step", "Read-only file system|No such file"),
        ("steals", "gd_step", "No module named 'stolen'"),
        ("crashes", "gd_step", "the process died"),
        ("kills", "sgd_step", "No such process"),
        ("eats", "adam_state+adam_step", "MemoryError"),
    ],
)
def test_a_hostile_folder_gets_its_other_tasks_marked(graded, student, task, sentence):
    row = graded[1][student]
    assert {name for name, word in words(row).items() if word != "right"} == {task}, row["faults"]
    assert row[task] == "wrong"
    assert any(each in row["faults"] for each in sentence.split("|")), row["faults"]


def test_a_missing_class_is_not_done(graded):
    row = graded[1]["misspelt"]
    assert row["adam_state+adam_step"] == "open"
    assert "MyOptimizer.py has no AdamOptimizer" in row["faults"]
    assert row["gd_step"] == "right"
    assert set(words(graded[1]["empty"]).values()) == {"open", "not_asked"}


def test_json_names_every_fault_of_a_task(tmp_path, capsys):
    both = hand_in(
        tmp_path, ("(1 - self.b2**self.steps)", "1"), ("param -= self.lr * m_hat", "param += self.lr * m_hat")
    )
    main(["lab", "check", "1", str(both), "--json"])
    (result,) = json.loads(capsys.readouterr().out)
    (adam,) = [task for task in result["tasks"] if "adam_step" in task["tasks"]]
    assert len(adam["faults"]) == 2
    assert "divide v by" in adam["faults"][0]
    assert "against it" in adam["faults"][1]


def test_a_name_that_is_not_utf8_harms_nobody(tmp_path, capsys):
    """It changes no marks, and the table, the pages and the JSON are written."""
    name, shown = os.fsdecode(b"\xd5\xc5"), r"\udcd5\udcc5"
    good, other = hand_in(tmp_path / "in" / "good"), hand_in(tmp_path / "in" / name)
    table = tmp_path / "grades.csv"
    arguments = ["--json", "--csv", str(table), "--pages", str(tmp_path / "pages")]
    assert main(["lab", "check", "1", str(good), str(other), *arguments]) == 0
    with table.open(encoding="utf-8-sig", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert {student: row["mark (%)"] for student, row in rows.items()} == {"good": "100.0", shown: "100.0"}
    assert rows[shown]["folder"] == str(tmp_path / "in" / shown)
    assert {path.stem for path in (tmp_path / "pages").iterdir()} == {"good", shown}
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["good", shown]


def test_a_sandbox_that_fails_gives_no_mark_and_keeps_the_marks_before_it(tmp_path, capsys, monkeypatch):
    folders = [hand_in(tmp_path / name) for name in ("an", "bo")]
    table = tmp_path / "grades.csv"

    def answers(tasks, jobs):
        for task in tasks:
            fails = task.folder.name == "bo"
            yield Answer((), failure="mount: No space") if fails else Answer(((),) * len(task.checks))

    monkeypatch.setattr("shoal.labs.check.solution.answers", answers)
    assert main(["lab", "check", "1", *map(str, folders), "--csv", str(table)]) == 2
    printed = capsys.readouterr()
    assert f"cannot set up the sandbox for {folders[1]}: mount: No space" in printed.err
    assert "WRONG" not in printed.out
    with table.open(encoding="utf-8-sig", newline="") as file:
        assert [row["student"] for row in csv.DictReader(file)] == ["an"]
