"""Comparisons of hand-made runs: every number, both outcomes of every verdict, and what is said of bad input."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from made_runs import DDP, RUN_ID, with_invariant_steps, write_events, write_run
from safetensors.numpy import save_file

from shoal.compare.comparison import compare, is_faster, same_bits, settings_apart, speed_up
from shoal.compare.comparison_report import write_report
from shoal.compare.equality import equals_one_machine
from shoal.compare.remark import notes
from shoal.compare.table import (
    COLUMNS,
    as_data,
    described,
    full_table,
    legend,
    metric_rows,
    share_table,
    short_legend,
    short_table,
)
from shoal.compare.verdict import verdict
from shoal.compare.weight_difference import first_step_difference, largest_difference
from shoal.config.read import read
from shoal.errors import ConfigError, ShoalError
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.report.words import page_words

EN = page_words("en", "shoal.compare")


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


def single(runs, **options):
    return write_run(runs / "single", "--threads 2", **{"step_ms": 10.0, **options})


def claims(*folders):
    return {(remark.word, remark.claim): remark for remark in verdict(compare(folders), EN)}


def words(*folders):
    return [remark.word for remark in verdict(compare(folders), EN)]


def text_of(*folders):
    return " ".join(f"{r.word} {r.claim} {r.numbers} {r.advice}" for r in verdict(compare(folders), EN))


def test_speed_is_the_median_step_against_all_cores_and_one(runs):
    folders = [
        single(runs),
        write_run(runs / "narrow", "--threads 1", step_ms=16),
        write_run(runs / "ddp", DDP, step_ms=8, ranks=((7, 1, 0), (7, 1, 0))),
    ]
    comparison = compare(folders)
    assert (comparison.all_cores.name, comparison.one_core.name) == ("single", "narrow")
    ddp = comparison.entries[2]
    assert ddp.samples_per_s == pytest.approx(64 / 0.008, rel=0.02)
    assert speed_up(ddp, comparison.all_cores) == pytest.approx(1.25, rel=0.02)
    assert speed_up(ddp, comparison.one_core) == pytest.approx(2.0, rel=0.02)
    assert is_faster(ddp, comparison.all_cores) == "holds"
    assert notes(comparison, EN) == []


def test_a_difference_within_the_spread_is_marked_in_the_table(runs):
    folders = [single(runs, noise=0.3), write_run(runs / "ddp", DDP, step_ms=9.5, ranks=((9, 0.5, 0),) * 2)]
    row = dict(zip(COLUMNS, full_table(compare(folders), EN)[1][1], strict=True))
    assert row["all_cores"].startswith("≈")
    assert row["one_core"] == "–"
    assert "undecided" in words(*folders)
    assert "do not differ significantly" in text_of(*folders)


def test_shares_are_means_over_the_workers(runs):
    folders = [single(runs), write_run(runs / "ddp", DDP, step_ms=10, ranks=((3, 1, 1), (9, 1, 1)), noise=0)]
    shares = compare(folders).entries[1].shares
    assert shares["compute"] == pytest.approx(0.6, abs=0.01)
    assert shares["move"] == pytest.approx(0.1, abs=0.01)
    assert shares["wait"] == pytest.approx(0.3, abs=0.01)


def narrow(runs, **options):
    """One process with the workers' number of threads: the reference for equality."""
    return write_run(runs / "narrow", "--threads 1", step_ms=18, **options)


def ddp(runs, name="ddp", **options):
    return write_run(runs / name, DDP, **{"ranks": ((9, 0.5, 0), (9, 0.5, 0)), **options})


def cells(comparison, column):
    return [row[COLUMNS.index(column)] for row in full_table(comparison, EN)[1]]


def share_row(comparison):
    header, rows = share_table(comparison, EN)
    return dict(zip(header, rows[1], strict=True))


def test_the_reference_has_the_workers_number_of_threads(runs):
    comparison = compare([single(runs), narrow(runs), ddp(runs)])
    assert comparison.reference is comparison.one_core is comparison.entries[1]
    assert comparison.all_cores is comparison.one_process is comparison.entries[0]
    without = compare([runs / "single", runs / "ddp"])
    assert without.reference.name == "single"
    assert "Each worker of ddp has 1 thread, single 2 threads: another number" in notes(without, EN)[0]


def test_the_threads_that_a_run_reported_count_before_its_settings(runs):
    folder = narrow(runs)
    events = folder / "events.rank0.jsonl"
    start = {"event": "start", "step": 0, "threads": 3, "run_id": RUN_ID}
    write_events(folder, 0, [start, *read_events(events)])
    assert compare([folder, single(runs)]).entries[0].threads == 3


@pytest.mark.parametrize(
    ("gradient", "cell"), [([4.0, 2.00001], "2.5e-06"), ([4.0, 2.2], "5.0e-02"), (None, "–")]
)
def test_the_difference_after_one_step_is_shown_and_judged_by_its_bound(runs, gradient, cell):
    far = {"w": np.array([1.0, -2.2])}
    folders = [narrow(runs, gradient=[4.0, 2.0]), ddp(runs, gradient=gradient, weights=far)]
    assert cells(compare(folders), "one_step") == ["reference", cell]
    words_and_claims = [claim for claim in claims(*folders) if claim[0] in ("equal", "differs")]
    assert (
        words_and_claims
        == {
            "2.5e-06": [("equal", "Every run equals narrow after one step from the same state.")],
            "5.0e-02": [("differs", "ddp does not equal narrow after one step from the same state.")],
            "–": [],
        }[cell]
    )
    assert "1.0e-01" not in text_of(*folders)  # the difference of the final weights is no measure of equality


