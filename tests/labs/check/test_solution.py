"""Students of a class, some of them hostile: each gets the marks of the tasks that work, and nothing is harmed."""

import csv
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hand_ins import HARMFUL, HARMLESS, OPTIMIZER, five, hand_in, tricksters

from shoal.cli.main import main
from shoal_labs.check.sandbox.task import Answer
from shoal_labs.check.solution import find_file

COURSE = ("zero_grad", "gd_step", "sgd_step", "adam_state", "adam_step")
FIVE = {"right", "unfinished", "course", "misspelt", "empty"}
ALL = {*COURSE, "batches", "train_step"}


@pytest.fixture(scope="module")
def teacher(request):
    """A folder outside of those for temporary files, with a file in it."""
    with TemporaryDirectory(dir=request.config.cache.mkdir("teacher")) as folder:
        Path(folder, "secret").write_text("x")
        yield Path(folder)


@pytest.fixture(scope="module")
def graded(tmp_path_factory, teacher):
    """The command in the folder of a student whose files have the names of modules; a teacher's files and sockets."""
    root = tmp_path_factory.mktemp("hand-ins")
    folders = five(root) | tricksters(root, teacher)
    before, out = contents(root), tmp_path_factory.mktemp("out")
    flags = ["--work-s", "5", "--memory-gib", "1", "--jobs", "2"]
    flags += ["--csv", str(out / "grades.csv"), "--pages", str(out / "pages")]
    with socket.socket(socket.AF_UNIX) as named, socket.socket(socket.AF_UNIX) as nameless:
        for listener, address in ((named, f"{teacher}/socket"), (nameless, f"\0{teacher}")):
            listener.bind(address)
            listener.listen()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "shoal", "lab", "check", "1", *map(str, folders.values()), *flags],
            cwd=root / "shadows",
            env={**os.environ, "HOME": str(teacher), "TOKEN": "x"},
            capture_output=True,
            text=True,
            timeout=1200,
        )
    assert (out / "grades.csv").exists(), done.stdout + done.stderr
    with (out / "grades.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    left = {path.name for path in teacher.iterdir()} - {"secret", "socket"}
    return done, rows, out, contents(root) == before, left


def contents(root):
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def words(row):
    return {task: row[task] for task in ALL}


@pytest.mark.timeout(1200)
def test_every_folder_has_a_row_and_a_page(graded):
    done, rows, out, *_ = graded
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0), done.stderr
    assert len(rows) > 30
    assert {path.stem for path in (out / "pages").glob("*.html")} == {*rows, "index"}


def test_nothing_outside_and_no_folder_was_changed_and_no_process_is_left(graded):
    *_, unchanged, left = graded
    assert unchanged
    assert left <= {".config", ".cache"}  # of matplotlib, which draws the class page
    names = (path.read_text() for path in Path("/proc").glob("[0-9]*/comm"))
    assert "left-behind\n" not in set(names)


def test_right_and_unfinished(graded):
    rows = graded[1]
    assert set(words(rows["right"]).values()) == {"right"}
    assert rows["right"]["mark (%)"] == "100.0"
    assert set(words(rows["unfinished"]).values()) == {"open"}
    assert rows["unfinished"]["mark (%)"] == "0.0"


def test_the_courses_shape_is_accepted_as_it_is(graded):
    row = graded[1]["course"]
    assert set(words(row).values()) == {"right"}, row["faults"]
    assert row["mark (%)"] == "100.0"


def test_a_trick_harms_no_more_than_the_task_that_does_it(graded):
    rows = {name: row for name, row in graded[1].items() if name not in FIVE}
    assert HARMLESS.keys() | HARMFUL.keys() < rows.keys()
    for trick, row in rows.items():
        _, fault = HARMFUL.get(trick, ("", ""))
        wanted = dict.fromkeys(COURSE, "right") | ({"gd_step": "wrong"} if fault else {})
        assert {task: row[task] for task in COURSE} == wanted, (trick, row["faults"])
        assert re.search(fault, row["faults"]), (trick, row["faults"])


