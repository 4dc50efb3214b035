"""The one table of refused combinations, and the check that reads it.

Refusals, the page docs/en/combinations.md, the lines "Not with" of `--help` and the tests of refused pairs come from
it. A strategy and a layout declare their rows beside their settings (`REFUSES`); all other rows are here. To add a
pair, name one feature in the row of the other; to add a feature, see `features.py`.
"""

from collections.abc import Collection, Iterator
from typing import get_args

from shoal.config.choices import by_name
from shoal.config.feature import OWN_ENGINES, Row, Settings, refused
from shoal.config.features import COUNTED, FEATURES, NESTED
from shoal.config.sections.sync import OWN_SYNC, STRATEGIES, SyncConfig
from shoal.errors import ConfigError
from shoal.strategies.pipeline.settings import PipelineConfig
from shoal.strategies.tensor.settings import TensorConfig

_SECTIONS = by_name(get_args(SyncConfig))
_STRATEGIES: dict[str, Row] = {
    f"strategy {name}": _SECTIONS[sync].REFUSES  # pyright: ignore[reportAttributeAccessIssue]
    for name, (layout, sync) in STRATEGIES.items()
    if layout == "whole"
} | {"own strategy": OWN_SYNC}
_LAYOUTS: dict[str, Row] = {"layout pipeline": PipelineConfig.REFUSES, "layout tensor": TensorConfig.REFUSES}


def _all_but(*names: str, why: Row | None = None) -> Row:
    """The strategies that are not named: one that is new, or the user's own, is refused until it is named."""
    rest = (strategy for strategy in _STRATEGIES if strategy.removeprefix("strategy ") not in names)
    return {strategy: (why or {}).get(strategy, "") for strategy in rest}


def _without_sync(layout: str) -> Row:
    """The strategies whose sync the table `STRATEGIES` does not pair with a layout."""
    pairs = STRATEGIES.values()
    rest = {f"strategy {name}": "" for name, (_, sync) in STRATEGIES.items() if (layout, sync) not in pairs}
    return {name: why for name, why in rest.items() if name in _STRATEGIES} | {
        "own strategy": "it divides no model"
    }


_IN_ONE_PLACE = ("single", "naive", "ddp", "onecopy", "zero", "local", "server")
"""Strategies whose workers compute forward and backward of a share in one place."""
_KEEPS_STATE = "it may keep state for each weight, and pruned weights are no longer sent"
_ALL_STAGES = "the norm is over all stages, and each of them is at another micro-batch"
_ONE_THREAD = (
    "torch runs all backward passes of a GPU in one thread, where each worker would wait for the others"
)
_OWN_STATE: Row = {"own optimizer": "shoal does not know the state of an optimizer of your own"}