@pytest.mark.parametrize(
    ("flags", "reasons"),
    [
        (
            "--strategy ddp --workers 2 --partition random --exchange robust:median --exchange.bad 0",
            ["--partition random takes other batches", "--exchange robust gives another aggregate"],
        ),
        (
            "--strategy pipeline --workers 2 --pipeline.schedule async",
            ["--pipeline.schedule async updates after every micro-batch"],
        ),
    ],
)
def test_a_run_that_is_not_exact_by_its_settings_is_explained(flags, reasons, runs):
    lossy = write_run(runs / "lossy", flags, ranks=((9, 0, 0),) * 2, gradient=[2.0])
    remark = claims(narrow(runs, gradient=[1.0]), lossy)[
        "differs", "lossy does not equal narrow after one step from the same state."
    ]
    assert remark.advice == f"Expected: {', '.join(reasons)}."


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (
            "--strategy.every 5",
            "average their weights every 5 steps. Test accuracy: 95.00 % (narrow: 96.35 %).",
        ),
        (
            "--strategy.every 1",
            "adam's update is not linear in the gradient. Test accuracy: 95.00 % (narrow: 96.35 %).",
        ),
        ("--strategy.every 1 --optimizer sgd", None),
    ],
)
def test_runs_that_average_weights_are_another_algorithm_unless_they_are_exact(runs, flags, why):
    flags = f"--strategy local --workers 2 {flags}"
    local = write_run(runs / "local", flags, ranks=((9, 0, 0),) * 2, test_accuracy=0.95)
    found = [remark for (word, _), remark in claims(narrow(runs), local).items() if word == "averages"]
    if why is None:
        assert found == []
    else:
        assert found[0].claim.startswith("local is another algorithm than one machine's")
        assert found[0].numbers.endswith(why)


def test_compressed_runs_do_not_equal_one_machine_and_are_not_judged_as_if_they_should(runs):
    flags = "--strategy ddp --workers 2 --exchange compressed:"
    ways = {"int8": "int8", "neutral": "topk --exchange.ratio 1"}
    folders = [
        write_run(runs / name, flags + codec, ranks=((9, 0, 0),) * 2, test_accuracy=0.95)
        for name, codec in ways.items()
    ]
    found = [remark for (word, _), remark in claims(narrow(runs), *folders).items() if word == "compressed"]
    assert [remark.claim for remark in found] == [
        "int8 does not equal one machine: it sends its gradients as int8."
    ]
    assert found[0].numbers.endswith("Test accuracy: 95.00 % (narrow: 96.35 %).")


def test_an_accuracy_is_as_uncertain_as_its_test_set_is_small(runs):
    known = write_run(runs / "known", "", ranks=((9, 0, 0),), test_samples=2000)
    smaller = write_run(runs / "smaller", "", ranks=((9, 0, 0),), test_samples=100)
    assert "2,000 samples, ± 0.4 points" in legend(compare([known]), EN)
    assert "100 samples, ± 2.2 points" in legend(compare([known, smaller]), EN)
    assert "points" not in legend(compare([narrow(runs)]), EN), "a run of an older version"


def test_runs_with_the_same_bits_are_named(runs):
    other = {"w": np.array([1.0, -2.001])}
    folders = [narrow(runs, weights=other), ddp(runs, "a"), ddp(runs, "b"), ddp(runs, "c")]
    comparison = compare(folders)
    assert [[entry.name for entry in group] for group in same_bits(comparison)] == [["a", "b", "c"]]
    assert cells(comparison, "same_bits") == ["–", "2 others", "a", "a"]
    assert as_data(comparison.entries[2], comparison, EN)["same_bits_as"] == ["a", "c"]
    assert ("same bits", "a, b and c end with identical weights.") in claims(*folders)
    assert ("bits", "No two runs end with identical weights.") in claims(folders[0], folders[1])


def test_the_accuracy_beside_runs_with_the_same_bits_is_their_own(runs):
    other = {"weights": {"w": np.array([1.0, -2.1])}, "test_accuracy": 0.5}
    folders = [narrow(runs), ddp(runs, "a"), ddp(runs, "x", **other), ddp(runs, "y", **other)]
    found = [remark.numbers for (word, _), remark in claims(*folders).items() if word == "same bits"]
    assert [re.findall(r"[\d.]+ %", numbers) for numbers in found] == [["96.35 %"], ["50.00 %"]]


def test_the_effect_of_another_number_of_threads_is_a_remark_of_its_own(runs):
    wide = single(runs, weights={"w": np.array([1.0, -2.08])}, gradient=[4.0, 2.00001])
    folders = [wide, narrow(runs, gradient=[4.0, 2.0]), ddp(runs, gradient=[4.0, 2.0])]
    remark = claims(*folders)[
        "threads", "One process ends with other bits with 2 threads than with 1 thread."
    ]
    assert "After one step they differ by 2.5e-06" in remark.numbers
    assert "flips a ReLU" in remark.numbers
    assert "at the end the weights differ by 4.0e-02" in remark.numbers
    assert "threads" not in words(runs / "narrow", runs / "ddp")


