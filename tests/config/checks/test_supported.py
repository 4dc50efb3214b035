"""What a strategy does not support is refused in one sentence, before anything starts."""

import pytest

from shoal.cli.main import main
from shoal.config.checks.supported import check_world
from shoal.config.read import read
from shoal.errors import ConfigError

RPC = ["--strategy", "rpc", "--workers", "3"]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("--launcher threads", "strategy rpc does not support --launcher threads"),
        ("--precision bf16", "strategy rpc does not support --precision bf16"),
        ("--device cuda", "strategy rpc does not support --device cuda"),
        ("--clip-norm 1", "strategy rpc does not support --clip-norm 1"),
        ("--micro-batch 16", "strategy rpc does not support --micro-batch 16: it does not accumulate"),
        ("--exchange by:ring", "--exchange by has no effect with strategy rpc"),
        ("--partition random", "strategy rpc does not divide batches"),
        ("--engine tape", "strategy rpc does not support --engine tape"),
        ("--bottleneck rank=1,slowdown=2", "--bottleneck has no effect with strategy rpc"),
        ("--link all:1gbit", "--link has no effect with strategy rpc"),
        ("--fault rank=1,gradient=nan", "--fault has no effect with strategy rpc"),
    ],
)
def test_rpc_refuses(flags, sentence, capsys):
    assert main(["train", *RPC, *flags.split()]) == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


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
