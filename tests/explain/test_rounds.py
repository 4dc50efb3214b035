"""Explanations come from the running algorithms and agree with what is known about them."""

import xml.etree.ElementTree as ElementTree

import pytest

from shoal.comm.algorithms import ALGORITHMS
from shoal.comm.costs import sends
from shoal.errors import ConfigError
from shoal.explain.rounds import as_svg, as_text, explain


@pytest.mark.parametrize(
    ("name", "workers", "rounds"),
    [
        ("central", 5, 2),
        ("reduce_broadcast", 4, 6),
        ("all_gather_sum", 5, 1),
        ("reduce_scatter_all_gather", 5, 2),
        ("ring", 4, 6),
        ("ring", 5, 8),
        ("tree", 8, 6),
        ("tree", 5, 4),
        ("halving_doubling", 8, 6),
        ("halving_doubling", 6, 6),
        ("ring", 1, 0),
    ],
)
def test_rounds(name, workers, rounds):
    assert explain(name, workers).num_rounds == rounds


@pytest.mark.parametrize("name", ALGORITHMS)
def test_messages_are_those_of_the_costs(name):
    explanation = explain(name, 6)
    for rank in range(6):
        count, buffers = explanation.sent_by(rank)
        assert (count, round(buffers * explanation.numel)) == sends(name, rank, 6, explanation.numel)


def test_a_ring_goes_round_and_its_sums_grow():
    messages = explain("ring", 4).messages
    assert all(message.receiver == (message.sender + 1) % 4 for message in messages)
    for message in messages:
        assert len(message.holds) == min(message.round, 4)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_text_and_drawing_show_every_message(name):
    explanation = explain(name, 3)
    assert as_text(explanation).count(" → ") == len(explanation.messages)
    drawing = ElementTree.fromstring(as_svg(explanation))
    assert len(drawing.findall("{http://www.w3.org/2000/svg}path")) == len(explanation.messages)


def test_an_unknown_algorithm_is_guessed():
    with pytest.raises(ConfigError, match="did you mean 'ring'"):
        explain("rng", 4)