def test_threads_do_not_explain_the_weights_of_another_task(runs):
    wide = write_run(runs / "wide", "--threads 2 --lr 0.1", weights={"w": np.array([9.0, 9.0])})
    assert "threads" not in words(wide, narrow(runs), ddp(runs))


def test_equality_is_claimed_only_of_runs_that_recorded_their_first_step(runs):
    folders = [narrow(runs, gradient=[1.0]), ddp(runs, "a", gradient=[1.0]), ddp(runs, "b", gradient=[1.0])]
    assert ("equal", "Every run equals narrow after one step from the same state.") in claims(*folders)
    (claim,) = (claim for word, claim in claims(*folders, ddp(runs, "unknown")) if word == "equal")
    assert "a and b" in claim
    assert "unknown" not in claim
    assert "Every" not in claim


def test_a_balanced_run_with_other_bits_is_explained(runs):
    uneven = write_run(
        runs / "uneven", f"{DDP} --balance", ranks=((9, 0, 0),) * 2, weights={"w": np.array([1.0, -2.1])}
    )
    assert ("balance", "uneven ends with other bits.") in claims(narrow(runs), uneven)
    assert "balance" not in words(runs / "narrow", ddp(runs))


def test_a_busy_machine_gets_no_verdict_on_speed(runs):
    slow = single(runs, step_ms=80, not_scheduled=0.46)
    folders = [slow, narrow(runs, not_scheduled=0.3), ddp(runs, not_scheduled=0.2)]
    found = claims(*folders)
    remark = found["busy", "The machine was busy: times are not comparable."]
    assert "single was ready to run but not scheduled for 46 % of its time" in remark.numbers
    assert not {"faster", "slower", "undecided", "waits", "moves", "efficient"} & set(words(*folders))
    assert "× as fast" not in text_of(*folders)
    assert cells(compare(folders), "all_cores") == cells(compare(folders), "one_core") == ["busy"] * 3
    assert ("same bits", "single, narrow and ddp end with identical weights.") in found


def test_runs_on_an_idle_machine_are_judged_although_another_was_delayed(runs):
    folders = [single(runs, not_scheduled=0.46), narrow(runs), ddp(runs)]
    found = claims(*folders)
    assert ("busy", "The machine was busy: the times of single are not comparable.") in found
    assert ("faster", "ddp is faster than one process with 1 thread.") in found
    assert cells(compare(folders), "one_core")[1:] == ["1.00", "1.80"]
    assert "busy" not in words(*folders[1:])


def test_a_run_with_more_processes_than_cores_is_crowded_and_blames_no_other_program(runs):
    crowded = write_run(
        runs / "server", "--strategy server --workers 2", ranks=((9, 0, 0),) * 2, not_scheduled=0.5, cores=2
    )
    folders = [single(runs), ddp(runs), crowded]
    comparison = compare(folders)
    assert [entry.is_crowded for entry in comparison.entries] == [False, False, True]
    assert "busy" not in words(*folders)
    assert cells(comparison, "all_cores")[-1] == "crowded"
    assert EN("legend.crowded") in short_legend(comparison, EN)


@pytest.mark.parametrize("not_scheduled", [None, 0.0])
def test_more_speed_up_than_cores_is_never_a_verdict(runs, not_scheduled):
    folders = [single(runs, step_ms=55, not_scheduled=not_scheduled), ddp(runs, not_scheduled=not_scheduled)]
    found = claims(*folders)
    claim = "The times are not comparable: no run can gain more than the number of its cores."
    assert "seems 5.50 × as fast as one process with 2 threads, on 2 cores" in found["busy", claim].numbers
    assert not {"faster", "slower", "waits", "moves", "efficient"} & set(words(*folders))


def test_more_speed_up_than_cores_is_possible_on_other_devices(runs):
    folders = [single(runs, step_ms=55, device="cuda:0"), ddp(runs, device="cuda:0")]
    assert ("faster", "ddp is faster than one process with 2 threads.") in claims(*folders)


def test_the_largest_difference_is_that_of_the_worst_tensor(tmp_path):
    big = {"a": np.array([1000.0]), "b": np.array([0.001]), "count": np.array([5])}
    save_file(big, tmp_path / "a")
    save_file(big | {"b": np.array([0.0011]), "count": np.array([9])}, tmp_path / "b")
    assert largest_difference(tmp_path / "b", tmp_path / "a") == pytest.approx(0.1)
    assert largest_difference(tmp_path / "missing", tmp_path / "a") is None
    (tmp_path / "broken").write_bytes(b"no weights")
    assert largest_difference(tmp_path / "broken", tmp_path / "a") is None
    assert first_step_difference(tmp_path / "broken", tmp_path / "a") is None


def test_after_one_step_gradients_are_compared_and_not_what_adam_makes_of_them(tmp_path):
    state = {
        "w": np.array([1.0, 1.0]),
        "optim.w.exp_avg": np.array([1.0, 1e-9]),
        "optim.w.step": np.array(1.0),
    }
    save_file(state, tmp_path / "a")
    # The second gradient has another sign by rounding, so Adam moves the weight the other way.
    save_file(state | {"w": np.array([1.0, 1.2]), "optim.w.exp_avg": np.array([1.0, -1e-9])}, tmp_path / "b")
    assert first_step_difference(tmp_path / "b", tmp_path / "a") == pytest.approx(2e-9)
    assert largest_difference(tmp_path / "b", tmp_path / "a") > 0.1
    plain = {"w": np.array([1.0, 2.0])}
    save_file(plain, tmp_path / "c")
    save_file({"w": np.array([1.0, 2.1])}, tmp_path / "d")
    assert first_step_difference(tmp_path / "d", tmp_path / "c") == pytest.approx(0.05)


