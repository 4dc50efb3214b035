"""`shoal report` as a user runs it."""

import pytest

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
    assert shown[-1] == "page/report.html"
    assert any(line.split()[0] == "测试准确率" for line in shown)
    assert (here / "page" / "report.html").exists()


@pytest.mark.parametrize(
    ("prepare", "sentence"), [(None, "no run folder runs/it"), ("empty", "runs/it is not a run folder")]
)
def test_what_is_no_run_is_refused(here, prepare, sentence, capsys):
    if prepare:
        (here / "runs" / "it").mkdir(parents=True)
    assert main(["report", "runs/it"]) == 2
    assert sentence in capsys.readouterr().err
    assert not (here / "reports").exists()
