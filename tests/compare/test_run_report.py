"""The report of one run."""

import pytest

from shoal.compare.comparison import compare
from shoal.compare.run_report import numbers_of, write_run_report
from shoal.config.read import read
from shoal.labs.words import load_words
from shoal.launch.run import launch_run
from shoal.training.observer import Silent

EN = load_words("shoal.compare", "en")
FLAGS = (
    "--data synthetic --data.samples 64 --data.shape 1,4,4 --validation 0.25 --model mlp --model.hidden 8 "
)
FLAGS += "--batch-size 12 --epochs 2 --threads 1 --device cpu"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, more in (("one", ""), ("two", "--strategy ddp --workers 2 --launcher threads")):
        launch_run(read(None, [*f"{FLAGS} {more} --name {name} --runs-dir {folder}".split()]), Silent())
    return folder


@pytest.mark.parametrize("name", ["one", "two"])
def test_the_page_has_everything(runs, name, tmp_path, request):
    if name == "two":
        request.getfixturevalue("without_figures")
    found = compare([runs / name])
    write_run_report(tmp_path, found, EN)
    page = (tmp_path / "report.md").read_text(encoding="utf-8")
    numbers = numbers_of(found.entries[0], EN)
    for value in numbers.values():
        assert value in page
    assert " ± " in numbers["test accuracy"]
    assert ("sent by a worker" in numbers) == (name == "two")
    assert f"shoal train {runs}/{name}/config.toml" in page
    assert "hidden = [8]" in page
    assert "torch 2" in page
    assert page.count("| 2 (best) | 8 |") == 1, "a validation after every epoch"
    assert len((tmp_path / "tables" / "steps.csv").read_text().splitlines()) == 9
    assert ((tmp_path / "figures" / "loss.png").stat().st_size > 1000) == (name == "one")
    assert "<svg" in (tmp_path / "report.html").read_text(encoding="utf-8")
