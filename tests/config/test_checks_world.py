"""Numbers of workers, and addresses where they meet, that a strategy does not support."""

import pytest

from shoal.cli.main import main
from shoal.config.checks import check_world
from shoal.config.read import read
from shoal.errors import ConfigError

RPC = ["--strategy", "rpc", "--workers", "3"]


def test_one_worker_is_too_few(capsys):
    assert main(["train", "--strategy", "rpc"]) == 2
    assert "strategy rpc needs at least 2 workers, but there is 1" in capsys.readouterr().err


def test_workers_that_execute_what_they_receive_stay_on_loopback_unless_the_user_trusts_the_network():
    config = read(None, RPC)
    check_world(config, 3)
    check_world(config, 3, "localhost")
    with pytest.raises(
        ConfigError, match=r"(?s)any program that reaches them can run code.*--i-trust-this-network"
    ):
        check_world(config, 3, "10.0.0.7")
    trusting = read(None, [*RPC, "--i-trust-this-network"])
    with pytest.warns(UserWarning, match="any program that reaches them can run code"):
        check_world(trusting, 3, "10.0.0.7")
    check_world(read(None, ["--strategy", "ddp", "--workers", "2"]), 2, "10.0.0.7")


def test_invariant_bits_need_a_power_of_two():
    invariant = "--reduction invariant --micro-batch 8 --strategy ddp"
    with pytest.raises(ConfigError, match="you have 6"):
        read(None, f"{invariant} --workers 6".split())
    with pytest.raises(ConfigError, match="you have 3"):
        check_world(read(None, invariant.split()), 3)


def test_each_rank_has_a_device():
    unequal = "--strategy ddp --workers 2 --device cuda,cpu"
    check_world(read(None, unequal.split()), 2)
    for size in (1, 3):
        with pytest.raises(
            ConfigError, match=f"--device cuda,cpu is for 2 workers, but there (is|are) {size}"
        ):
            check_world(read(None, unequal.split()), size)
    with pytest.raises(ConfigError, match="--group shm does not reach"):
        check_world(read(None, [*unequal.split(), "--group", "shm"]), 2)


@pytest.mark.parametrize("device", ["cuda,gpu", "cuda,", "auto,cpu", "cpu,cpu", ""])
def test_devices_are_cuda_and_cpu(device):
    with pytest.raises(ConfigError, match="device"):
        read(None, ["--strategy", "ddp", "--workers", "2", "--device", device])
