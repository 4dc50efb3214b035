"""All features: strategies, layouts, and settings that differ from their neutral values.

`combinations.py` has the table of pairs that are refused.
"""

from collections.abc import Callable, Iterator
from typing import Any

from shoal.config.feature import Feature, Settings, chosen, given, text
from shoal.config.sections.compression import CompressedConfig, Encoding
from shoal.config.sections.exchange import (
    AllReduceConfig,
    ByConfig,
    ExchangeConfig,
    RobustConfig,
    StagesConfig,
    compressions,
    stages_of,
)
from shoal.config.sections.prune import WeightPruneConfig
from shoal.config.sections.sync import STRATEGIES
from shoal.config.sections.train import TrainConfig
from shoal.config.sections.values import Custom
from shoal.strategies.server.settings import ServerConfig

SHARED = "--strategy ddp --workers 2"
"""Flags of a run that takes an exchange and divides batches."""


def _of(strategy: str, flags: str = "") -> tuple[str, str]:
    """Flags of a strategy, for an option of its own, and the feature that it is."""
    return f"--strategy {strategy} --workers 2 {flags}".strip(), f"strategy {strategy}"


# Strategies and layouts.


def _strategies() -> Iterator[Feature]:
    for name, (layout, sync) in STRATEGIES.items():
        if layout == "whole":
            yield Feature(
                f"strategy {name}",
                "sync.name",
                f"--strategy {name}{' --workers 2' * (name != 'single')}",
                "use --strategy ddp",
                lambda settings, sync=sync: settings["sync.name"] == sync,
            )
    yield Feature(
        "own strategy",
        "sync.name",
        "--strategy package.module:Strategy --workers 2",
        "use --strategy ddp",
        lambda settings: isinstance(settings["sync"], Custom) and f"strategy {settings['sync.name']}",
    )


def _layout(axis: str) -> Iterator[Feature]:
    """A layout, and the axis of the mesh that it divides, whose size may not be known yet."""
    layout, path = f"layout {axis}", f"mesh.{axis}"
    yield Feature(
        layout,
        axis,
        f"--mesh {axis}=2",
        "use --strategy ddp",
        lambda settings: settings.get(path, 1) > 1,
    )
    yield Feature(
        f"--mesh {axis}",
        "mesh",
        f"--mesh {axis}=2",
        f"leave {axis} out of --mesh",
        lambda settings: path in settings,
        layout,
    )


def _replicas(settings: Settings) -> str:
    return f"data={settings['mesh.data']}" if settings.get("mesh.data", 1) > 1 else ""


def _single_updates(settings: Settings) -> str:
    """A server that updates the weights before the gradients of all workers of a step are there."""
    sync = settings["sync"]
    if not isinstance(sync, ServerConfig) or sync.repeats:
        return ""
    return f"--strategy.mode {sync.mode}{' with --strategy.backup' * bool(sync.backup)}"


# Exchanges.


def _exchange(name: str, kind: type, example: str) -> Feature:
    """A kind of exchange, also in one of its stages."""

    def asked(settings: Settings) -> str:
        exchange: ExchangeConfig = settings["exchange"]
        parts = (exchange, *stages_of(exchange))
        return next((_spelled(each) for each in parts if isinstance(each, kind)), "")

    flags = f"{SHARED} --exchange {example}"
    return Feature(name, "exchange.name", flags, "use --exchange all_reduce", asked, "--exchange")


def _spelled(exchange: ExchangeConfig) -> str:
    """An exchange as the user writes it: `--exchange by:ring`."""
    main = "" if isinstance(exchange, Custom | AllReduceConfig) else text(vars(exchange)[exchange.SHORT])
    return f"--exchange {exchange.name}{f':{main}' * bool(main)}"


def _any_exchange(settings: Settings) -> str:
    return _spelled(settings["exchange"]) if settings["exchange.name"] != "all_reduce" else ""


def _codec(name: str) -> Feature:
    spelled, wider = f"--exchange compressed:{name}", "--exchange compressed"

    def asked(settings: Settings) -> bool:
        return any(name in each.codecs for each in compressions(settings["exchange"]))

    return Feature(spelled, "exchange.codec", f"{SHARED} {spelled}", "use another codec", asked, wider)


def _encodings(settings: Settings) -> list[Encoding]:
    return [each for config in compressions(settings["exchange"]) for each in config.encodings()]


def _dgc_momentum(settings: Settings) -> str:
    momenta = (each.settings["momentum"] for each in _encodings(settings) if each.codec == "dgc")
    return next((f"codec dgc with --exchange.momentum {each:g}" for each in momenta if each), "")


# Conditions, batches, optimizers.


def _condition(kind: str, word: str, example: str, without: str, holds: Callable[[Any], bool]) -> Feature:
    """A bottleneck or a fault of one sort."""

    def asked(settings: Settings) -> str:
        found = (each for each in settings[f"launch.{kind}"] if holds(each))
        return next((f"--{kind} {each}" for each in found), "")

    flags = f"{SHARED} --{kind} rank=1,{example}"
    return Feature(f"--{kind} {word}", f"launch.{kind}", flags, without, asked, f"--{kind}")


