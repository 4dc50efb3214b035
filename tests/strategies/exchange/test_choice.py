"""The choice among exchanges: predicted times, the rule, the break-even rate, the sentence."""

import math

import pytest

from shoal.strategies.exchange.choice import Candidate, Choice, GroupCall, LinkTimes

DENSE_BYTES = 1_000_000


def link(bits_per_s, workers=2, latency_s=0.0):
    """Ideal collectives: a ring for the sum, all pieces to everyone for the gather."""
    size = 10 * DENSE_BYTES
    a_sum = latency_s + 8 * size * 2 * (workers - 1) / workers / bits_per_s
    a_gather = latency_s + 8 * size * (workers - 1) / bits_per_s
    points = {"all_reduce": [(0, latency_s), (size, a_sum)], "all_gather": [(0, latency_s), (size, a_gather)]}
    return LinkTimes(workers, points)


NONE = Candidate("none", 0.0, [GroupCall("all_reduce", DENSE_BYTES)])
FP16 = Candidate("fp16", 0.001, [GroupCall("all_reduce", DENSE_BYTES // 2)])
INT8 = Candidate("int8", 0.012, [GroupCall("all_gather", DENSE_BYTES // 4)])
LOW_RANK = Candidate(
    "powersgd",
    0.006,
    [GroupCall("all_reduce", DENSE_BYTES // 200), GroupCall("all_reduce", DENSE_BYTES // 200)],
)


@pytest.mark.parametrize(
    ("bits_per_s", "latency_s", "chosen"),
    [
        (100e9, 0.0, "none"),  # 0.08 ms; every codec takes longer
        (1e9, 0.0, "fp16"),  # 8 ms; 1 + 4; 12 + 2; 6 + 0.08
        (100e6, 0.0, "powersgd"),  # 80 ms; 1 + 40; 12 + 20; 6 + 0.8
        (100e6, 0.05, "int8"),  # 130 ms; 91; 82; 106.8 for two messages
    ],
)
def test_the_fastest_is_chosen(bits_per_s, latency_s, chosen):
    choice = Choice(link(bits_per_s, latency_s=latency_s), [NONE, FP16, INT8, LOW_RANK], NONE)
    assert choice.chosen.name == chosen


def test_of_candidates_that_are_about_as_fast_the_first_is_chosen():
    slower = Candidate("preferred", 0.0104, [])
    faster = Candidate("faster", 0.0100, [])
    much_faster = Candidate("much faster", 0.0050, [])
    on = link(1e9)
    assert Choice(on, [slower, faster], NONE).chosen is slower
    assert Choice(on, [slower, faster, much_faster], NONE).chosen is much_faster


def test_the_break_even_rate_is_where_the_predictions_meet():
    for candidate in (FP16, INT8, LOW_RANK):
        for workers in (2, 3):
            rate = candidate.break_even_bits_per_s(NONE, workers)
            at_rate = link(rate, workers)
            assert math.isclose(candidate.seconds(at_rate), NONE.seconds(at_rate), rel_tol=1e-9)
    # Among nine workers each receives eight pieces of a quarter; the sum is 2 · 8 / 9 of a whole.
    assert INT8.break_even_bits_per_s(NONE, 9) == 0
    assert NONE.break_even_bits_per_s(NONE, 2) == 0


def test_the_record_has_every_candidate_and_says_why():
    record = Choice(link(100e6), [NONE, INT8], NONE).record()
    assert record["chosen"] == "int8"
    assert record["reason"] == (
        "predicted exchange of 32.0 ms per step on links of 100 Mbit/s, 80.0 ms without compression"
    )
    assert record["candidates"] == [
        {
            "codec": "none",
            "encode_decode_ms": 0.0,
            "bytes": DENSE_BYTES,
            "predicted_ms": 80.0,
            "break_even_gbit_s": 0.0,
        },
        {
            "codec": "int8",
            "encode_decode_ms": 12.0,
            "bytes": DENSE_BYTES // 4,
            "predicted_ms": 32.0,
            "break_even_gbit_s": 0.5,
        },
    ]
    fast = Choice(link(100e9), [NONE, INT8], NONE)
    assert fast.reason.endswith("on links of 100 Gbit/s, 12.0 ms with the fastest codec (int8)")


def test_the_rate_of_a_link_is_measured_without_latency_unless_latency_is_all_there_is():
    bits_per_s, latency_s = 100e6, 0.004
    assert math.isclose(link(bits_per_s, latency_s=latency_s).bits_per_s, bits_per_s)
    noisy = LinkTimes(2, {"all_gather": [(1024, 0.0010), (16384, 0.0009)]})
    assert math.isclose(noisy.bits_per_s, 8 * 16384 / 0.0009)
