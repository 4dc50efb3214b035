from dataclasses import replace
from pathlib import Path

import pytest
from outcomes import STEADY, rounds

from shoal.compare.watch import QuietWatch
from shoal.config.sections.model import TransformerConfig
from shoal.memory.techniques import TECHNIQUES
from shoal.memory.trial import Trial
from shoal_labs.optimise import memory as module
from shoal_labs.optimise.memory import MIB, MemoryMeasurements, MemoryPlan, MemorySize, Tried, measure
from shoal_labs.optimise.memory_page import CLAIMS, MEMORY
from shoal_labs.runs import Runs
from shoal_labs.words import load_words

PLAN = MemoryPlan(MemorySize(rounds=2, batch=8, model=TransformerConfig(layers=2, width=16, heads=2)))


def runs_in(folder: Path, earlier: Path | None = None) -> Runs:
    return Runs(folder, load_words("shoal_labs.optimise", "en"), QuietWatch(), earlier)


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
    assert found.plain.ratio(found.plain).value == 1
    assert all(found.of(technique) for technique in TECHNIQUES)


def test_every_technique_is_drawn(tried, tmp_path):
    (draw,) = MEMORY.figures(measure(PLAN, runs_in(tmp_path))).values()
    assert draw(load_words("shoal_labs.optimise", "en"), None).png


def test_a_report_in_another_language_takes_the_trials_over(tried, tmp_path):
    first = measure(PLAN, runs_in(tmp_path / "first"))
    runs = runs_in(tmp_path / "second", earlier=tmp_path / "first")
    assert measure(PLAN, runs) == first
    assert (len(tried), runs.taken_over) == (PLAN.size.rounds, ["memory"])


def test_trials_of_another_run_are_not_taken_over(tried, tmp_path):
    measure(PLAN, runs_in(tmp_path / "first"))
    measure(MemoryPlan(PLAN.size, seed=1), runs_in(tmp_path / "second", earlier=tmp_path / "first"))
    assert len(tried) == 2 * PLAN.size.rounds


def one(flags, mib, ms):
    return Tried("checkpointing" if flags else "plain", flags, True, tuple(rounds(mib)), tuple(rounds(ms)))


@pytest.mark.parametrize(("busy", "front"), [(0.0, ["", "b"]), (0.8, [])])
def test_a_setting_that_is_slower_and_needs_more_memory_is_not_on_the_front(busy, front):
    tried = {each.flags: each for each in (one("", 80, 10), one("a", 90, 12), one("b", 40, 14))}
    assert MemoryMeasurements(PLAN, tried, busy).front() == front


def test_a_setting_that_is_slower_and_needs_as_much_memory_within_the_noise_is_not_on_the_front():
    same = Tried("off-loading", "c", True, tuple(80 * each for each in reversed(STEADY)), tuple(rounds(12)))
    assert MemoryMeasurements(PLAN, {"": one("", 80, 10), "c": same}).front() == [""]


def test_rounds_that_other_programs_delayed_do_not_count(monkeypatch, tmp_path):
    made = iter(range(9))

    def pretend(configs):
        number = next(made)
        return [Trial((100 + number) * MIB, 0.1 + number, was_delayed=number == 1) for _ in configs]

    monkeypatch.setattr(module, "try_each", pretend)
    found = measure(MemoryPlan(replace(PLAN.size, rounds=3)), runs_in(tmp_path))
    assert found.plain.rounds_ms == pytest.approx((100.0, 2100.0))
    assert found.plain.peaks_mib == (100, 101, 102)


@pytest.mark.parametrize(("busy", "rounds_made"), [(0.0, 6), (0.5, 4)])
def test_more_rounds_follow_until_they_decide_or_the_machine_is_busy(
    monkeypatch, tmp_path, busy, rounds_made
):
    made = []

    def pretend(configs):
        made.append(configs)
        slow = 1.5 if len(made) % 2 else 0.5  # each round another technique is faster
        return [Trial(MIB, 0.1 * (slow if place else 1)) for place in range(len(configs))]

    monkeypatch.setattr(module, "try_each", pretend)
    monkeypatch.setattr(Runs, "busy", lambda self: busy)
    measure(MemoryPlan(replace(PLAN.size, rounds=4, most=6)), runs_in(tmp_path))
    assert len(made) == rounds_made


@pytest.mark.parametrize(
    ("plain", "less", "verdict"),
    [
        (rounds(80.0), rounds(40.0), "holds"),
        (rounds(80.0), rounds(80.0), "fails"),
        (rounds(88.0), rounds(80.0, noise=-1), "undecided"),
        ([80.0] * 3, [40.0] * 3, "undecided"),
    ],
)
def test_memory_is_saved_from_a_tenth_on_also_on_a_busy_machine(plain, less, verdict):
    tried = {"": Tried("plain", "", True, tuple(plain), (1.0,))}
    tried |= {
        name: Tried(name, name, True, tuple(less), (1.0,)) for name in ("checkpointing", "accumulation")
    }
    for claim in CLAIMS:
        if claim.name.endswith("saves_memory"):
            found = claim.judge(MemoryMeasurements(PLAN, tried))
            assert (found.verdict, found.about_time) == (verdict, False)
