"""The report of one run."""

from dataclasses import replace

import numpy as np
import pytest
from made_runs import DDP, write_events, write_run

from shoal.compare.comparison import compare
from shoal.compare.run_figures import training_figure
from shoal.compare.run_report import numbers_of, timeline_blocks, write_run_report
from shoal.config.read import read
from shoal.events.file import read_events
from shoal.launch.run import launch_run
from shoal.report.words import page_words
from shoal.training.observer import Silent

EN = page_words("en", "shoal.compare")
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
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert html.count('class="timeline"') >= 2, "for a page and for a phone"
    assert html.count("<script>") == 1
    assert "(figures/timeline.svg)" in page
    assert (tmp_path / "figures" / "timeline.svg").read_text(encoding="utf-8").startswith("<svg")


def test_the_figure_has_the_curves_that_the_run_has(runs, tmp_path, svg_alone):
    """Training, validation and learning rate; a run of an older version recorded no rate."""
    (entry,) = compare([runs / "one"]).entries
    assert legend_of(training_figure(entry.run, EN)) == {"training loss", "validation loss", "learning rate"}
    old = replace(entry.run, validations=(), rates=np.array([]))
    assert legend_of(training_figure(old, EN)) == {"training loss"}


def legend_of(drawing):
    labels = {EN(f"figure.{name}") for name in ("training", "validation", "rate")}
    return {label for label in labels if f">{label}<" in drawing.wide_svg}


def test_a_loss_at_or_below_zero_is_drawn_on_a_linear_scale(tmp_path, svg_alone):
    (entry,) = compare([write_run(tmp_path / "it", "--threads 1", loss=-2.0)]).entries
    assert ">-2.0<" in training_figure(entry.run, EN).wide_svg


def test_a_run_that_kept_no_spans_has_a_page_without_a_timeline(tmp_path, without_figures):
    folder = write_run(tmp_path / "it", "--threads 1")
    records = read_events(folder / "events.rank0.jsonl")
    write_events(
        folder, 0, [{key: value for key, value in each.items() if key != "spans"} for each in records]
    )
    assert timeline_blocks(folder, EN) == ([], {})


def test_settings_that_differ_stand_open_and_all_settings_are_folded(runs, tmp_path, without_figures):
    write_run_report(tmp_path, compare([runs / "one"]), EN)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    shown, folded = page.split("<details>", 1)
    assert "model.hidden" in shown
    assert "model.name" in shown
    assert "optimizer.lr" not in shown, "it is the default"
    assert "hidden = [8]" in folded
    assert "hidden = [8]" not in shown


def test_the_page_opens_with_what_the_run_shows(tmp_path, without_figures):
    slow = write_run(tmp_path / "slow", DDP, ranks=((3, 0.5, 1), (9, 0.5, 1)))
    write_run_report(tmp_path / "page", compare([slow]), EN)
    page = (tmp_path / "page" / "report.html").read_text(encoding="utf-8")
    assert page.index("rank 1 is slow") < page.index("test accuracy</td>")


def test_a_run_of_a_comparison_leads_back_to_it(tmp_path, monkeypatch, without_figures):
    monkeypatch.chdir(tmp_path)
    run = write_run(tmp_path / "reports" / "compare-1" / "runs" / "ddp", DDP, ranks=((9, 0.5, 0),) * 2)
    (tmp_path / "reports" / "compare-1" / "report.html").write_text("<title>three ways</title>")
    write_run_report(tmp_path / "reports" / "ddp", compare([run]), EN)
    page = (tmp_path / "reports" / "ddp" / "report.html").read_text(encoding="utf-8")
    assert 'href="../compare-1/report.html"' in page
    assert 'href="../index.html"' in page
