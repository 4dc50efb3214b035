import os
import shlex
import signal

import pytest

from shoal.cli.main import main
from shoal_labs.check.solution import Checked


def answer(capsys, *words):
    code = main(["lab", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("words", [(), ("--help",), ("1", "--help")])
def test_the_labs_and_flags_are_listed(capsys, words):
    code, out, _ = answer(capsys, *words)
    assert code == 0
    assert "Gradient descent on one machine" in out
    assert "--quick" in out


def test_an_out_folder_in_use_or_unwritable_is_refused(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "is not empty" in answer(capsys, "1", "--out", str(tmp_path))[2]
    code, _, err = answer(capsys, "1", "--out", str(tmp_path / "file" / "out"))
    assert code == 2
    assert "cannot write the report folder" in err


def test_start_writes_the_skeleton_once(capsys, tmp_path):
    code, out, _ = answer(capsys, "start", "1", "--out", str(tmp_path), "--lang", "zh")
    assert code == 0
    assert str(tmp_path / "task1" / "pytorch" / "MyOptimizer.py") in out.splitlines()
    assert out.splitlines()[-1].endswith(f"shoal lab check 1 {tmp_path} --lang zh")
    assert "实验一" in (tmp_path / "task1" / "README.md").read_text(encoding="utf-8")
    code, _, err = answer(capsys, "start", "1", "--out", str(tmp_path))
    assert code == 2
    assert "exists already" in err


def test_check_says_what_is_open_and_fails(capsys, tmp_path):
    answer(capsys, "start", "3", "--out", str(tmp_path))
    code, out, _ = answer(capsys, "check", "3", str(tmp_path / "task3"), "--lang", "zh")
    assert code == 1
    assert out.count("未完成") == 5  # every task has its line
    assert "正确 0 项" in out
    folder = tmp_path / "task3"
    last = f"next  修改 {folder / 'sampler.py'}，然后  shoal lab check 3 {folder} --lang zh"
    assert out.splitlines()[-1] == last
    assert "Traceback" not in out


@pytest.mark.parametrize(
    ("flag", "place", "why"),
    [
        ("--csv", "nowhere/grades.csv", "No such file or directory"),
        ("--csv", "file/grades.csv", "Not a directory"),
        ("--csv", ".", "it is a folder"),
        ("--pages", "file/pages", "Not a directory"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_marking(
    capsys, tmp_path, monkeypatch, flag, place, why
):
    answer(capsys, "start", "3", "--out", str(tmp_path / "an"))
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("shoal_labs.check.solution.check_folders", lambda *_: pytest.fail("it marked first"))
    code, _, err = answer(capsys, "check", "3", str(tmp_path / "an"), flag, str(tmp_path / place))
    assert code == 2
    assert f"cannot write {tmp_path / place}: {why}" in err
    assert f"Choose another {flag}." in err
    assert {path.name for path in tmp_path.iterdir()} == {"an", "file"}


def test_a_table_that_cannot_be_made_leaves_the_old_one(tmp_path, capsys, monkeypatch):
    answer(capsys, "start", "3", "--out", str(tmp_path / "an"))
    table = tmp_path / "grades.csv"
    table.write_text("last week's")
    monkeypatch.setattr("shoal_labs.check.solution.check_folders", lambda *_: [Checked(tmp_path / "an", ())])
    monkeypatch.setattr("shoal_labs.check.pages.to_csv", lambda _: "half\ud800")
    with pytest.raises(UnicodeEncodeError):
        main(["lab", "check", "3", str(tmp_path / "an"), "--csv", str(table)])
    assert table.read_text() == "last week's"
    assert {path.name for path in tmp_path.iterdir()} == {"an", "grades.csv"}


def test_a_table_may_go_to_a_pipe_and_through_a_link(tmp_path, capsys, monkeypatch):
    answer(capsys, "start", "3", "--out", str(tmp_path / "an"))
    monkeypatch.setattr("shoal_labs.check.solution.check_folders", lambda *_: [Checked(tmp_path / "an", ())])
    link, pipe = tmp_path / "link.csv", tmp_path / "pipe"
    link.symlink_to("real.csv")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    for place in (link, pipe):
        main(["lab", "check", "3", str(tmp_path / "an"), "--csv", str(place)])
    assert b"student" in os.read(reader, 100)
    os.close(reader)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert "student" in (tmp_path / "real.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_lab_with_its_exit_code_and_the_command_that_continues(
    capsys, tmp_path, monkeypatch, number
):
    def interrupted(lab, settings, folder, watch):
        (folder / "runs/one").mkdir(parents=True)
        (folder / "runs/one/result.json").write_text('{"status": "completed"}')
        signal.raise_signal(number)

    monkeypatch.setattr("shoal_labs.frame.run_lab", interrupted)
    out = tmp_path / "a b"
    code, _, err = answer(capsys, "2", "--quick", "--workers", "3", "--out", str(out))
    assert code == 128 + number
    again = shlex.split(err.partition("continue with: ")[2].splitlines()[0])
    assert again[:4] == ["shoal", "lab", "2", "--quick"]
    assert again[again.index("--workers") + 1] == "3"
    assert again[again.index("--runs") + 1] == str(out / "runs")
    assert again[again.index("--out") + 1] == str(tmp_path / "a b-2")
