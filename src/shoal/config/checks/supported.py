"""Checks a run against the capabilities of its strategy: how a step is computed, by which workers, at which address."""

import ipaddress
import warnings

from shoal.config.checks.invariant import check_power_of_two
from shoal.config.checks.run_settings import RunSettings
from shoal.config.sections.train import TrainConfig
from shoal.errors import ConfigError

LOOPBACK = "127.0.0.1"


def check_step(config: RunSettings) -> None:
    """Refuse ways of computing a step that the strategy does not support."""
    strategy, can, train, launch = config.strategy, config.can, config.train, config.launch
    choices = {
        "launcher": (launch.launcher, can.launchers),
        "precision": (config.precision, can.precisions),
        "device": (config.device, ("auto", *can.devices)),
    }
    for flag, (chosen, supported) in choices.items():
        if chosen not in supported:
            raise ConfigError(
                f"strategy {strategy} does not support --{flag} {chosen}", f"Use --{flag} {supported[0]}."
            )
    if not can.clips and train.clip_norm is not None:
        raise ConfigError(
            f"strategy {strategy} does not support --clip-norm {train.clip_norm:g}",
            "Remove --clip-norm, or use --strategy ddp.",
        )
    if not can.accumulates and train.micro_batch != TrainConfig.micro_batch:
        raise ConfigError(
            f"strategy {strategy} does not support --micro-batch {train.micro_batch}: it does not accumulate gradients",
            "Remove --micro-batch. --strategy.microbatches divides a batch so that stages overlap.",
        )
    for flag, given in (("bottleneck", launch.bottleneck), ("fault", launch.fault), ("link", launch.link)):
        if given and not can.conditions:
            raise ConfigError(
                f"--{flag} has no effect with strategy {strategy}", f"Remove --{flag}, or use --strategy ddp."
            )
    stale = next((each for each in launch.fault if each.gradient == "stale"), None)
    if stale is not None and not can.whole_weights:
        raise ConfigError(
            f"fault '{stale}' needs a worker with all weights to itself, and strategy {strategy} has none",
            "Use --strategy ddp, or another fault.",
        )


def check_world(config: RunSettings, size: int, address: str = LOOPBACK) -> None:
    """Refuse a number of workers, or an address where they meet, that the strategy does not support."""
    strategy, can, launch = config.strategy, config.can, config.launch
    launch.check_workers(size, config.num_servers)
    if config.train.reduction == "invariant":
        check_power_of_two(size)
    if size < can.fewest_workers:
        raise ConfigError(
            f"strategy {strategy} needs at least {can.fewest_workers} workers, but there "
            f"{'is' if size == 1 else 'are'} {size}",
            f"Use --workers {can.fewest_workers + 1}, or --strategy single.",
        )
    if can.runs_received_code and not is_loopback(address):
        why = (
            f"strategy {strategy} listens on the network of {address}, and its workers execute what they receive: "
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
