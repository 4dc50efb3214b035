"""`shoal report` as a user runs it."""

from pathlib import Path

import pytest

from shoal.cli.browser import open_page
from shoal.cli.main import main

TINY = "--data synthetic --data.samples 64 --data.shape 1,4,4 --model mlp --model.hidden 8 --epochs 1 --threads 1"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_finished_run_has_its_page(here, capsys):
    assert main(["train", *TINY.split(), "--batch-size", "8", "--name", "it", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["report", "runs/it", "--out", "page", "--lang", "zh"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-2:] == ["page/report.html", "next  shoal compare runs/it/config.toml"]
    assert any(line.split()[0] == "测试准确率" for line in shown)
    assert (here / "page" / "report.html").exists()


def test_the_page_is_opened_where_there_is_a_display(here, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda address: not opened.append(address))
    monkeypatch.setattr("sys.platform", "linux")
    (here / "a page.html").touch()
    for display in ("", ":0"):
        monkeypatch.setenv("DISPLAY", display)
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        open_page(Path("a page.html"))
    assert opened == [f"file://{here}/a%20page.html"], "only once: with the display"
    assert opened[0] in capsys.readouterr().err, "without it, the address is shown"


def test_the_timeline_is_shown_without_a_page_also_of_a_damaged_run(here, monkeypatch, capsys):
    flags = "--batch-size 8 --strategy ddp --workers 2 --launcher threads --name it --quiet"
    assert main(["train", *TINY.split(), *flags.split()]) == 0
    capsys.readouterr()
    (here / "runs" / "it" / "result.json").unlink()
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["report", "runs/it", "--timeline"]) == 0
    shown = capsys.readouterr()
    assert [line.split()[:2] for line in shown.out.splitlines()[1:3]] == [["rank", "0"], ["rank", "1"]]
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "\033" not in shown.out, "no terminal, no colours"
    assert not shown.err
    assert not (here / "reports").exists()
    (here / "runs" / "it" / "events.rank1.jsonl").unlink()
    assert main(["report", "runs/it", "--timeline", "--lang", "zh"]) == 0
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert "events.rank1.jsonl" in shown.err
    assert main(["report", "runs/it", "--timeline", "--out", "page"]) == 2
    assert "--out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("prepare", "sentence"), [(None, "no run folder runs/it"), ("empty", "runs/it is not a run folder")]
)
def test_what_is_no_run_is_refused(here, prepare, sentence, capsys):
    if prepare:
        (here / "runs" / "it").mkdir(parents=True)
    for flags in ([], ["--timeline"]):
        assert main(["report", "runs/it", *flags]) == 2
        assert sentence in capsys.readouterr().err
    assert not (here / "reports").exists()