ASP = "--strategy server --strategy.mode asp --workers 2 --threads 1"


@pytest.mark.parametrize(
    ("flags", "gradient", "kind"),
    [
        (DDP, [4.0, 2.00001], "rounding"),
        (DDP, [4.0, 2.2], "unexplained"),
        (DDP, None, None),
        (f"{DDP} --lr 0.1", [4.0, 2.0], "settings"),
        (f"{DDP} --precision bf16", [4.0, 2.0], "precision"),
        (f"{DDP} --partition random", [4.0, 2.0], "partition"),
        (f"{DDP} --exchange compressed:int8", [4.0, 2.0], "compressed"),
        (f"{DDP} --exchange robust:median --exchange.bad 0", [4.0, 2.0], "exchange"),
        (ASP, [4.0, 2.0], "server"),
        ("--strategy local --workers 2 --threads 1", [4.0, 2.0], "every"),
        ("--strategy pipeline --workers 2 --pipeline.schedule async", [4.0, 2.0], "schedule"),
    ],
)
def test_whether_a_run_equals_one_machine_and_why_not(runs, flags, gradient, kind):
    far = {"w": np.array([1.0, -2.2])}
    other = write_run(runs / "other", flags, ranks=((9, 0.5, 0),) * 2, gradient=gradient, weights=far)
    comparison = compare([narrow(runs, gradient=[4.0, 2.0]), other])
    assert [equals_one_machine(entry, comparison) for entry in comparison.entries] == ["reference", kind]
    last = [row[-1] for row in short_table(comparison, EN)[1]]
    assert (last[1].startswith("yes"), last[1].startswith("no")) == (
        kind == "rounding",
        kind not in ("rounding", None),
    )


def test_the_same_final_weights_are_the_same_bits_however_they_came_about(runs):
    comparison = compare([narrow(runs), write_run(runs / "asp", ASP, ranks=((9, 0.5, 0),) * 2)])
    assert equals_one_machine(comparison.entries[1], comparison) == "same_bits"
    alone = compare([runs / "asp", ddp(runs)])
    assert equals_one_machine(alone.entries[0], alone) is None


def test_the_short_table_measures_speed_by_the_reference(runs):
    several = compare([single(runs), narrow(runs), ddp(runs)])
    header, rows = short_table(several, EN)
    assert len(header) == 8
    assert [row[header.index("speed")] for row in rows] == ["1.80 ×", "1.00 ×", "1.80 ×"]
    assert "1 is narrow, 1 process with 1 thread" in short_legend(several, EN)
    header, rows = short_table(compare([ddp(runs, "a"), runs / "ddp"]), EN)
    assert [float(row[header.index("samples/s")].replace(",", "")) for row in rows] == pytest.approx(
        [6400] * 2, rel=0.02
    )


def test_without_an_accuracy_the_short_table_shows_a_metric_or_the_loss(runs):
    metrics = {"test_accuracy": None, "test_metrics": {"r2": 0.75}}
    header, rows = short_table(compare([narrow(runs, **metrics), ddp(runs, **metrics)]), EN)
    assert (header[1], rows[0][1]) == ("r2", metric_rows(compare([runs / "narrow"]))[0][0])
    losses = [ddp(runs, name, test_accuracy=None) for name in ("a", "b")]
    header, rows = short_table(compare(losses), EN)
    assert (header[1], rows[0][1]) == ("test loss", "0.1000")


def test_the_first_remark_of_each_rule_comes_before_the_second_of_any(runs):
    slow = {"ranks": ((3, 0.5, 1), (9, 0.5, 1)), "gradient": [4.0, 2.0]}
    folders = [narrow(runs, gradient=[4.0, 2.0]), *(write_run(runs / name, DDP, **slow) for name in "ab")]
    found = words(*folders)
    assert (found[:3], found.count("waits")) == (["faster", "equal", "waits"], 2)


def test_what_is_not_equal_comes_before_what_is_fast(runs):
    wrong = ddp(runs, "wrong", gradient=[9.0, 2.0])
    assert words(narrow(runs, gradient=[4.0, 2.0]), wrong)[:2] == ["differs", "faster"]
    busy = ddp(runs, "busy", not_scheduled=0.4)
    assert words(runs / "narrow", wrong, busy)[:2] == ["busy", "differs"]


def test_cores_that_one_process_does_not_have_are_named_with_the_ideal(runs):
    found = claims(narrow(runs), ddp(runs))["faster", "ddp is faster than one process with 1 thread."]
    assert found.numbers.endswith("It has 2 cores and one process 1: the ideal is 2.")
    four = write_run(runs / "four", "--strategy ddp --workers 2 --threads 2", ranks=((9, 0.5, 0),) * 2)
    assert notes(compare([single(runs), four]), EN) == []  # each worker has as many as one process


def test_a_slow_worker_is_named_and_balance_advised(runs):
    slow = write_run(runs / "slow", DDP, step_ms=10, ranks=((3, 0.5, 1), (9, 0.5, 1)))
    remark = claims(single(runs), slow)["waits", "slow: rank 1 is slow, and the others wait for it."]
    assert "rank 1 computes for 9.0 ms, rank 0 for 3.0 ms: 3.0 × as long" in remark.numbers
    assert "--balance" in remark.advice


