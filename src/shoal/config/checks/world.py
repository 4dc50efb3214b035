"""Checks a run against the number of its workers, and against the address where they meet."""

import ipaddress
import warnings

from shoal.config.mesh import check_power_of_two
from shoal.config.schema import RunConfig
from shoal.errors import ConfigError
from shoal.strategies.rpc.settings import RpcConfig

LOOPBACK = "127.0.0.1"


def check_world(config: RunConfig, size: int, address: str = LOOPBACK) -> None:
    """Refuse a number of workers, or an address where they meet, that the strategy does not support."""
    launch = config.launch
    launch.check_workers(size, config.num_servers)
    if config.train.reduction == "invariant":
        check_power_of_two(size)
    if not isinstance(config.sync, RpcConfig):
        return
    if size < config.sync.FEWEST_WORKERS:
        raise ConfigError(
            f"strategy rpc needs at least {config.sync.FEWEST_WORKERS} workers, but there is {size}",
            f"Use --workers {config.sync.FEWEST_WORKERS + 1}, or --strategy single.",
        )
    if not is_loopback(address):
        why = (
            f"strategy rpc listens on the network of {address}, and its workers execute what they receive: "
            "any program that reaches them can run code as this user"
        )
        if not launch.i_trust_this_network:
            raise ConfigError(
                why, "Use --master 127.0.0.1:PORT; on a network of your own, add --i-trust-this-network."
            )
        warnings.warn(why, stacklevel=2)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("10.0.0.7")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
