"""What one run shows by itself: both outcomes of every rule, and nothing that its steps do not support."""

from dataclasses import replace

import pytest
from made_runs import DDP, write_run

from shoal.compare.comparison import compare
from shoal.compare.one_run import findings
from shoal.report.words import page_words

EN = page_words("en", "shoal.compare")
SLOW, EVEN, MOVING = ((3, 0.5, 1), (9, 0.5, 1)), ((9, 0.5, 0),) * 2, ((7, 3, 0),) * 2
UNEVEN = ((4, 0.5, 1), (9, 0.5, 1))


def found(folder, flags=DDP, **options):
    return findings(compare([write_run(folder / "it", flags, **options)]), EN)


CASES = {
    "slow": (DDP, {"ranks": SLOW}, "waits", "--balance"),
    "turns": (DDP, {"ranks": UNEVEN, "turns": True}, "waits", "cores"),
    "gloo": (f"{DDP} --group gloo", {"ranks": MOVING}, "moves", "--group shm"),
    "codec": (
        f"{DDP} --exchange compressed:topk",
        {"ranks": ((5, 1, 0),) * 2, "encode_ms": 3},
        "encodes",
        "codec",
    ),
    "even": (DDP, {"ranks": EVEN}, "efficient", ""),
    "stages": ("--strategy pipeline --workers 2 --threads 1", {"ranks": UNEVEN}, "bubble", "microbatches"),
    "layers": ("--strategy tensor --workers 2 --threads 1", {"ranks": MOVING}, "moves", "wide"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_names_its_largest_cost_and_what_to_try(name, tmp_path):
    flags, options, kind, advice = CASES[name]
    remarks = found(tmp_path, flags, **options)
    assert kind in [remark.kind for remark in remarks]
    assert advice in " ".join(remark.advice for remark in remarks)
    assert {remark.tone for remark in remarks} == {"holds" if kind == "efficient" else "fails"}


def test_the_slow_worker_is_the_first_finding(tmp_path):
    first = found(tmp_path, ranks=SLOW)[0]
    assert "rank 1 is slow" in first.claim
    assert "3.0 ×" in first.numbers


def test_a_busy_machine_leaves_one_undecided_remark(tmp_path):
    (remark,) = found(tmp_path, ranks=SLOW, not_scheduled=0.3)
    assert (remark.tone, remark.kind) == ("undecided", "busy")


def test_nothing_is_said_of_steps_that_scatter_across_the_bound(tmp_path):
    """The mean exchange takes more than a tenth of a step; single steps take 4 to 60 %."""
    spread = ((9.0, 1.0, 0), (9.0, 1.0, 0))
    assert [remark.kind for remark in found(tmp_path / "steady", ranks=((9, 2, 0),) * 2)] == ["moves"]
    assert found(tmp_path / "wild", ranks=spread, step_ms=9.5, noise=0.8) == []


def test_exchanges_are_not_divided_where_few_steps_kept_their_spans(tmp_path):
    """Every step knows how long it exchanged; only some know how much of that was waiting."""
    run = compare([write_run(tmp_path / "it", DDP, ranks=UNEVEN, turns=True)])
    (entry,) = run.entries
    kept = [
        {kind: _few(steps) if kind in ("wait", "move") else steps for kind, steps in rank.parts.items()}
        for rank in entry.ranks
    ]
    ranks = tuple(
        replace(rank, parts=parts, steps_kept=3) for rank, parts in zip(entry.ranks, kept, strict=True)
    )
    (remark,) = findings(replace(run, entries=(replace(entry, ranks=ranks),)), EN)
    assert remark.kind == "moves"
    assert "Only 3 steps" in remark.numbers
    assert "--trace" in remark.advice


def _few(steps):
    return {step: steps[step] for step in (2, 20, 39)}


@pytest.mark.parametrize("steps", [5, 10])
def test_a_short_run_says_nothing(steps, tmp_path, monkeypatch):
    monkeypatch.setattr("made_runs.STEPS", steps + 2)
    assert found(tmp_path, ranks=SLOW) == []


def test_a_run_of_one_worker_says_nothing(tmp_path):
    assert found(tmp_path, "--threads 1", not_scheduled=0.5) == []


def test_a_run_without_the_events_of_a_worker_says_nothing(tmp_path):
    """Workers on another machine wrote theirs there."""
    run = compare([write_run(tmp_path / "it", DDP, ranks=MOVING)])
    (entry,) = run.entries
    assert findings(run, EN) != []
    assert findings(replace(run, entries=(replace(entry, ranks=entry.ranks[:1]),)), EN) == []
