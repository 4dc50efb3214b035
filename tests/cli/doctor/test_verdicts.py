"""Slow nodes and slow links, from tables of rates; noise gives no verdict."""

import itertools

from shoal.cli.doctor.verdicts import slow_links, slow_values, suspects


def rates(nodes, usual=100.0, tries=3, **other):
    """Every direction of every pair; `n02=5.0` is the rate from node 0 to node 2."""
    links = {link: [usual] * tries for link in itertools.permutations(range(nodes), 2)}
    for name, rate in other.items():
        links[int(name[1]), int(name[2])] = rate if isinstance(rate, list) else [rate] * tries
    return links


def around(node, nodes, rate, ways=("to", "from")):
    others = [other for other in range(nodes) if other != node]
    into, out = ([f"n{other}{node}" for other in others], [f"n{node}{other}" for other in others])
    return dict.fromkeys(into * ("to" in ways) + out * ("from" in ways), rate)


def test_nothing_is_slow_where_all_are_alike():
    assert slow_links(rates(4)) == []
    assert slow_links(rates(4, n01=51.0, n23=180.0)) == []
    assert slow_links({}) == []


def test_a_slow_link_is_named_with_its_direction_and_both_numbers():
    (slow,) = slow_links(rates(4, n12=10.0))
    assert (slow.node, slow.links, *slow.verdict) == (None, ((1, 2),), 10.0, 100.0, True)


def test_a_node_whose_links_are_all_slow_is_named_once():
    for nodes in (3, 4, 8):
        (slow,) = slow_links(rates(nodes, **around(2, nodes, 10.0)))
        assert (slow.node, slow.way, *slow.verdict) == (
            2,
            "to and from",
            10.0,
            100.0,
            True,
        )


def test_a_node_may_be_slow_in_one_direction():
    (slow,) = slow_links(rates(4, **around(1, 4, 10.0, ways=("to",))))
    assert (slow.node, slow.way) == (1, "to")


def test_of_two_nodes_the_slower_direction_is_named():
    (slow,) = slow_links(rates(2, n01=10.0))
    assert slow.links == ((0, 1),)


def test_a_slow_node_and_a_slow_link_elsewhere():
    found = slow_links(rates(5, **around(4, 5, 10.0), n01=5.0))
    assert [(each.node, each.links[:1]) for each in found] == [(4, ((0, 4),)), (None, ((0, 1),))]


def test_tries_that_differ_are_undecided_and_one_good_half_is_no_suspicion():
    (slow,) = slow_links(rates(4, n12=[10.0, 20.0, 90.0]))
    assert not slow.verdict.sure
    assert slow_links(rates(4, n12=[10.0, 90.0])) == []


def test_one_try_is_never_sure():
    (slow,) = slow_links(rates(4, tries=1, n12=10.0))
    assert not slow.verdict.sure


def test_the_slowest_are_measured_again_and_a_node_by_one_link_of_each_direction():
    found = slow_links(rates(5, tries=1, **around(4, 5, 10.0), n01=5.0))
    assert suspects(found, 8) == [(0, 1), (0, 4), (4, 3)]
    assert suspects(found, 1) == [(0, 1)]


def test_a_device_is_compared_with_the_median_of_the_others():
    assert slow_values({0: [10.0, 4.0], 1: [9.0, 9.0], 2: [2.0, 3.0]}) == {2: (2.5, 9.5, True)}
    assert slow_values({0: [10.0]}) == {}