def test_what_balancing_brought_is_said_either_way(runs):
    flags = f"{DDP} --bottleneck rank=1,slowdown=3"
    plain = write_run(runs / "plain", flags, step_ms=10, ranks=((3, 0.5, 1), (9, 0.5, 1)))
    better = write_run(runs / "better", f"{flags} --balance", step_ms=6, ranks=((5, 0.5, 1), (5, 0.5, 1)))
    worse = write_run(runs / "worse", f"{flags} --balance", step_ms=14, ranks=((3, 0.5, 1), (13, 0.5, 1)))
    assert ("faster", "better is faster than plain.") in claims(plain, better)
    assert ("slower", "worse is slower than plain.") in claims(plain, worse)
    assert "waiting goes from 30 % to 0 %" in text_of(plain, better)
    turns = write_run(
        runs / "turns", f"{flags} --balance", step_ms=10, turns=True, ranks=((4, 0.5, 1), (9, 0.5, 1))
    )
    assert "turns: the workers wait" in text_of(turns, better)
    assert "turns: the workers wait" not in text_of(plain, turns)  # said once, by the pair


def test_workers_that_wait_in_turns_are_no_slow_workers(runs):
    late = write_run(runs / "late", DDP, step_ms=10, turns=True, ranks=((4, 0.5, 1), (9, 0.5, 1)))
    found = claims(single(runs), late)
    assert ("waits", "late: the workers wait for each other in turns.") in found
    assert "is slow" not in text_of(runs / "single", late)


@pytest.mark.parametrize(
    ("flags", "advice"),
    [
        ("--strategy naive --workers 2", "--strategy ddp"),
        ("--strategy dp --workers 2", "--strategy ddp"),
        ("--strategy ddp --workers 2 --group gloo", "--group shm"),
        ("--strategy ddp --workers 2 --exchange by:ring", "without --exchange"),
        ("--strategy ddp --workers 2", "--batch-size 256"),
    ],
)
def test_what_moves_much_gets_advice_that_fits(runs, flags, advice):
    moving = write_run(runs / "moving", flags, step_ms=10, ranks=((7, 3, 0), (7, 3, 0)))
    (remark,) = [r for r in verdict(compare([single(runs), moving]), EN) if r.word == "moves"]
    assert "30 % of the workers' time, for 1 call and 1.0 kB in every step" in remark.numbers
    assert advice in remark.advice


@pytest.mark.parametrize(
    ("flags", "encode_ms", "advice"),
    [
        ("--group gloo", 3, "No compression"),
        ("--group shm", 3, "No compression"),
        ("--group gloo", 0.5, "without compression"),
        ("--link all:20mbit", 0.5, "--batch-size 256"),
    ],
)
def test_a_codec_on_a_fast_link_gets_the_advice_not_to_compress(runs, flags, encode_ms, advice):
    flags = f"{DDP} --exchange compressed:topk {flags}"
    ranks = ((5, 1.5, 0),) * 2
    coded = write_run(runs / "coded", flags, step_ms=10, ranks=ranks, encode_ms=encode_ms, noise=0)
    comparison = compare([single(runs), coded])
    shares = comparison.entries[1].shares
    assert shares["encode"] == pytest.approx(encode_ms / 10, abs=0.01)
    assert shares["move"] == pytest.approx(0.15, abs=0.01), "encoding is not moving"
    found = {r.kind: r for r in verdict(comparison, EN) if r.kind in ("encodes", "moves")}
    assert ("encodes" in found) == (encode_ms >= 1)
    assert all(advice in r.advice and "--group" not in r.advice for r in found.values())
    assert share_row(comparison)["encode"]


def test_without_a_codec_no_column_shows_encoding(runs):
    plain = write_run(runs / "plain", DDP, step_ms=10, ranks=((9, 0.5, 0),) * 2)
    assert "encode" not in share_row(compare([single(runs), plain]))


def test_sent_is_a_workers_mean_and_mapped_what_did_not_travel(runs):
    folders = [single(runs), write_run(runs / "one", DDP, ranks=((9, 0.5, 0),) * 2, mapped_bytes=900)]
    comparison = compare(folders)
    entry = comparison.entries[1]
    assert (entry.sent_bytes, entry.mapped_bytes) == (40 * 1000, 40 * 900)
    data = as_data(entry, comparison, EN)
    assert (data["bytes_sent"], data["bytes_mapped"]) == (40_000, 36_000)


def test_bytes_of_an_older_version_are_no_number_of_the_table(runs):
    """It counted buffers, so its number means something else."""
    old = write_run(runs / "old", DDP, ranks=((9, 0.5, 0),) * 2, counts_bytes=False)
    comparison = compare([single(runs), old])
    row = dict(zip(COLUMNS, full_table(comparison, EN)[1][1], strict=True))
    assert (row["sent"], row["mapped"]) == ("–", "–")
    assert any("older version" in note for note in notes(comparison, EN))
    assert as_data(comparison.entries[1], comparison, EN)["bytes_sent"] is None


