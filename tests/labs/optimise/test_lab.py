from dataclasses import replace

import pytest
from reports import Listening, again_in_chinese, assert_judged, assert_whole, findings_in, rows, text_of

from shoal.config.read import read
from shoal.config.sections.data import DigitsConfig
from shoal.config.sections.model import MlpConfig, TransformerConfig
from shoal.events.folder import RunFolder
from shoal_labs.frame import run_plan
from shoal_labs.optimise import compression, memory, pruning, straggler
from shoal_labs.optimise.compression import CODECS, LINKS
from shoal_labs.optimise.lab import LAB, OptimisePlan
from shoal_labs.runs import OTHER_WORK
from shoal_labs.words import load_words

pytestmark = pytest.mark.timeout(400)  # some sixty runs

SMALL = MlpConfig(hidden=(8,))
TINY = OptimisePlan(
    workers=2,
    quick=True,
    parts={
        "compression": compression.CompressionPlan(
            2,
            compression.CompressionSize(turn=2, rounds=1, auto_steps=5, learn_steps=2, seeds=1),
            quick=True,
            data=DigitsConfig(samples=200),
            model=SMALL,
            timed_by="threads",
        ),
        "straggler": straggler.StragglerPlan(
            3,
            straggler.StragglerSize(epochs=3),
            DigitsConfig(samples=400, validation=0.2),
            model=SMALL,
            timed_by="threads",
        ),
        "pruning": pruning.PruningPlan(
            pruning.PruningSize(epochs=1, finetune=1, seeds=1, rounds=2),
            DigitsConfig(samples=100),
            model=MlpConfig(hidden=(16,)),
        ),
        "memory": memory.MemoryPlan(
            memory.MemorySize(rounds=1, batch=4, model=TransformerConfig(layers=2, width=16, heads=2))
        ),
    },
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab") / "report"
    return run_plan(LAB, TINY, folder, "shoal lab optimise", load_words(LAB.package, "en"), Listening())


@pytest.fixture(scope="module")
def in_chinese(finished, tmp_path_factory):
    return again_in_chinese(LAB, TINY, tmp_path_factory.mktemp("zh") / "report", finished.folder / "runs")


def test_every_codec_has_a_time_on_every_link_and_sends_what_it_declares(finished):
    steps = rows(finished.folder, "steps_runs")
    assert [(row["link"], row["codec"]) for row in steps] == [
        (link, codec) for link in LINKS for codec in CODECS
    ]
    declared = {
        row["codec"]: row["sent by a worker, by formula (B)"] for row in rows(finished.folder, "codecs")
    }
    assert all(row["sent by a worker (B)"] == declared[row["codec"]] for row in steps)
    assert all(float(row["step (ms)"]) > 0 for row in steps)


def test_auto_chose_one_candidate_on_every_link(finished):
    chosen = [row for row in rows(finished.folder, "auto_runs") if row["chosen"] == "True"]
    assert [row["link"] for row in chosen] == list(LINKS)
    assert {row["candidate"] for row in chosen} <= set(CODECS)


def test_only_ways_that_do_not_wait_have_stale_updates(finished):
    found = {
        (row["straggler"], row["way"]): int(row["largest staleness"])
        for row in rows(finished.folder, "staleness")
    }
    assert {pair for pair, largest in found.items() if largest} == {
        (condition, way) for condition in straggler.CONDITIONS for way in ("ssp", "asp")
    }


def test_no_way_processes_more_samples_than_its_workers_compute(finished):
    for row in rows(finished.folder, "stragglers"):
        assert 0 < float(row["samples per second (1/s)"]) < 1.05 * float(row["sum of 1/t (1/s)"])


def test_pruned_weights_leave_the_file_as_it_is_and_pruned_channels_shrink_it(finished):
    found = {
        (row["pruned"], float(row["sparsity (%)"]) / 100): row for row in rows(finished.folder, "pruning")
    }
    pairs = {(kind, sparsity) for kind, all_ in pruning.KINDS.items() for sparsity in (0, *all_)}
    assert found.keys() == pairs
    files = {pair: float(row["file (KiB)"]) for pair, row in found.items()}
    assert files["channels", 0.75] < files["channels", 0.25] < files["weights", 0.5]
    sizes = [int(found["weights", sparsity]["values"]) for sparsity in pruning.KINDS["weights"]]
    assert sizes == sorted(sizes, reverse=True)


def test_the_report_is_whole_in_both_languages(finished, in_chinese):
    for outcome, lang in ((finished, "en"), (in_chinese, "zh")):
        words = load_words(LAB.package, lang)
        assert_whole(outcome.folder, words)
        assert_judged(outcome, words, claims=LAB.claims)
        assert "class TopK(" in text_of(outcome.folder)  # the code that ran
        assert len(text_of(outcome.folder).split("![")) == 1 + 4 + 3 + 1 + 1
    for table in ("steps", "auto", "stragglers", "staleness", "memory"):
        assert rows(finished.folder, table) == rows(in_chinese.folder, table)


def test_with_times_of_a_busy_machine_no_finding_about_time_is_decided_and_there_is_no_front(
    finished, tmp_path
):
    earlier = finished.folder / "runs"
    quiet = (earlier / OTHER_WORK).read_text()
    (earlier / OTHER_WORK).write_text("1.0")  # no busier machine can replace it while the report is written
    try:
        busy = again_in_chinese(LAB, TINY, tmp_path / "report", earlier)
    finally:
        (earlier / OTHER_WORK).write_text(quiet)
    verdicts = {row["claim"]: row["verdict"] for row in rows(busy.folder, "findings")}
    exact = {"bytes_as_declared", "ssp_keeps_its_bound"}
    assert {claim for claim, verdict in verdicts.items() if verdict != "undecided"} == exact
    assert not any(row["on the Pareto front"] == "True" for row in rows(busy.folder, "memory"))
    assert load_words("shoal_labs.optimise", "zh")("analysis.busy", part=100) in text_of(busy.folder)


def test_pruned_networks_are_compared_with_the_whole_one_after_the_same_fine_tuning(finished):
    runs = finished.folder / "runs"
    names = [f"prune-weights-{percent}-seed0" for percent in (0, 80)]
    whole, pruned = (read(str(runs / name / "config.toml"), []) for name in names)
    assert replace(whole, prune=pruned.prune, output=pruned.output) == pruned
    assert whole.prune.name == "none"
    assert whole.train.start.endswith("prune-whole-seed0")
    accuracies = [RunFolder(runs / name).finished_result()["test_accuracy"] for name in names]
    (found,) = (each for each in findings_in(finished.folder) if each["claim"] == "accuracy_survives")
    for name, accuracy in zip(("whole", "pruned"), accuracies, strict=True):
        assert found["numbers"][name] == str(100 * accuracy)
