"""The links of a run: reported if they are as requested, a warning if not, and recorded."""

import warnings

import pytest
import torch

from shoal.comm.links.measure import LinkNotice, Measured
from shoal.comm.links.shaped import Shaped
from shoal.comm.threads.group import run_threads
from shoal.config.conditions import Link
from shoal.config.sections.launch import LaunchConfig
from shoal.errors import ConfigError
from shoal.training.setup.links import link_event, report_link, with_links

LINK = Link((0, 1), bits_per_s=100e6, latency_s=0.005)


@pytest.mark.parametrize(
    ("bits_per_s", "category", "said"),
    [
        (99.1e6, LinkNotice, "link 0-1: 100 Mbit/s asked, 99.1 measured, latency 5.1 ms"),
        (60e6, UserWarning, "60 measured, latency 5.1 ms: this machine is not faster"),
        (160e6, UserWarning, "160 measured, latency 5.1 ms: this machine is too busy to measure it"),
    ],
)
def test_what_a_person_reads(bits_per_s, category, said):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report_link(Measured((0, 1), LINK, bits_per_s, 0.0051))
    assert [warning.category for warning in caught] == [category]
    assert str(caught[0].message).endswith(said)


def test_what_is_written_down():
    assert link_event(Measured((0, 1), LINK, 99.1e6, 0.0051)) == {
        "event": "link",
        "ends": [0, 1],
        "asked_bits_per_s": 100e6,
        "asked_latency_s": 0.005,
        "bits_per_s": 99.1e6,
        "latency_s": 0.0051,
    }


def test_without_links_the_group_is_left_as_it_is():
    def work(group):
        with with_links(group, LaunchConfig(workers=2)) as (linked, measured):
            return linked is group and measured == []

    assert run_threads(2, work) == [True, True]


@pytest.mark.filterwarnings("ignore")
def test_with_links_the_group_beneath_can_still_be_used_afterwards():
    def work(group):
        with with_links(group, LaunchConfig(workers=3, link=("0-1:1gbit",))) as (linked, measured):
            assert isinstance(linked, Shaped)
            total = torch.ones(3)
            linked.all_reduce(total).wait()
        group.barrier().wait()
        return total.tolist(), [each.ends for each in measured]

    assert run_threads(3, work) == [([3.0] * 3, [(0, 1)])] * 3


def test_a_link_to_a_missing_rank_is_refused_by_the_worker_too():
    with pytest.raises(ConfigError, match="names worker 2"):
        run_threads(2, lambda group: with_links(group, LaunchConfig(link=("0-2:1gbit",))).__enter__())