def _parts(settings: Settings) -> str:
    """The micro-batch, if a worker's share of a batch has several parts."""
    batch_size, micro_batch = settings["train.batch_size"], settings["train.micro_batch"]
    if not isinstance(batch_size, int):
        return ""  # the size of the training set is not known here; several parts are exact, and save less
    share = -(-batch_size // settings["launch.workers"])
    return f"--micro-batch {micro_batch} with {share} samples of each worker" if micro_batch < share else ""


def _own_optimizer(settings: Settings) -> str:
    return f"optimizer {settings['optimizer.name']}" if isinstance(settings["optimizer"], Custom) else ""


def _own_divided(settings: Settings) -> str:
    own, sync = _own_optimizer(settings), settings["sync.name"]
    return f"{own} with strategy {sync}" if own and sync in ("onecopy", "zero") else ""


def _without_state(settings: Settings) -> str:
    name, momentum = settings["optimizer.name"], settings.get("optimizer.momentum", 0.0)
    return f"optimizer {name} without momentum" if name in ("gd", "sgd") and not momentum else ""


def _threads(settings: Settings) -> str:
    threads = settings["launch.launcher"] == "threads" and settings["launch.workers"] > 1
    return "--launcher threads" if threads else ""


def _weights(settings: Settings) -> str:
    prune = settings["prune"]
    return f"--prune {settings['prune.name']}" if isinstance(prune, WeightPruneConfig) else ""


NESTED = "nested samples"
COUNTED = "a loss with a count"
FOUND = (NESTED, COUNTED)
"""Features that only data and functions of the user's own show: `build` asks for them (`RunConfig.check_found`)."""


def _found(name: str, flags: str, without: str) -> Feature:
    return Feature(name, name, flags, without, lambda settings: bool(settings.get(name)))


FEATURES: dict[str, Feature] = {
    feature.name: feature
    for feature in (
        *_strategies(),
        *_layout("pipeline"),
        *_layout("tensor"),
        given("--workers", "launch.workers", 1, "2", "--strategy ddp"),
        Feature("--mesh data", "mesh", "--mesh data=2", "leave data out of --mesh", _replicas, "--workers"),
        given("--pipeline.cut", "pipeline.cut", (), "fc1", "--mesh pipeline=2", "layout pipeline"),
        given("--tensor.plan", "tensor.plan", "", "plan.toml", "--mesh tensor=2", "layout tensor"),
        Feature(
            "--pipeline.schedule async",
            "pipeline.schedule",
            "--mesh pipeline=2 --pipeline.schedule async",
            "use --pipeline.schedule 1f1b",
            lambda settings: settings.get("mesh.pipeline", 1) > 1 and settings["pipeline"].updates_inside,
            "layout pipeline",
        ),
        chosen("--aggregate", "sync.aggregate", "parameters", "gradients", *_of("naive")),
        given("--combine", "sync.combine", "exact", "mean", *_of("naive")),
        given("--combine-stages", "sync.combine_stages", (), "0=sum,0.5=mean", *_of("naive")),
        chosen("--strategy.stage", "sync.stage", 2, 1, *_of("zero")),
        chosen("--strategy.stage", "sync.stage", 3, 1, *_of("zero")),
        given("--strategy.offload", "sync.offload", "none", "file", *_of("zero")),
        given("--strategy.sync_batchnorm", "sync.sync_batchnorm", False, base=SHARED),
        chosen("--strategy.unused", "sync.unused", "zero", "refuse", SHARED),
        chosen("--strategy.mode", "sync.mode", "hogwild", "asp", *_of("server")),
        chosen(
            "--strategy.on_lost", "sync.on_lost", "continue", "stop", *_of("server", "--strategy.mode asp")
        ),
        Feature(
            "updates of single workers",
            "sync.mode",
            "--strategy server --workers 2 --strategy.mode asp",
            "use --strategy.mode bsp without --strategy.backup",
            _single_updates,
            "strategy server",
        ),
        Feature(
            "--exchange",
            "exchange.name",
            f"{SHARED} --exchange by:ring",
            "leave --exchange out",
            _any_exchange,
        ),
        _exchange("--exchange by", ByConfig, "by:ring"),
        _exchange("--exchange robust", RobustConfig, "robust:median"),
        _exchange("--exchange stages", StagesConfig, "stages:0=all_reduce,0.5=by:ring"),
        _exchange("--exchange compressed", CompressedConfig, "compressed:topk"),
        _exchange("own exchange", Custom, "package.module:function"),
        _codec("auto"),
        _codec("dgc"),
        Feature(
            "codec dgc with momentum",
            "exchange.momentum",
            f"{SHARED} --exchange compressed:dgc",
            "use --exchange.momentum 0",
            _dgc_momentum,
            "--exchange compressed:dgc",
        ),
        Feature(
            "--exchange.vote",
            "exchange.vote",
            f"{SHARED} --exchange compressed:sign --exchange.vote true",
            "use another codec",
            lambda settings: any(each.settings.get("vote") for each in _encodings(settings)),
            "--exchange compressed",
        ),
        given("--partition", "partition.name", "global", "random", SHARED),
        given("--balance", "train.balance", False, base=SHARED),
        given("--bottleneck", "launch.bottleneck", (), "rank=1,slowdown=2", SHARED),
        _condition(
            "bottleneck", "share", "share=0.8", "leave the share out", lambda each: each.share is not None
        ),
        given("--fault", "launch.fault", (), "rank=1,gradient=nan", SHARED),
        _condition(
            "fault", "stale", "gradient=stale", "use another fault", lambda each: each.gradient == "stale"
        ),
        given("--link", "launch.link", (), "all:1gbit", SHARED),
        chosen("--engine", "engine", "tape", "torch"),
        chosen("--engine", "engine", "static", "torch"),
        given("--compile", "compile", False),
        chosen("--precision", "precision", "tf32", "float32"),
        chosen("--precision", "precision", "bf16", "float32"),
        chosen("--precision", "precision", "fp16", "bf16"),
        chosen("--device", "device", "cpu", "cuda"),
        chosen("--device", "device", "cuda", "cpu"),
        Feature(
            "--device of several kinds",
            "device",
            f"{SHARED} --device cuda,cpu",
            "use one kind of device",
            lambda settings: f"--device {settings['device']}" if "," in settings["device"] else "",
        ),
        chosen("--launcher", "launch.launcher", "threads", "processes"),
        Feature(
            "thread workers",
            "launch.launcher",
            f"{SHARED} --launcher threads",
            "use --launcher processes",
            _threads,
            "--launcher threads",
        ),
        Feature(
            "--launcher threads on a GPU",
            "launch.launcher",
            f"{SHARED} --launcher threads --device cuda",
            "use --launcher processes",
            lambda settings: bool(_threads(settings)) and settings["device"] == "cuda",
            "thread workers",
        ),
        given("--clip-norm", "train.clip_norm", None, "1"),
        chosen("--train.on_nonfinite", "train.on_nonfinite", "skip", "stop"),
        given("--start", "train.start", "", "RUN"),
        given("--stop.patience", "stop.patience", None, "2", "--validation 0.1"),
        # Data of the user's own may have a validation set: `build` looks.
        Feature(
            "--validation",
            "data.validation",
            "--validation 0.1",
            "leave --validation out",
            lambda settings: bool(settings.get("data.validation", True)),
        ),
        given("--micro-batch", "train.micro_batch", TrainConfig.micro_batch, "16"),
        Feature(
            "--micro-batch below a worker's share",
            "train.micro_batch",
            "--batch-size 64 --micro-batch 16",
            "use a --micro-batch as large as a worker's share of the batch",
            _parts,
            "--micro-batch",
        ),
        chosen("--reduction", "train.reduction", "invariant", "fastest", "--micro-batch 64"),
        given("--train.coupled", "train.coupled", False),
        given("--batch-size", "train.batch_size", "all", "64"),
        chosen("--optimizer", "optimizer.name", "gd", "sgd"),
        given("--momentum", "optimizer.momentum", 0.0, "0.9", "--optimizer sgd"),
        Feature(
            "optimizer without state",
            "optimizer.name",
            "--optimizer sgd",
            "use --optimizer sgd --momentum 0.9 or adam",
            _without_state,
        ),
        Feature(
            "own optimizer",
            "optimizer.name",
            "--optimizer torch.optim:Adagrad",
            "use --optimizer sgd, adam or adamw",
            _own_optimizer,
        ),
        Feature(
            "own optimizer of divided weights",
            "optimizer.name",
            "--strategy zero --workers 2 --optimizer torch.optim:Adagrad",
            "use an optimizer of shoal, or --strategy ddp",
            _own_divided,
            "own optimizer",
        ),
        given("--prune", "prune.name", "none", "channels"),
        Feature(
            "--prune of weights", "prune.name", "--prune magnitude", "leave --prune out", _weights, "--prune"
        ),
        given(
            "--prune.rewind",
            "prune.rewind",
            None,
            "0",
            "--start RUN --prune magnitude --prune.end 0",
            "--prune of weights",
        ),
        given("--memory.checkpoint", "memory.checkpoint", 0, "1"),
        given("--memory.offload", "memory.offload", "none", "file"),
        chosen("--memory.offload", "memory.offload", "host", "file", part_of="--memory.offload"),
        given("--memory.state_bits", "memory.state_bits", 32, "8"),
        given("--memory.step_in_backward", "memory.step_in_backward", False),
        given("--memory.parameters", "memory.parameters", "float32", "bf16"),
        given("--memory.return_freed", "memory.return_freed", False),
        given("--memory.budget", "memory.budget", None, "200MB"),
        _found(NESTED, "--data package.module:function", "return one tensor as the input of each sample"),
        _found(
            COUNTED, "--loss package.module:function", "return the sum over the samples alone from the loss"
        ),
    )
}
"""By name."""
