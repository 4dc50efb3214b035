from pathlib import Path

import pytest

from shoal.config.schema import TransformerConfig
from shoal.labs.optimise.memory import measure as module
from shoal.labs.optimise.memory.figures import figures
from shoal.labs.optimise.memory.measure import MIB, Measurements, Tried, measure
from shoal.labs.optimise.memory.plan import Plan, Size
from shoal.labs.runs import Runs
from shoal.labs.watch import QuietWatch
from shoal.labs.words import load_words
from shoal.memory.techniques import TECHNIQUES
from shoal.memory.trial import Trial
from shoal.report.findings import Measured

PLAN = Plan(Size(rounds=2, batch=8, model=TransformerConfig(layers=2, width=16, heads=2)))


def runs_in(folder: Path, earlier: Path | None = None) -> Runs:
    return Runs(folder, load_words("shoal.labs.optimise", "en"), QuietWatch(), earlier)


@pytest.fixture
def tried(monkeypatch):
    """Trials without workers: each variant needs less memory than the one before, and takes longer."""
    calls = []

    def pretend(configs):
        calls.append(configs)
        return [Trial((100 - place) * MIB, 0.1 * (1 + place)) for place in range(len(configs))]

    monkeypatch.setattr(module, "try_each", pretend)
    return calls


def test_every_technique_is_tried_in_every_round_beside_the_plain_run(tried, tmp_path):
    found = measure(PLAN, runs_in(tmp_path))
    assert len(tried) == PLAN.size.rounds
    assert found.plain.peak_mib.value == 100
    assert found.plain.ratio.value == 1
    assert all(found.of(technique) for technique in TECHNIQUES)


def test_every_technique_is_drawn(tried, tmp_path):
    (draw,) = figures(measure(PLAN, runs_in(tmp_path))).values()
    assert draw(load_words("shoal.labs.optimise", "en"), None).png


def test_a_report_in_another_language_takes_the_trials_over(tried, tmp_path):
    first = measure(PLAN, runs_in(tmp_path / "first"))
    runs = runs_in(tmp_path / "second", earlier=tmp_path / "first")
    assert measure(PLAN, runs) == first
    assert (len(tried), runs.taken_over) == (PLAN.size.rounds, ["memory"])


def test_trials_of_another_run_are_not_taken_over(tried, tmp_path):
    measure(PLAN, runs_in(tmp_path / "first"))
    measure(Plan(PLAN.size, seed=1), runs_in(tmp_path / "second", earlier=tmp_path / "first"))
    assert len(tried) == 2 * PLAN.size.rounds


def test_a_setting_that_is_slower_and_needs_more_memory_is_not_on_the_front():
    def one(flags, mib, ms):
        values = (Measured(value, 0.0, "none", 1) for value in (mib, ms, ms / 10))
        return Tried("checkpointing" if flags else "plain", flags, True, *values)

    tried = {each.flags: each for each in (one("", 80, 10), one("a", 90, 12), one("b", 40, 14))}
    assert Measurements(PLAN, tried).front() == ["", "b"]
