import pytest
from reports import Listening, assert_judged, assert_whole, rows, text_of, undrawn

from shoal.compare.watch import QuietWatch
from shoal.config.sections.data import SyntheticConfig
from shoal.config.sections.model import LinearConfig
from shoal.errors import WorkerError
from shoal_labs.frame import run_plan
from shoal_labs.lab2.averaging import ALL
from shoal_labs.lab2.lab import LAB
from shoal_labs.lab2.plan import CONDITIONS, FAULTS, RULES, Lab2Plan, Lab2Size
from shoal_labs.timing.turns import round_name
from shoal_labs.words import load_words

TINY = Lab2Plan(
    workers=2,
    size=Lab2Size(
        dict.fromkeys(CONDITIONS, 1),
        3,
        contest_rounds=2,
        turn_rounds=2,
        turn_steps=4,
        pace_steps=6,
        equal_steps=4,
        learn_steps=6,
        fault_steps=6,
        seeds=2,
        close_seeds=2,
    ),
    quick=True,
    data=SyntheticConfig(samples=128, shape=(1, 4, 4)),
    model=LinearConfig(),
    timed_by="threads",
)
FIGURES = ("exchange", "loss", "stages", "pace", "faults")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    words, watch = load_words(LAB.package, "en"), Listening()
    folder = tmp_path_factory.mktemp("lab") / "report"
    return run_plan(LAB, TINY, folder, "shoal lab 2", words, watch), words, watch


@pytest.fixture(scope="module")
def in_chinese(finished, tmp_path_factory):
    """The same runs once more, for a report in the other language."""
    outcome, _, _ = finished
    words, folder = load_words(LAB.package, "zh"), tmp_path_factory.mktemp("lab") / "zh"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shoal_labs.student.host.launch_run", only_what_was_stopped)
        patch.setattr("shoal_labs.timing.turns.launch_run", only_what_was_stopped)
        patch.setattr("shoal_labs.frame.draw_all", undrawn)
        return run_plan(LAB, TINY, folder, "", words, QuietWatch(), outcome.folder / "runs"), words


def only_what_was_stopped(config, observer, *_):
    from shoal.launch.run import launch_run

    assert config.launch.fault, f"{config.output.name} was trained again"
    return launch_run(config, observer)


def test_the_folder_holds_report_figures_tables_and_runs(finished):
    outcome, _, _ = finished
    names = {path.relative_to(outcome.folder).as_posix() for path in outcome.folder.glob("[!r]*/*")}
    shown = ("split", "collectives", "record", "aggregation", "equal", "bottleneck", "uneven", "tolerance")
    tables = (*shown, "exchange", "pace", "differences", "learnt", "faults", "findings")
    drawn = {f"figures/{name}.{kind}" for name in FIGURES for kind in ("png", "pdf")}
    assert names == drawn | {f"tables/{name}.csv" for name in tables}
    in_turns = {round_name(name, number) for name in TINY.turns() for number in range(2)}
    assert {path.name for path in (outcome.folder / "runs").glob("[!.]*")} == {*TINY.runs(), *in_turns}


def test_the_report_is_whole_in_both_languages(finished, in_chinese):
    for outcome, words in (finished[:2], in_chinese):
        assert_whole(outcome.folder, words)
        assert "def reduce_scatter_all_gather(" in text_of(outcome.folder)  # the code that ran
        assert_judged(outcome, words, claims=LAB.claims)


def test_finished_runs_are_taken_over(finished, in_chinese):
    assert rows(in_chinese[0].folder, "exchange") == rows(finished[0].folder, "exchange")


def test_every_branch_is_timed_under_every_condition_and_is_what_it_says(finished):
    outcome, _, _ = finished
    timed = rows(outcome.folder, "exchange")
    assert [(row["condition"], row["branch"]) for row in timed] == [(c, b) for c in CONDITIONS for b in ALL]
    assert all(float(row["exchange (ms)"]) > 0 for row in timed)
    assert {row["as labelled"] for row in rows(outcome.folder, "record")} == {"True"}


def test_the_identities_hold(finished):
    outcome, _, _ = finished
    apart = {
        row["compared"]: float(row["relative difference"]) for row in rows(outcome.folder, "differences")
    }
    assert apart["sum"] == 0  # two workers: a power of two
    for equal in ("exact", "parameters", "stages", "uneven-exact", "uneven-weighted_mean", "balanced"):
        assert apart[equal] < 1e-5, equal
    for other in ("adam-parameters", "uneven-mean"):
        assert apart[other] > 1e-3, other


def test_a_bad_worker_stops_the_sum_and_no_rule(finished):
    outcome, _, watch = finished
    found = {(row["fault"], row["rule"]): row for row in rows(outcome.folder, "faults")}
    assert set(found) == {(fault, rule) for fault in FAULTS for rule in RULES}
    stopped = {key for key, row in found.items() if row["stopped"]}
    assert ("nan", "mean") in stopped
    assert all(rule == "mean" for _, rule in stopped)
    assert "rank 1" in found["nan", "mean"]["stopped"]
    assert any("fault-nan-mean" in line and "stopped" in line for line in watch.lines)


def test_every_run_is_printed(finished):
    _, _, watch = finished
    for name in TINY.runs():
        assert any(f" {name}: " in line for line in watch.lines)


def test_an_error_that_no_fault_explains_ends_the_lab(tmp_path, monkeypatch):
    def fail(*_):
        raise WorkerError("rank 1 of 2 was killed", "", 1)

    monkeypatch.setattr("shoal_labs.student.host.launch_run", fail)
    with pytest.raises(WorkerError, match="was killed"):
        run_plan(LAB, TINY, tmp_path / "out", "", load_words(LAB.package, "en"), QuietWatch())
    assert not (tmp_path / "out").exists()