COMBINATIONS: dict[str, Row] = {
    **_STRATEGIES,
    **{name: {**row, **_without_sync(name.removeprefix("layout "))} for name, row in _LAYOUTS.items()},
    "--pipeline.schedule async": {
        "--mesh data": "the replicas would have to exchange the gradients of every micro-batch",
        "--clip-norm": _ALL_STAGES,
        "--train.on_nonfinite skip": "a step whose first updates are made cannot be left out",
    },
    "--aggregate parameters": {"--exchange compressed": "codecs encode gradients, and it exchanges weights"},
    "--strategy.mode hogwild": {
        "--exchange compressed": "its workers push nothing",
        **refused(*OWN_ENGINES, why="our engines keep weights in their own memory"),
    },
    "--strategy.on_lost continue": {"--exchange compressed": "a part of a killed worker's push could arrive"},
    "--exchange robust": {"updates of single workers": "it compares the gradients of all workers of a step"},
    "codec dgc with momentum": {"--momentum": "momentum would be applied twice"},
    "--partition": refused("--balance", "--bottleneck share", why="each worker has data of its own"),
    "--optimizer gd": {"--batch-size": "it uses the whole training set in every step"},
    "--compile": {
        **_all_but(
            *_IN_ONE_PLACE,
            why={
                "strategy dp": "it runs forward and backward apart",
                "strategy rpc": "its layers live elsewhere",
            },
        ),
        **refused(*_LAYOUTS, why="its layers communicate within forward and backward"),
        "--strategy.stage 3": "weights are gathered within forward and backward",
        "--strategy.sync_batchnorm": "it communicates within forward",
        **refused(*OWN_ENGINES, why="it compiles torch's operations"),
        "--reduction invariant": "compiled code may round differently for another size of a batch",
        "thread workers": "torch compiles for one thread at a time",
        **refused(
            "--memory.checkpoint", "--memory.offload", why="compiled code decides itself what it keeps"
        ),
    },
    "--precision fp16": {
        **_all_but(
            *("single", "naive", "ddp", "onecopy", "zero"),
            why={
                "strategy dp": "one worker scales the loss, and all update",
                "strategy local": "workers would have different loss scales",
                "strategy server": "workers would have different loss scales",
            },
        ),
        "--pipeline.schedule async": "its stages update before they know of an overflow",
        **refused(*OWN_ENGINES, why="it is torch's autocast"),
        "--memory.parameters": "it stores parameters in bfloat16",
        "--memory.step_in_backward": "some parameters have been updated before an overflow is found",
        "--aggregate parameters": "",
    },
    "--precision bf16": refused(*OWN_ENGINES, why="it is torch's autocast"),
    "--launcher threads on a GPU": refused(
        "--strategy.sync_batchnorm", "layout tensor", "--memory.step_in_backward", why=_ONE_THREAD
    ),
    "--reduction invariant": {
        **_all_but("single", "naive", "ddp", "onecopy", "zero"),
        **refused(*_LAYOUTS, *OWN_ENGINES, "--device cuda"),
        "--exchange": "it would sum in another order",
        "--partition": "a step's samples would depend on the number of workers",
        **refused("--balance", "--bottleneck share", why="workers take whole micro-batches"),
        "--aggregate parameters": "parameters are averaged after the update, in no tree",
        **refused("--combine", "--combine-stages", why="each worker's gradient would be weighted"),
        "--train.coupled": "a loss would depend on which samples are computed together",
        "--strategy.sync_batchnorm": "batch statistics depend on which samples are computed together",
        "own optimizer of divided weights": "its bits may depend on the division of weights",
    },
    "--device of several kinds": {
        **_all_but(
            *("naive", "ddp", "zero"),
            why={
                "strategy onecopy": "the one copy of the weights is in memory of the host",
                "strategy server": "its workers compute on the CPU",
                "strategy rpc": "its workers compute on the CPU",
            },
        ),
        **refused(*_LAYOUTS, *OWN_ENGINES, "--compile", "--prune", "--link"),
        **refused(
            "--precision tf32",
            "--precision bf16",
            "--precision fp16",
            why="each device rounds in its own way",
        ),
        "--reduction invariant": "each device rounds in its own way",
        "--exchange": "gradients meet in the memory of the host",
        **refused("--aggregate parameters", "--strategy.sync_batchnorm", "--strategy.offload"),
        **refused(
            "--memory.checkpoint", "--memory.offload", "--memory.state_bits", "--memory.step_in_backward"
        ),
        **refused("--memory.parameters", "--memory.return_freed", "--memory.budget"),
        "--launcher threads": "threads of one process share its device",
    },
    "--prune": {**_all_but("single", "naive", "ddp"), **refused(*_LAYOUTS)},
    "--prune of weights": {
        **refused("--exchange compressed", "own exchange", why=_KEEPS_STATE),
        "--aggregate parameters": "",
    },
    "--memory.checkpoint": {
        **_all_but(*_IN_ONE_PLACE),
        "layout pipeline": "a stage recomputes with --pipeline.recompute",
        "--strategy.sync_batchnorm": "a recomputed layer would communicate a second time",
        **OWN_ENGINES,
    },
    "--memory.offload": {**_all_but(*_IN_ONE_PLACE), **OWN_ENGINES},
    "--memory.offload host": {"--device cpu": "on a CPU activations are in the host's memory already"},
    "--memory.state_bits": {
        **_all_but(
            *("single", "naive", "ddp", "onecopy", "zero"),
            why={
                "strategy local": "it averages state as float32",
                "strategy server": "a server's state is sent as float32",
            },
        ),
        "layout tensor": "",
        **_OWN_STATE,
        "optimizer without state": "it has no state for each element",
        "--aggregate parameters": "it averages state as float32",
        "--strategy.offload": "offloaded state is float32",
    },
    "--memory.step_in_backward": {
        **_all_but(
            *("single", "ddp"),
            why={
                "strategy naive": "it exchanges gradients after backward",
                "strategy zero": "its stages 2 and 3 free gradients in backward already",
                "strategy onecopy": "other workers still compute with the one copy of the weights",
            },
        ),
        **refused(*_LAYOUTS, *OWN_ENGINES),
        **_OWN_STATE,
        "--clip-norm": "the norm of all gradients is known only after the first updates",
        "--train.on_nonfinite skip": "some parameters have been updated before a bad gradient is found",
        **refused(
            *("--reduction invariant", "--micro-batch below a worker's share"),
            why="gradients that are added up over several parts cannot be freed",
        ),
        "--prune": "masks are applied to all gradients before the update",
        "--fault": "a fault changes weights around backward",
        **refused(
            *("--exchange compressed", "--exchange stages", "own exchange"),
            why="it keeps state for buckets that it plans itself",
        ),
        "--strategy.unused zero": "which parameters have no gradient on any worker is known only after the first "
        "updates",
    },
    "--memory.parameters": {
        **_all_but("single", "ddp", "zero"),
        **refused(*_LAYOUTS, *OWN_ENGINES, "--strategy.stage 3"),
        **_OWN_STATE,
        "--strategy.offload": "offloaded state is float32",
        "--reduction invariant": "sums over leaves are float32",
        "--prune": "scores of weights are float32",
    },
    "--memory.return_freed": {
        "--device cuda": "it is a setting of the C library, and torch has an allocator of its own for a GPU"
    },
    NESTED: {
        **refused("strategy dp", "strategy rpc", why="it sends one tensor of inputs to other workers"),
        **refused(*OWN_ENGINES, why="our engines compute with one tensor"),
        "--prune": "what is left of a network is tried on one tensor",
    },
    COUNTED: {
        "strategy rpc": "its stages update before the counts are summed",
        "strategy local": "each worker steps by the mean of its own samples",
        "strategy server": "a push is divided by the number of samples before it leaves the worker",
        "--pipeline.schedule async": "each micro-batch is an update, whose count is its own",
        "--memory.step_in_backward": "the count of all workers is known only after the first updates",
        "--reduction invariant": "a count such as a sum of class weights is rounded in another order",
        **refused(
            "--aggregate parameters", "--combine", "--combine-stages", why="each worker's mean is its own"
        ),
        **OWN_ENGINES,
    },
    "--memory.budget": {
        "thread workers": "they share one process, whose memory cannot be divided among them"
    },
}
"""For each feature, those that it cannot be combined with, and why. A pair stands in the row of one of the two."""

