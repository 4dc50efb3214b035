"""Causes of slow steps from made-up records: each is named with its worker, and its absence is silent."""

import pytest
from made_runs import DDP, write_events, write_profile, write_run

from shoal.compare.causes import Traffic
from shoal.compare.comparison import compare
from shoal.compare.one_run import findings
from shoal.events.file import read_events
from shoal.events.folder import RunFolder
from shoal.report.words import page_words

LANGUAGES = {lang: page_words(lang, "shoal.compare") for lang in ("en", "zh")}
MS = 1_000_000
SLOW, EVEN, MOVING = ((3, 0.2, 1), (9, 0.2, 1)), ((9.6, 0.2, 0),) * 2, ((5, 4.5, 0),) * 2


def work(data, compute):
    """Nanoseconds of a rank by kind, the same in every step but for a nanosecond."""
    return lambda rank, step: {
        "totals_ns": {
            "data": round(data[rank] * MS) + step % 3,
            "compute": round(compute[rank] * MS) + step % 3,
        }
    }


def stalls(name, ranks, ms=8.0):
    """Some ranks do something in every fourth step."""
    return lambda rank, step: (
        {"stalls_ns": {name: round(ms * MS) + step}} if rank in ranks and step % 4 == 3 else {}
    )


def both(*noted):
    return lambda rank, step: {key: value for each in noted for key, value in each(rank, step).items()}


def unused(*names, searches=False, checks=5):
    found = {"checks": checks, "count": 9, "searches": searches, "unused": [*names]}
    return lambda rank: {"parameters": found}


def memory(*used):
    return lambda rank: {"memory": {"name": "container", "used": used[rank], "limit": 1000}}