def test_where_nothing_is_slow_that_is_said(runs):
    busy = write_run(runs / "busy", DDP, step_ms=10, ranks=((9.8, 0.2, 0), (9.8, 0.2, 0)))
    assert "efficient" in words(single(runs), busy)
    assert "computes for 98 %" in text_of(runs / "single", busy)


def test_slower_than_one_process_is_said(runs):
    poor = write_run(runs / "poor", DDP, step_ms=20, ranks=((9, 11, 0), (9, 11, 0)))
    found = claims(single(runs), poor)
    assert ("slower", "No run with several workers is as fast as one process with 2 threads.") in found


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ("--strategy local --workers 2 --threads 1", "--strategy.every 20 averages weights"),
        (
            "--strategy local --strategy.every 1 --workers 2 --threads 1",
            "--strategy.every 1 averages weights",
        ),
        (f"{DDP} --exchange compressed:int8", "--exchange compressed gives another aggregate"),
        (f"{DDP} --lr 0.1", "optimizer.lr = 0.1 (not 0.002)"),
        (f"{DDP} --exchange compressed:topk --exchange.ratio 1", ""),
        (f"{DDP} --exchange by:ring", ""),
    ],
)
def test_threads_explain_the_speed_only_of_a_run_that_does_the_work_of_one_process(runs, flags, reason):
    fast = write_run(runs / "fast", flags, step_ms=6, ranks=((6, 0, 0),) * 2)
    folders = [single(runs), fast]
    numbers = claims(*folders)["faster", "fast is faster than one process with 2 threads."].numbers
    assert ("better than threads" in numbers) == ("1 is the expected value" in numbers) == (not reason)
    assert reason in numbers


def test_the_fastest_that_does_the_same_work_stands_before_a_faster_one_that_does_not(runs):
    local = "--strategy local --workers 2 --threads 1"
    fast = write_run(runs / "local", local, step_ms=6, ranks=((6, 0, 0),) * 2)
    slow = write_run(runs / "slow", DDP, step_ms=12, ranks=((12, 0, 0),) * 2)
    found = [claim for word, claim in claims(single(runs), fast, slow) if word in ("faster", "slower")]
    one = "one process with 2 threads."
    assert found == [f"slow is slower than {one}", f"local is faster than {one}"]


def test_gloo_and_shared_memory_are_set_against_each_other(runs):
    gloo = write_run(runs / "gloo", f"{DDP} --group gloo", step_ms=12, ranks=((9, 3, 0), (9, 3, 0)))
    shm = write_run(runs / "shm", f"{DDP} --group shm", step_ms=9.5, ranks=((9, 0.5, 0), (9, 0.5, 0)))
    assert ("faster", "shm is faster than gloo.") in claims(gloo, shm)


def test_another_task_is_compared_with_a_note(runs):
    other = write_run(runs / "other", "--threads 2 --lr 0.1 --model mlp")
    (note,) = notes(compare([single(runs), other]), EN)
    assert note.startswith("other is another task than single:")
    assert "optimizer.lr = 0.1 (not 0.002)" in note
    assert "model.name = mlp (not lenet)" in note


def test_other_cores_and_other_devices_are_compared_with_a_note(runs):
    four = write_run(runs / "four", "--strategy ddp --workers 4 --threads 1", ranks=((9, 0, 0),) * 4)
    gpu = write_run(runs / "gpu", "--threads 2", device="cuda:0")
    noted = " ".join(notes(compare([single(runs), four, gpu]), EN))
    assert "four has 4 threads in all, single 2 threads in all" in noted
    assert "gpu ran on cuda:0, single on cpu" in noted


def test_without_single_there_is_no_speed_up_and_a_note(runs):
    one = write_run(runs / "one", DDP, ranks=((9, 0, 0), (9, 0, 0)))
    two = write_run(runs / "two", f"{DDP} --group gloo", ranks=((9, 0, 0), (9, 0, 0)))
    comparison = compare([one, two])
    assert comparison.reference is None
    assert all(row[4] == row[5] == row[-3] == row[-1] == "–" for row in full_table(comparison, EN)[1])
    assert "No run is `single`" in notes(comparison, EN)[0]


def test_one_core_alone_is_not_called_all_cores(runs):
    narrow = write_run(runs / "narrow", "--threads 1")
    comparison = compare([narrow, write_run(runs / "ddp", DDP, ranks=((9, 0, 0), (9, 0, 0)))])
    assert comparison.all_cores is None
    assert comparison.reference is comparison.one_core
    assert "one process with 1 thread" in text_of(narrow, runs / "ddp")


def test_what_did_not_finish_is_refused(runs):
    folder = single(runs)
    result = json.loads((folder / "result.json").read_text())
    result.pop("sha256")
    RunFolder(folder).write_result(result | {"status": "interrupted"})
    with pytest.raises(ConfigError, match="did not finish") as error:
        compare([folder])
    assert "--resume" in error.value.hint
    (folder / "result.json").unlink()
    with pytest.raises(ConfigError, match="did not finish"):
        compare([folder])
    with pytest.raises(ConfigError, match="is not a run folder"):
        compare([runs])


def test_what_did_not_finish_is_left_out_where_two_others_did(runs):
    folders = [single(runs / "a"), single(runs / "b"), single(runs / "c")]
    (folders[1] / "result.json").unlink()
    comparison = compare(folders)
    assert [entry.run.folder.path for entry in comparison.entries] == [folders[0], folders[2]]
    (note,) = [note for note in notes(comparison, EN) if "did not finish" in note]
    assert f"{folders[1]} did not finish and is left out" in note
    assert f"shoal train --resume {folders[1]}" in note
    assert "--trust-code" not in note


