"""Which runs a report took over from an earlier one, and what its page says about them."""

import re
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from reports import Listening

from shoal.compare.earlier import to_continue_from
from shoal.config.read import from_tree, read, read_recipe
from shoal.config.schema import RunConfig
from shoal.config.sections.data import SyntheticConfig
from shoal.config.sections.model import LinearConfig
from shoal.config.sections.train import TrainConfig
from shoal.config.write import to_toml
from shoal.errors import ConfigError, WorkerError
from shoal.report.document import Code, Paragraph
from shoal.training.observer import Silent
from shoal.training.stop import Series
from shoal_labs.frame import earlier_of
from shoal_labs.page.page import opening
from shoal_labs.runs import Runs
from shoal_labs.settings import Lab2Settings, command_of
from shoal_labs.words import load_words

CONFIG = RunConfig(
    device="cpu",
    data=SyntheticConfig(samples=40, shape=(1, 2, 2)),
    model=LinearConfig(),
    train=TrainConfig(epochs=1),
)


def runs_in(folder, earlier=None):
    return Runs(folder / "runs", load_words("shoal_labs.lab2", "en"), Listening(), earlier)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    runs = runs_in(tmp_path_factory.mktemp("earlier"))
    runs.train_all({"one": CONFIG, "two": CONFIG})
    assert (runs.taken_over, runs.trained) == ([], ["one", "two"])
    return runs.folder


def test_runs_with_the_same_settings_are_taken_over_and_others_trained(earlier, tmp_path):
    runs = runs_in(tmp_path, earlier)
    runs.train_all({"one": CONFIG, "two": replace(CONFIG, seed=1), "three": CONFIG})
    assert (runs.taken_over, runs.trained) == (["one"], ["two", "three"])
    assert runs.weight_difference("one", "three") == 0
    assert runs.weight_difference("one", "two") > 0


def test_the_time_left_is_shown_once_a_run_was_trained(earlier, tmp_path, monkeypatch):
    runs, labels = runs_in(tmp_path, earlier), []
    monkeypatch.setattr(runs.watch, "running", lambda label: labels.append(label) or Silent())
    runs.train_all({"one": CONFIG, "other": CONFIG, "more": CONFIG})
    first, second = labels
    assert first == "2/3 other", "the run that was taken over says nothing about the others"
    assert re.fullmatch(r"3/3 more \(\d+ s so far, about \d+ s left\)", second)


def test_the_page_names_the_runs_taken_over_their_folder_and_the_real_command(earlier, tmp_path):
    runs = runs_in(tmp_path, earlier)
    runs.train_all({"one": CONFIG, "three": CONFIG})
    command = command_of("2", Lab2Settings(runs=earlier))
    blocks = opening(command=command, runs=runs)
    code = [block.text for block in blocks if isinstance(block, Code)]
    assert code == [f"shoal lab 2 --lang en --seed 0 --runs {earlier}", "one"]
    said = [block.text for block in blocks if isinstance(block, Paragraph)][-1]
    assert f"taken over from `{earlier}` and not trained again: 1; runs trained for this page: 1." in said


def test_a_page_without_earlier_runs_says_nothing_about_them(tmp_path):
    blocks = opening(command="shoal lab 2", runs=runs_in(tmp_path))
    assert [block.text for block in blocks if isinstance(block, Code)] == ["shoal lab 2"]


def test_a_page_for_which_no_earlier_run_fitted_says_so(tmp_path):
    runs = runs_in(tmp_path, earlier=tmp_path)
    runs.train_all({"one": CONFIG})
    last = opening(command="", runs=runs)[-1]
    assert isinstance(last, Paragraph)
    assert last.text.startswith(f"No run in `{tmp_path}` was finished with the settings of this page.")


def test_an_error_without_a_fault_ends_the_lab(tmp_path, monkeypatch):
    def fail(*_):
        raise WorkerError("rank 1 of 2 was killed", "", 1)

    monkeypatch.setattr("shoal_labs.student.host.launch_run", fail)
    with pytest.raises(WorkerError, match="was killed"):
        runs_in(tmp_path).train_all({"one": CONFIG})


def test_earlier_runs_are_found_in_the_folder_of_a_report_and_a_folder_without_any_is_refused(tmp_path):
    assert earlier_of(Lab2Settings()) is None
    for path in ("nowhere", str(tmp_path)):
        with pytest.raises(ConfigError, match=f"--runs {path} is not a folder with runs"):
            earlier_of(Lab2Settings(runs=Path(path)))
    (tmp_path / "runs/single").mkdir(parents=True)
    (tmp_path / "runs/single/config.toml").touch()
    for path in (tmp_path, tmp_path / "runs"):
        assert earlier_of(Lab2Settings(runs=path)) == tmp_path / "runs"


def test_a_signal_after_the_last_step_of_a_run_ends_the_lab_and_the_run_is_kept(tmp_path, monkeypatch):
    class Late(Silent):
        def validated(self, progress, metrics):
            """Called after the last step of an epoch."""
            signal.raise_signal(signal.SIGTERM)

    runs = runs_in(tmp_path)
    monkeypatch.setattr(runs.watch, "running", lambda label: Late())
    with pytest.raises(KeyboardInterrupt, match="SIGTERM"), Series():
        runs.train_all({"one": CONFIG, "two": CONFIG})
    assert runs.trained == ["one"]
    assert to_continue_from(runs.folder, None) == runs.folder
    later = runs_in(tmp_path / "later", earlier=runs.folder)
    later.train_all({"one": CONFIG, "two": CONFIG})
    assert (later.taken_over, later.trained) == (["one"], ["two"])
    assert to_continue_from(runs.folder, later.folder) == later.folder
    assert to_continue_from(tmp_path / "nowhere", None) is None


def test_a_run_that_names_the_labs_by_their_old_place_is_taken_over(tmp_path):
    config = read(
        None, ["--strategy", "naive", "--workers", "2", "--exchange", "shoal_labs.lab2.averaging:all_gather"]
    )
    recipe = tmp_path / "config.toml"
    recipe.write_text(to_toml(config).replace("shoal_labs.", "shoal.labs."))
    assert from_tree(read_recipe(str(recipe), trust_code=True)) == config
