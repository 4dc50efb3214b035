"""Conditions as they are written: what each text means, and one sentence for each that means nothing."""

import pytest

from shoal.config.conditions import (
    Bottleneck,
    Fault,
    Link,
    shares_of,
)
from shoal.config.read import read
from shoal.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("0-1:100mbit,5ms", Link((0, 1), 1e8, 0.005)),
        ("3 - 1 : 2.5 Gbit/s , 300us", Link((1, 3), 2.5e9, 0.0003)),
        ("all:8kbit", Link(None, 8e3)),
        ("0-1:9bit,2s", Link((0, 1), 9.0, 2.0)),
    ],
)
def test_links(text, meaning):
    found = Link.from_text(text)
    assert (found.ends, found.bits_per_s) == (meaning.ends, meaning.bits_per_s)
    assert found.latency_s == pytest.approx(meaning.latency_s)


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("rank=1,slowdown=3", Bottleneck(1, slowdown=3.0)),
        ("delay=20ms, rank=0", Bottleneck(0, delay_s=(0.02, 0.02))),
        ("rank=2,delay=0-40ms", Bottleneck(2, delay_s=(0.0, 0.04))),
        ("rank=2,delay=500us-1s", Bottleneck(2, delay_s=(0.0005, 1.0))),
        ("rank=0,share=.8,slowdown=1.5", Bottleneck(0, slowdown=1.5, share=0.8)),
    ],
)
def test_bottlenecks(text, meaning):
    found = Bottleneck.from_text(text)
    assert (found.rank, found.slowdown, found.share) == (meaning.rank, meaning.slowdown, meaning.share)
    assert found.delay_s == pytest.approx(meaning.delay_s)


def test_faults():
    assert Fault.from_text("rank=1,gradient=nan") == Fault(1, "nan", 0)
    assert Fault.from_text("gradient=flip,step=7,rank=3") == Fault(3, "flip", 7)


@pytest.mark.parametrize(
    ("flags", "size", "said"),
    [
        ("--link 0-2:5mbit", 2, "link '0-2:5mbit' names worker 2, but there are only 2: 0 to 1"),
        ("--bottleneck rank=2,slowdown=3", 2, "names worker 2, but there are only 2: 0 to 1"),
        ("--fault rank=9,gradient=nan", 3, "names worker 9, but there are only 3: 0 to 2"),
        ("--bottleneck rank=1,slowdown=3", 1, "names worker 1, but there is only worker 0"),
        ("--link all:1gbit", 1, "needs at least 2 workers, but there is 1"),
        (
            "--bottleneck rank=0,share=0.7;rank=1,share=0.6",
            3,
            "add up to 1.3 and must add up to at most 1",
        ),
        (
            "--bottleneck rank=0,share=0.7;rank=1,share=0.2",
            2,
            "must add up to 1, because every worker has one",
        ),
    ],
)
def test_a_condition_must_fit_the_world(flags, size, said):
    launch = read(None, ["--strategy", "naive", *flags.split()]).launch
    with pytest.raises(ConfigError) as caught:
        launch.check_workers(size)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--link all:1gbit --group nccl --strategy ddp", "nccl sends no messages"),
    ],
)
def test_what_has_no_place_for_a_condition_refuses_it(flags, said):
    with pytest.raises(ConfigError) as caught:
        read(None, flags.split())
    assert said in caught.value.message


def test_shares():
    assert shares_of([], 4) == (0.25,) * 4
    assert shares_of([Bottleneck(1, share=0.8)], 2) == (0.2, 0.8)
    assert shares_of([Bottleneck(0, share=1.0), Bottleneck(1, slowdown=2)], 3) == (1.0, 0.0, 0.0)
    assert shares_of([Bottleneck(0, share=0.1), Bottleneck(1, share=0.9)], 2) == (0.1, 0.9)
