from dataclasses import replace

import pytest
from reports import Listening, assert_judged, assert_whole, rows, text_of, undrawn

from shoal.compare.watch import QuietWatch
from shoal.config.sections.data import SyntheticConfig
from shoal.errors import ConfigError
from shoal.training import worker
from shoal_labs.frame import run_lab, run_plan
from shoal_labs.lab1.lab import LAB
from shoal_labs.lab1.plan import NAMES, Lab1Plan, Lab1Size
from shoal_labs.settings import Lab1Settings
from shoal_labs.words import load_words

DATA = SyntheticConfig(samples=160, validation=0.2)
TINY = Lab1Plan(DATA, Lab1Size(2, 1, seeds=2, sweep_part=1, contest_s=0.5), quick=True, device="cpu")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    words, watch = load_words(LAB.package, "en"), Listening()
    folder = tmp_path_factory.mktemp("lab") / "report"
    return run_plan(LAB, TINY, folder, "shoal lab 1", words, watch), words, watch


def test_the_folder_holds_report_figures_tables_and_runs(finished):
    outcome, _, _ = finished
    names = {path.relative_to(outcome.folder).as_posix() for path in outcome.folder.glob("[!r]*/*")}
    assert {f"figures/{stem}.{kind}" for stem in ("loss", "sweep") for kind in ("png", "pdf")} <= names
    assert {path.name for path in outcome.folder.iterdir()} == {
        "report.md",
        "report.html",
        "figures",
        "tables",
        "runs",
    }
    assert (outcome.folder / "runs" / "gd-seed1" / "model.safetensors").exists()


def test_the_report_has_the_courses_sections_and_leaves_no_place_empty(finished):
    outcome, words, _ = finished
    assert_whole(outcome.folder, words)
    assert "class Adam" in text_of(outcome.folder)  # its own source


def test_every_candidate_is_printed_and_in_the_report(finished):
    outcome, _, watch = finished
    text = text_of(outcome.folder)
    tried = rows(outcome.folder, "sweep")
    assert {row["optimizer"] for row in tried} == set(NAMES)
    for row in tried:
        assert f"{float(row['learning rate']):g}" in text
        assert any(f"η = {float(row['learning rate']):g} " in line for line in watch.lines)
    chosen = [row for row in tried if row["chosen"] == "True"]
    assert [row["optimizer"] for row in chosen] == list(NAMES)


def test_the_optimizers_get_the_budgets_of_the_plan(finished):
    outcome, _, _ = finished
    for row in rows(outcome.folder, "runs"):
        assert int(row["steps"]) == 2
        assert int(row["samples"]) == (256 if row["optimizer"] == "gd" else 128)


def test_every_finding_is_judged(finished):
    outcome, words, _ = finished
    assert_judged(outcome, words, claims=LAB.claims)


def test_a_folder_in_use_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="is not empty"):
        run_plan(LAB, TINY, tmp_path, "", load_words(LAB.package, "en"), QuietWatch())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_interrupted_lab_leaves_runs_and_no_report(tmp_path):
    class Interrupting(QuietWatch):
        def running(self, label):
            if "Adam" in label:
                raise KeyboardInterrupt
            return super().running(label)

    with pytest.raises(KeyboardInterrupt):
        run_plan(LAB, TINY, tmp_path / "out", "", load_words(LAB.package, "en"), Interrupting())
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["runs"]


def test_in_chinese_from_the_runs_of_an_earlier_report(finished, tmp_path, monkeypatch):
    outcome, _, _ = finished

    run = worker.run

    def train(config, *more, resumed=None):
        # A finished run may be opened again, to read the test set.
        assert resumed is not None, f"{config.output.name} was trained again"
        return run(config, *more, resumed=resumed)

    monkeypatch.setattr("shoal.training.worker.run", train)
    monkeypatch.setattr("shoal_labs.frame.draw_all", undrawn)
    words = load_words(LAB.package, "zh")
    again = run_plan(LAB, TINY, tmp_path / "zh", "", words, QuietWatch(), earlier=outcome.folder / "runs")
    assert rows(again.folder, "runs") == rows(outcome.folder, "runs")
    assert_whole(again.folder, words)
    assert_judged(again, words, claims=LAB.claims)
    other = replace(TINY, first_seed=7)
    with pytest.raises(AssertionError, match="was trained again"):
        run_plan(LAB, other, tmp_path / "other", "", words, QuietWatch(), earlier=outcome.folder / "runs")


def test_runs_that_are_no_folder(tmp_path):
    with pytest.raises(ConfigError, match="is not a folder"):
        run_lab(LAB, Lab1Settings(runs=tmp_path / "nowhere"), tmp_path / "out", QuietWatch())
