"""Messages on a wire: one after the other, at its rate, each then on its way for the latency."""

from hypothesis import given
from hypothesis import strategies as st

from shoal.comm.links.courier import Wire
from shoal.config.conditions import Link


def test_messages_queue_and_the_latency_is_not_queued():
    wire = Wire(Link(None, bits_per_s=8e9, latency_s=1e-3))  # a byte takes a nanosecond
    assert wire.admit(0, 500) == (500, 1_000_500)
    assert wire.admit(100, 500) == (1000, 1_001_000), "the second waits until the first has left"
    assert wire.admit(5000, 500) == (5500, 1_005_500), "an idle wire takes a message at once"
    assert wire.admit(5000, 0) == (5500, 1_005_500), "an empty message overtakes nothing"


def test_without_a_link_nothing_is_delayed():
    wire = Wire(None)
    assert [wire.admit(7, size) for size in (0, 10**9)] == [(7, 7), (7, 7)]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=50), st.floats(1e3, 1e11))
def test_a_busy_wire_carries_exactly_its_rate(sizes, bits_per_s):
    wire = Wire(Link(None, bits_per_s=bits_per_s))
    gone_ns = [wire.admit(0, size)[0] for size in sizes]
    assert gone_ns == sorted(gone_ns)
    assert abs(gone_ns[-1] - sum(sizes) * 8e9 / bits_per_s) <= 1 + 1e-9 * gone_ns[-1]
