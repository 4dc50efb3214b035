"""Checks a run against the capabilities that its strategy declares, and against the address where its workers meet."""

import ipaddress
import warnings

from shoal.config.checks.invariant import check_power_of_two
from shoal.config.checks.memory import check_memory_settings
from shoal.config.checks.prune import check_prune
from shoal.config.checks.run_settings import RunSettings
from shoal.config.mesh import layout_of
from shoal.config.sections.exchange import compressions
from shoal.config.sections.sync import ServerConfig
from shoal.config.sections.train import TrainConfig
from shoal.errors import ConfigError

LOOPBACK = "127.0.0.1"


def check_strategy(config: RunSettings) -> None:
    """Refuse settings that the strategy does not support, as its sync declares."""
    strategy, can, workers = config.strategy, config.can, config.launch.workers
    if can.most_workers is not None and workers > can.most_workers:
        raise ConfigError(
            f"strategy {strategy} runs on {can.most_workers} worker, but --workers is {workers}",
            "Use --strategy ddp, or --workers 1.",
        )
    if config.engine not in can.engines:
        raise ConfigError(
            f"strategy {strategy} does not support --engine {config.engine}",
            f"Use --engine {can.engines[0]}, or --strategy ddp.",
        )
    if not can.exchanges and config.exchange.name != "all_reduce":
        raise ConfigError(
            f"--exchange {config.exchange.name} has no effect with strategy {strategy}",
            "Use --strategy naive or ddp, or remove --exchange.",
        )
    for compressed in compressions(config.exchange):
        compressed.check_run(
            strategy,
            can.refused_codecs,
            getattr(config.sync, "aggregate", "gradients"),
            getattr(config.optimizer, "momentum", 0.0),
            config.axes.get("tensor", 1),
        )
    if isinstance(config.sync, ServerConfig):
        config.sync.check_run(config.exchange.name, config.train.balance, config.engine)
    check_step(config)
    check_prune(config)
    check_memory_settings(config, layout_of(config.axes))
    uneven = next((each for each in config.launch.bottleneck if each.share is not None), None)
    shares = (
        "--balance changes the workers' shares of a batch"
        if config.train.balance
        else f"bottleneck '{uneven}' sets the workers' shares of a batch"
        if uneven
        else ""
    )
    if not can.divides_batch and (shares or config.partition.name != "global"):
        what = shares or f"--partition {config.partition.name} gives each worker data of its own"
        raise ConfigError(
            f"{what}, but strategy {strategy} does not divide batches among workers",
            "Use --strategy naive or ddp.",
        )
    if shares and config.partition.name != "global":
        raise ConfigError(
            f"{shares}, but with --partition {config.partition.name} each worker has data of its own",
            "Use --partition global.",
        )


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