NEEDS: dict[str, tuple[str, str]] = {
    "--reduction invariant": (
        "--micro-batch",
        "gradients are summed over micro-batches of one size for any number of workers",
    ),
    "--memory.parameters": ("--precision bf16", "products of weights in bfloat16 are computed in bfloat16"),
    "--pipeline.cut": ("--mesh pipeline", ""),
    "--tensor.plan": ("--mesh tensor", ""),
    "--prune.rewind": ("--start", "masks are chosen from the weights of a trained run"),
    "--stop.patience": ("--validation", ""),
}
"""Features without effect unless the run asks for another one, and why."""


def check_combinations(settings: Settings, owners: Collection[str] = COMBINATIONS) -> None:
    """Refuse a run with two features that cannot be combined, by the rows of `owners`; or without one that it needs."""
    asked = {name: shown for name, feature in FEATURES.items() if (shown := feature.shown(settings))}
    for owner in owners:
        for other in COMBINATIONS[owner] if owner in asked else ():
            if other in asked:
                why = COMBINATIONS[owner][other]
                # A strategy or a layout is the subject.
                swaps = other in _STRATEGIES or other in _LAYOUTS
                subject, target = (other, owner) if swaps else (owner, other)
                raise ConfigError(
                    f"{asked[subject]} does not support {asked[target]}{f': {why}' * bool(why)}",
                    _sentence(f"{FEATURES[other].without}, or {FEATURES[owner].without}"),
                )
    for owner, (other, why) in NEEDS.items():
        if owner in asked and other not in asked:
            raise ConfigError(
                f"{asked[owner]} needs {other}{f': {why}' * bool(why)}",
                _sentence(f"add {FEATURES[other].flags}, or {FEATURES[owner].without}"),
            )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def is_refused(first: str, second: str) -> bool:
    """Whether two features cannot be combined: they, or wider ones that they are cases of, are a pair of the table.

    >>> is_refused("strategy zero", "--exchange by"), is_refused("strategy ddp", "--exchange by")
    (True, False)
    """
    return any(
        other in COMBINATIONS.get(name, {}) or name in COMBINATIONS.get(other, {})
        for name in _and_wider(first)
        for other in _and_wider(second)
    )


def _and_wider(name: str) -> Iterator[str]:
    while name:
        yield name
        name = FEATURES[name].part_of


def refused_with(name: str) -> Row:
    """Every feature that one cannot be combined with, in the order of `FEATURES`, and why.

    >>> refused_with("--optimizer gd")
    {'--batch-size': 'it uses the whole training set in every step'}
    """
    rows = {other: row[name] for other, row in COMBINATIONS.items() if name in row} | {
        **COMBINATIONS.get(name, {})
    }
    return {other: rows[other] for other in FEATURES if other in rows}
