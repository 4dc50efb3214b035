"""`--reduction invariant`: what it sets, and what it refuses in one line."""

import pytest

from shoal.config.checks.supported import check_world
from shoal.config.read import read
from shoal.errors import ConfigError
from shoal.launch.facts import facts_of

INVARIANT = "--reduction invariant --micro-batch 8"


def config(flags=""):
    return read(None, f"{INVARIANT} {flags}".split())


def test_it_sets_what_decides_bits():
    made = config("--strategy zero --workers 4 --optimizer sgd")
    assert (made.threads, made.device, made.optimizer.fast) == (1, "cpu", False)
    assert config("--threads 2").threads == 2


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--micro-batch 2048", "requires --micro-batch"),
        ("--strategy ddp --workers 6", "a power of two; you have 6"),
        ("--strategy naive --workers 2 --aggregate parameters", "--aggregate parameters"),
        ("--strategy naive --workers 2 --combine mean", "--combine mean"),
        ("--strategy naive --workers 2 --combine-stages 0=sum,0.5=mean", "--combine-stages"),
        ("--strategy dp --workers 2", "strategy dp does not support"),
        ("--strategy local --workers 2", "strategy local does not support"),
        ("--strategy rpc --workers 2 --micro-batch 2048", "strategy rpc does not support"),
        ("--strategy pipeline --workers 2", "layout pipeline does not support"),
        ("--strategy tensor --workers 2", "layout tensor does not support"),
        ("--strategy ddp --workers 2 --exchange by:ring", "--exchange by"),
        ("--strategy ddp --workers 2 --partition random", "--partition random"),
        ("--strategy ddp --workers 2 --balance", "--balance"),
        ("--strategy ddp --workers 2 --bottleneck rank=1,share=0.8", "share=0.8"),
        ("--strategy ddp --workers 2 --strategy.sync_batchnorm", "sync_batchnorm"),
        ("--strategy zero --workers 2 --optimizer torch.optim:Adam", "torch.optim:Adam with strategy zero"),
        ("--device cuda", "--device cuda"),
        ("--engine static", "--engine static"),
    ],
)
def test_what_it_refuses(flags, message):
    with pytest.raises(ConfigError, match=message) as caught:
        config(flags)
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_workers_that_the_launcher_brings_are_checked_too():
    with pytest.raises(ConfigError, match="you have 3"):
        check_world(config("--strategy ddp"), 3)


def test_workers_with_different_numbers_of_threads_do_not_meet():
    assert facts_of(config("--threads 2")) != facts_of(config())
    assert facts_of(read(None, ["--threads", "2"])) == facts_of(read(None, []))