CASES = {
    "compute": ({"ranks": SLOW}, "waits", "rank 1 is slow"),
    "rest": ({"ranks": SLOW, "noted": work((0, 0), (3, 3))}, "waits", "rank 1 is slow"),
    "data": ({"ranks": SLOW, "noted": work((1, 7), (2, 2))}, "loads", "rank 1 is slow in getting its data"),
    "data of all": ({"ranks": EVEN, "noted": work((5, 5), (4, 4))}, "loads", "waits for its data"),
    "batches": (
        {"ranks": SLOW, "noted": lambda rank, step: {"rows": (8, 24)[rank]}},
        "batches",
        "rank 1 gets larger batches",
    ),
    "evaluation": (
        {"ranks": EVEN, "noted": stalls("evaluation", [0])},
        "evaluates",
        "rank 0 evaluates alone",
    ),
    "saving": ({"ranks": EVEN, "noted": stalls("save", [0, 1])}, "saves", "stop the training"),
    "saving alone": ({"ranks": EVEN, "noted": stalls("save", [1])}, "saves", "rank 1 saves"),
    "reads": (
        {"ranks": EVEN, "noted": lambda rank, step: {"synchronised": [3, 4 * MS + step]}},
        "synchronises",
        "waits for the GPU",
    ),
    "unused": ({"ranks": EVEN, "closing": unused("head.weight")}, "unused", "never get a gradient"),
    "search": ({"ranks": EVEN, "closing": unused(searches=True)}, "unused", "there are none"),
    "memory": ({"ranks": EVEN, "closing": memory(300, 950)}, "memory", "rank 1 is near its limit"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_cause_comes_first_with_its_worker_in_both_languages(name, tmp_path):
    options, kind, claim = CASES[name]
    run = compare([write_profile(tmp_path / "it", **options)])
    first, *_ = findings(run, LANGUAGES["en"])
    assert (first.kind, first.tone) == (kind, "fails")
    assert claim in first.claim
    chinese = findings(run, LANGUAGES["zh"])[0]
    assert (chinese.kind, chinese.tone) == (kind, "fails")
    for remark in (first, chinese):
        assert remark.numbers
        assert remark.advice
        assert "{" not in remark.claim + remark.numbers + remark.advice


SILENT = {
    "little data": {"noted": work((0.5, 0.5), (9, 9))},
    "evaluation of all": {"noted": stalls("evaluation", [0, 1])},
    "short saving": {"noted": stalls("save", [0], ms=1.0)},
    "short reads": {"noted": lambda rank, step: {"synchronised": [1, MS // 10 + step]}},
    "used elsewhere": {"closing": lambda rank: unused(("left", "right")[rank])(rank)},
    "looked once": {"closing": unused("head.weight", checks=1)},
    "a search that finds": {"closing": lambda rank: unused(*["left"][rank:], searches=True)(rank)},
    "memory left": {"closing": memory(300, 700)},
    "more rows, the same time": {"noted": lambda rank, step: {"rows": (8, 24)[rank]}},
}


@pytest.mark.parametrize("name", SILENT)
def test_what_is_no_cause_is_not_named(name, tmp_path):
    found = findings(compare([write_profile(tmp_path / "it", ranks=EVEN, **SILENT[name])]), LANGUAGES["en"])
    assert [remark.kind for remark in found] == ["efficient"]


def test_the_cause_that_costs_the_most_comes_first(tmp_path):
    noted = both(stalls("save", [0, 1], ms=9.0), work((1, 7), (2, 2)))
    found = findings(compare([write_profile(tmp_path / "it", ranks=SLOW, noted=noted)]), LANGUAGES["en"])
    assert [remark.kind for remark in found] == ["loads", "saves"]


@pytest.mark.parametrize(("delay", "kinds"), [(0.15, ["waits", "busy"]), (0.3, ["busy"])])
def test_on_a_busy_machine_only_what_it_cannot_have_caused_is_named(delay, kinds, tmp_path):
    run = compare([write_profile(tmp_path / "it", ranks=SLOW, not_scheduled=delay)])
    assert [remark.kind for remark in findings(run, LANGUAGES["en"])] == kinds


def test_facts_without_times_hold_on_a_busy_machine(tmp_path):
    path = write_profile(tmp_path / "it", ranks=EVEN, not_scheduled=0.4, closing=memory(950, 300))
    found = findings(compare([path]), LANGUAGES["en"])
    assert [remark.kind for remark in found] == ["memory", "busy"]


def test_what_has_a_reason_comes_before_exchanges_that_take_long_without_one(tmp_path):
    path = write_profile(tmp_path / "it", ranks=MOVING, closing=unused("head.weight"))
    found = findings(compare([path]), LANGUAGES["en"])
    assert [remark.kind for remark in found] == ["unused", "moves"]


def test_a_worker_with_a_larger_share_is_told_from_a_slow_one(tmp_path):
    flags = f"{DDP} --bottleneck rank=1,share=0.75"
    first, *_ = findings(compare([write_run(tmp_path / "it", flags, ranks=SLOW)]), LANGUAGES["en"])
    assert first.kind == "batches"
    assert "48 samples" in first.numbers


def test_checkpoints_of_a_run_are_no_part_of_its_steps(tmp_path):
    folder = write_run(tmp_path / "it", DDP, ranks=EVEN)
    assert findings(compare([folder]), LANGUAGES["en"])[0].kind == "efficient"
    for rank in range(2):
        path = RunFolder(folder).events(rank)
        *steps, end = read_events(path)
        saves = [{"event": "checkpoint", "step": 10 * n, "seconds": 0.05 + n / 1000} for n in range(1, 5)]
        write_events(folder, rank, [*steps, *saves, end])
    first, *_ = findings(compare([folder]), LANGUAGES["en"])
    assert first.kind == "saves"
    assert "4 times" in first.numbers


@pytest.mark.parametrize(("data", "kind"), [("mine:photos", "loads"), ("digits", "efficient")])
def test_loaders_are_advised_where_data_are_not_in_memory(data, kind, tmp_path):
    folder = write_run(tmp_path / "it", f"{DDP} --data {data}", ranks=EVEN)
    for rank in range(2):
        path = RunFolder(folder).events(rank)
        slow = work((5, 5), (4, 4))
        write_events(
            folder,
            rank,
            [each | (slow(rank, each["step"]) if "totals_ns" in each else {}) for each in read_events(path)],
        )
    first, *_ = findings(compare([folder]), LANGUAGES["en"])
    assert first.kind == kind
    assert ("--data.loaders" in first.advice) == (kind == "loads")


@pytest.mark.parametrize(
    ("calls", "sent_bytes", "why"),
    [(40, 40_000, "buckets"), (2, 2_000, "moves"), (2, 2_000_000, "link"), (2, 20_000_000, "moves")],
)
def test_many_small_calls_are_told_from_a_slow_link(calls, sent_bytes, why):
    assert Traffic(calls, sent_bytes, move_s=0.1).why == why
