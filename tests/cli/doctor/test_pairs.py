"""One node measures another, here over loopback."""

import pytest

from shoal.cli.doctor.pairs import Answerer, Found, latency_s, measure
from shoal.comm.rendezvous.secret import TagKey

KEY = TagKey.of(b"a secret of sixteen bytes")


@pytest.fixture
def answerer():
    found = Answerer("127.0.0.1", 1, KEY)
    yield found
    found.close()


def test_a_node_that_answers_is_measured(answerer):
    found = measure("127.0.0.1", answerer.port, 0, 1, KEY)
    assert found.error == ""
    assert found.round_trip_s > 0
    assert found.bits_per_s > 0
    assert abs(found.clock_s) <= found.round_trip_s  # one machine has one clock
    assert latency_s(found.answers_per_s) == pytest.approx(found.latency_s)


@pytest.mark.parametrize(
    ("key", "answers"), [(TagKey.of(b"another secret of any length"), 1), (KEY, 2)], ids=["secret", "rank"]
)
def test_strangers_get_no_answer(answerer, key, answers):
    found = measure("127.0.0.1", answerer.port, 0, answers, key)
    assert found.error
    assert found == Found(found.error, found.repair)


def test_a_port_where_nothing_listens_is_an_error_with_a_way_out():
    answerer = Answerer("127.0.0.1", 1, KEY)
    answerer.close()
    found = measure("127.0.0.1", answerer.port, 0, 1, KEY)
    assert found.error
    assert found.repair