def test_resuming_a_run_with_code_of_ones_own_needs_consent(runs):
    folder = single(runs)
    (folder / "result.json").unlink()
    config = folder / "config.toml"
    config.write_text(re.sub(r"(\[model\]\nname = )\S+[^\[]*", r'\1"mine:net"\n\n', config.read_text()))
    with pytest.raises(ConfigError, match="did not finish") as error:
        compare([folder])
    assert error.value.hint.endswith(f"shoal train --resume {folder} --trust-code")


@pytest.mark.parametrize(
    ("file", "content", "sentence"),
    [
        ("result.json", "[]", "result.json is missing or unreadable"),
        ("result.json", '{"status": "completed"}', "is damaged: result.json does not match its checksum"),
        ("result.json", "{", "result.json is missing or unreadable"),
        ("events.rank0.jsonl", '{"event": "step"}\n' * 2, "is damaged: line 1 of events.rank0.jsonl"),
        ("events.rank0.jsonl", "", "is damaged: events.rank0.jsonl does not have all 40 steps"),
        ("model.safetensors", "{", "cannot read weights"),
        ("config.toml", "[", "not valid TOML"),
    ],
)
def test_a_damaged_run_is_named_in_one_sentence(runs, file, content, sentence):
    folders = [single(runs / "a"), single(runs / "b")]
    (folders[1] / file).write_text(content)
    with pytest.raises(ShoalError, match=sentence) as error:
        compare(folders)
    assert str(folders[1]) in error.value.message


def test_numbers_without_checksums_are_called_unchecked(runs):
    folders = [single(runs / "a"), single(runs / "b", run_id="")]
    (note,) = [note for note in notes(compare(folders), EN) if "unchecked" in note]
    assert f"{folders[1]} are unchecked" in note


def test_a_result_of_an_older_version_with_impossible_values_is_one_sentence(runs):
    folder = single(runs, run_id="")
    result = json.loads((folder / "result.json").read_text())
    for key, value in (("test_accuracy", "high"), ("steps", None), ("seconds", [1])):
        changed = {name: found for name, found in result.items() if name != "sha256"} | {key: value}
        changed = {name: found for name, found in changed.items() if found is not None}
        (folder / "result.json").write_text(json.dumps(changed))
        with pytest.raises(ConfigError, match=f"is damaged: result.json has (no )?{key}"):
            compare([folder])


def test_weights_that_are_missing_are_noted(runs):
    folders = [single(runs / "a"), single(runs / "b")]
    (folders[1] / "model.safetensors").unlink()
    assert "The weights of" in " ".join(notes(compare(folders), EN))


def test_runs_of_one_name_are_distinguished_by_their_path(runs):
    folders = [single(runs / "a"), single(runs / "b")]
    assert [entry.name for entry in compare(folders).entries] == [str(folder) for folder in folders]


def test_settings_apart_see_through_choices():
    a, b = read("quickstart", []), read("quickstart", ["--model", "mlp"])
    assert settings_apart(a, b) == {"model.name": ("lenet", "mlp"), "model.hidden": (None, b.model.hidden)}
    assert settings_apart(a, replace(a)) == {}


def test_a_run_is_described_in_a_few_words():
    flags = "--strategy ddp --workers 2 --threads 1 --balance --bottleneck rank=1,slowdown=3"
    words = described(read("quickstart", flags.split()), EN)
    assert words == "ddp, 2 workers with 1 thread each, shared memory, bottleneck rank=1,slowdown=3, balanced"
    assert described(read("quickstart", []), EN) == "single, 1 process with all threads"