def test_a_missing_class_is_not_done(graded):
    row = graded[1]["misspelt"]
    assert (row["adam_state"], row["adam_step"]) == ("open", "open")
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
    assert {path.stem for path in (tmp_path / "pages").iterdir()} == {"good", shown, "index"}
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == ["good", shown]


def test_a_sandbox_that_fails_gives_no_mark_and_the_next_folder_is_marked(tmp_path, capsys, monkeypatch):
    folders = [hand_in(tmp_path / name) for name in ("an", "bo", "cy")]
    table = tmp_path / "grades.csv"

    def answers(tasks, jobs):
        for task in tasks:
            fails = task.folder.name == "bo"
            yield Answer((), failure="mount: No space") if fails else Answer(((),) * len(task.checks))

    monkeypatch.setattr("shoal_labs.check.solution.answers", answers)
    arguments = ["--csv", str(table), "--pages", str(tmp_path / "pages"), "--json"]
    assert main(["lab", "check", "1", *map(str, folders), *arguments]) == 2
    printed = capsys.readouterr()
    assert "bo" in printed.err
    assert [each["percent"] for each in json.loads(printed.out)] == [100, None, 100]
    with table.open(encoding="utf-8-sig", newline="") as file:
        rows = {row["student"]: row for row in csv.DictReader(file)}
    assert {name: row["mark (%)"] for name, row in rows.items()} == {
        "an": "100.0",
        "bo": "not_marked",
        "cy": "100.0",
    }
    assert rows["bo"]["gd_step"] == "not_marked"
    assert "mount: No space" in rows["bo"]["faults"]
    assert "not marked" in (tmp_path / "pages" / "bo.html").read_text()


@pytest.mark.parametrize(
    "given",
    [
        [["no_such_fault", {}]],
        [["raises", {}]],
        [["wrong_loss", {"given": "x", "loss": 1}]],
        [["raises", {"error": "x" * 10**6}]],
        [["no_sandbox", {"why": "x"}]],
        [["right", [1]]],
    ],
)
def test_faults_that_no_check_of_ours_has_count_as_a_process_that_died(tmp_path, capsys, monkeypatch, given):
    def answers(tasks, jobs):
        for number, task in enumerate(tasks):
            plain = Answer(((),) * len(task.checks)).to_plain()
            yield Answer.from_plain(plain | {"faults": [given]} if number == 1 else plain)

    monkeypatch.setattr("shoal_labs.check.solution.answers", answers)
    assert main(["lab", "check", "1", str(hand_in(tmp_path)), "--json"]) == 1
    (result,) = json.loads(capsys.readouterr().out)
    assert [task["verdict"] for task in result["tasks"]] == ["right", "wrong", *["right"] * 5]


def test_links_and_pipes_in_a_folder_are_not_opened(tmp_path, capsys):
    good, rings, linked, pipes = (tmp_path / name for name in ("good", "rings", "linked", "pipes"))
    hand_in(good)
    for folder in (rings, pipes):
        folder.mkdir()
    for name in ("MyOptimizer.py", "model.py"):
        os.mkfifo(pipes / name)
    for number in range(200):
        (rings / str(number)).symlink_to(".")
    (linked / OPTIMIZER).parent.mkdir(parents=True)
    (linked / OPTIMIZER).symlink_to(good / OPTIMIZER)
    assert main(["lab", "check", "1", *map(str, (rings, linked, pipes, good)), "--json"]) == 1
    results = json.loads(capsys.readouterr().out)
    assert [each["percent"] for each in results] == [0, 0, 0, 100]


@pytest.mark.parametrize("place", [".", "hand-in", "a/b/c/d"])
def test_a_file_is_found_in_folders_below(tmp_path, place):
    file = tmp_path / place / "MyOptimizer.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    assert find_file("1", tmp_path, file.name) == file