def test_the_report_holds_table_verdict_and_figures(runs, tmp_path):
    folders = [single(runs), write_run(runs / "slow", DDP, step_ms=10, ranks=((3, 0.5, 1), (9, 0.5, 1)))]
    comparison = compare(folders)
    remarks = verdict(comparison, EN)
    write_report(tmp_path / "out", comparison, remarks, "shoal compare x", {"cores": "2"}, EN)
    page = (tmp_path / "out/report.html").read_text(encoding="utf-8")
    markdown = (tmp_path / "out/report.md").read_text(encoding="utf-8")
    for word in ("rank 1 is slow", "× all cores", "reference", "measured on every step", "shoal compare x"):
        assert word in page
        assert word in markdown
    for figure in ("loss", "time"):
        assert (tmp_path / f"out/figures/{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / f"out/figures/{figure}.pdf").read_bytes().startswith(b"%PDF")
    assert (tmp_path / "out/tables/runs.csv").read_text().startswith("name,how,strategy,workers")
    assert (tmp_path / "out/tables/workers.csv").read_text().count("\n") == 4


@pytest.mark.usefixtures("without_figures")
def test_the_page_opens_with_three_findings_table_and_figures_and_folds_the_rest(runs, tmp_path):
    folders = [narrow(runs, gradient=[4.0, 2.0])]
    folders += [ddp(runs, name, gradient=[4.0, 2.0], ranks=((5, 0.5, 0), (9, 0.5, 0))) for name in "abc"]
    comparison = compare(folders)
    remarks = verdict(comparison, EN)
    write_report(tmp_path / "out", comparison, remarks, "shoal compare x", {"cores": "2"}, EN)
    first, *folded = (tmp_path / "out/report.html").read_text(encoding="utf-8").split("<details>")
    assert first.count('class="finding') == 3
    assert first.count("<table") == 1
    assert first.count("<svg") == 2 * 2  # wide and narrow
    rest = "".join(folded)
    assert rest.count('class="finding') == len(remarks) - 3 > 0
    for shown in ("invariant bits", "shoal compare x", "ready but not scheduled"):
        assert (shown in rest, shown in first) == (True, False)


def page_of(folders, out):
    comparison = compare(folders)
    write_report(out, comparison, verdict(comparison, EN), "shoal compare x", {}, EN)
    return (out / "report.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("without_figures")
def test_every_table_fits_on_a_page(runs, tmp_path):
    names = [f"with-a-longer-name-{number}" for number in range(3)]
    page = page_of([narrow(runs), *(ddp(runs, name) for name in names)], tmp_path / "out")
    widths = {line.count("|") - 1 for line in page.splitlines() if line.startswith("| run")}
    assert max(widths) <= 9
    (equality,) = (line for line in page.splitlines() if "invariant bits |" in line)
    assert "samples/s" not in equality


@pytest.mark.usefixtures("without_figures")
def test_the_opening_calls_batches_and_weights_the_same_only_where_they_are(runs, tmp_path):
    same = [narrow(runs), ddp(runs), write_run(runs / "local", "--strategy local --workers 2 --threads 1")]
    other = write_run(runs / "other", "--threads 1 --lr 0.1")
    parts = write_run(runs / "parts", f"{DDP} --partition random", ranks=((9, 0, 0),) * 2)
    assert "takes the same batches" in page_of(same, tmp_path / "same")
    assert "takes the same batches" not in page_of([*same, other], tmp_path / "other")
    assert "takes the same batches" not in page_of([*same, parts], tmp_path / "parts")


@pytest.mark.usefixtures("without_figures")
def test_staleness_and_pushes_to_a_parameter_server_are_on_the_page(runs, tmp_path):
    flags = "--strategy server --strategy.mode asp --workers 2 --threads 1"
    folder = write_run(runs / "asp", flags, ranks=((9, 0.5, 1), (9, 0.5, 1)))
    events = [
        *(
            {"event": "update", "rank": rank, "step": step, "staleness": rank}
            for rank, step in ((0, 0), (1, 0), (0, 1), (0, 2))
        ),
        {"event": "lost", "rank": 1, "version": 3, "step": 1},
    ]
    write_events(folder, 2, events)
    comparison = compare([single(runs), folder])
    write_report(tmp_path / "out", comparison, [], "shoal compare x", {}, EN)
    page = (tmp_path / "out/report.md").read_text(encoding="utf-8")
    assert "Staleness of asp, by updates: 0: 75 %, 1: 25 % (mean 0.25, at most 1)." in page
    cells = [[cell.strip() for cell in line.split("|")] for line in page.splitlines() if "| asp" in line]
    assert ["", "asp", "0", "3", "0", "0.00", "", ""] in cells
    assert ["", "asp", "1", "1", "0", "1.00", "3 updates", ""] in cells


def test_runs_that_divide_the_model_have_remarks_of_their_own(runs):
    late = ((4, 0.5, 1), (9, 0.5, 1))
    divided = {
        "pipe": "--strategy pipeline --workers 2 --threads 1 --pipeline.microbatches 4",
        "tensor": "--strategy tensor --workers 2 --threads 1",
        "rpc": "--strategy rpc --workers 2 --threads 1",
    }
    folders = [write_run(runs / name, flags, step_ms=10, ranks=late) for name, flags in divided.items()]
    found = claims(single(runs), *folders)
    bubble = found["bubble", "pipe: stages wait for each other at the beginning and the end of a step."]
    assert (
        "1f1b with 4 micro-batches on 2 equal stages has a bubble of (p − 1) / (m + p − 1) = 20 %"
        in bubble.numbers
    )
    assert "the longest stage computes 2.2 × as long as the shortest" in bubble.numbers
    assert "--pipeline.microbatches 8" in bubble.advice
    tensor = found["moves", "tensor: the workers exchange activations in every divided layer."]
    assert tensor.numbers.startswith("1 call in every step")
    rpc = found["waits", "rpc: while one worker computes its layers, the others wait."]
    assert "--strategy.microbatches 4" in rpc.advice
    assert not any("--balance" in remark.advice for remark in found.values())


def test_invariant_bits_of_every_run(runs):
    one = with_invariant_steps(single(runs), "same")
    same = with_invariant_steps(write_run(runs / "same", DDP), "same")
    other = with_invariant_steps(write_run(runs / "other", DDP), "another")
    broken = with_invariant_steps(write_run(runs / "broken", DDP), None)
    without = write_run(runs / "without", DDP)
    found = compare([one, same, other, broken, without])
    assert cells(found, "invariant") == ["reference", "identical", "differs", "failed", "–"]
    assert as_data(found.entries[1], found, EN)["invariant_bits"] == "identical"
    remarks = {remark.claim: remark for remark in verdict(found, EN)}
    assert remarks["same: the bits of one process with --reduction invariant."].tone == "holds"
    assert remarks["other: its steps with --reduction invariant end with other bits."].tone == "fails"
    assert "broken/invariant" in remarks["broken: its steps with --reduction invariant failed."].advice
