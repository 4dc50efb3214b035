"""Gradient compression, link × codec: the runs by name, and the numbers that are read from their folders.

::

    rotate-*    one training for each link, in which codecs take turns: all are timed in the same state of the machine
    auto-*      one training for each link with `compressed:auto`, which chooses among the same codecs
    learn-*     longer, with several seeds and without a slow link: what does a codec cost in accuracy?
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any, Literal

import torch

from shoal.kit.findings import Measured, inside_run
from shoal.kit.runs import RunFolder, read_events
from shoal.kit.settings import (
    AdamConfig,
    AllReduceConfig,
    CompressedConfig,
    CosineConfig,
    DataConfig,
    DdpConfig,
    DigitsConfig,
    ExchangeConfig,
    LaunchConfig,
    MlpConfig,
    ModelConfig,
    RunConfig,
    SgdConfig,
    TrainConfig,
)
from shoal.kit.strategies import ROW, Candidate, Form, GroupCall, Linear, build_codec, received_bytes
from shoal.kit.training import read_model
from shoal_labs.optimise.pareto import pareto_front
from shoal_labs.optimise.part import accuracy_of
from shoal_labs.plans import at_least_two, seeds_from
from shoal_labs.rotation import Rotation
from shoal_labs.runs import NEVER, ONLY_AT_THE_END, Runs
from shoal_labs.steps import Step, read_steps
from shoal_labs.timing.contest import settled
from shoal_labs.timing.turns import made_again

BATCH_SIZE = 64
LINKS: dict[str, tuple[str, ...]] = {
    "loopback": (),
    "1gbit": ("all:1gbit",),
    "100mbit": ("all:100mbit",),
    "20mbit": ("all:20mbit",),
}
"""From fast to slow. On loopback messages move as fast as this machine copies them between processes."""
SLOWEST = "20mbit"
NONE = "none"
CODECS = (NONE, "fp16", "int8", "int4", "terngrad", "sign", "topk", "powersgd")
"""No compression, then from many bytes to few, one of each kind; all with their default settings."""
SPARSE_RATIO = 0.01
"""Of the runs that show what feedback does: so few elements that most wait for many steps."""
FEEDBACK: dict[str, ExchangeConfig] = {
    "sparse": CompressedConfig(codec="topk", ratio=SPARSE_RATIO),
    "sparse-forgetful": CompressedConfig(codec="topk", ratio=SPARSE_RATIO, feedback=False),
}


def exchange_of(codec: str) -> str:
    """What `--exchange` is given for a codec.

    >>> exchange_of("none"), exchange_of("topk")
    ('all_reduce', 'compressed:topk')
    """
    return "all_reduce" if codec == NONE else f"compressed:{codec}"


@dataclass(frozen=True)
class CompressionSize:
    """How much is trained."""

    turn: int
    rounds: int
    """Enough that one or two disturbed ones leave nothing undecided."""
    auto_steps: int
    learn_steps: int
    seeds: int
    most: int = 1
    """How often a rotation is made, if its rounds scatter too much to decide."""


FULL = CompressionSize(turn=5, rounds=19, auto_steps=20, learn_steps=400, seeds=10, most=2)
QUICK = CompressionSize(turn=2, rounds=15, auto_steps=10, learn_steps=60, seeds=5, most=2)
QUICK_MODEL = MlpConfig(hidden=(64,))
"""Half as many bytes for the slow links as in the full run."""


@dataclass(frozen=True)
class CompressionPlan:
    """The whole experiment."""

    workers: int
    size: CompressionSize
    first_seed: int = 0
    quick: bool = False
    data: DataConfig = field(default_factory=DigitsConfig)
    model: ModelConfig = field(default_factory=MlpConfig)
    timed_by: Literal["processes", "threads"] = "processes"
    """The launcher of runs whose times are used."""

    def __post_init__(self) -> None:
        at_least_two(self.workers)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of repeated runs; runs that are not repeated have the first."""
        return seeds_from(self.first_seed, self.size.seeds)

    @property
    def rotation(self) -> Rotation:
        """How the codecs take turns on every link."""
        return Rotation(CODECS, self.size.turn, self.size.rounds)

    def runs(self) -> dict[str, RunConfig]:
        """Every run by name, in the order in which they are trained."""
        runs: dict[str, RunConfig] = {}
        auto = CompressedConfig(codec="auto", candidates=CODECS)
        for link in LINKS:
            runs[f"rotate-{link}"] = self._timed(
                link, len(self.rotation.names), self.rotation.stages(exchange_of)
            )
            runs[f"auto-{link}"] = self._timed(link, self.size.auto_steps, auto)
        for name, exchange in self.learning().items():
            config = self._run(self.size.learn_steps, exchange)
            # The last steps are small, so that the noise of one step does not decide what is compared.
            config = replace(config, schedule=CosineConfig())
            if name in FEEDBACK:
                # Adam divides by the size of what arrives, and so hides what feedback does to it.
                config = replace(config, optimizer=SgdConfig())
            runs |= {f"learn-{name}-seed{seed}": replace(config, seed=seed) for seed in self.seeds}
        return runs

    def learning(self) -> dict[str, ExchangeConfig]:
        """The exchanges whose accuracy is measured."""
        codecs: dict[str, ExchangeConfig] = {
            codec: AllReduceConfig() if codec == NONE else CompressedConfig(codec=codec)
            for codec in CODECS  # pyright: ignore[reportArgumentType]
        }
        return {**codecs, **FEEDBACK}

    def _timed(self, link: str, steps: int, exchange: ExchangeConfig) -> RunConfig:
        # Links carry messages through shared memory, where their own time hardly adds to the wire's; loopback is gloo.
        group = "auto" if LINKS[link] else "gloo"
        config = self._run(steps, exchange, launcher=self.timed_by, group=group, link=LINKS[link])
        return replace(
            config,
            output=replace(config.output, trace=True),
            train=replace(config.train, test=False),
        )

    def _run(self, steps: int, exchange: ExchangeConfig, **launch: Any) -> RunConfig:
        """A run by threads unless `launch` says otherwise."""
        return RunConfig(
            seed=self.first_seed,
            device="cpu",
            threads=1,
            data=self.data,
            model=self.model,
            optimizer=AdamConfig(),
            sync=DdpConfig(),
            exchange=exchange,
            launch=replace(LaunchConfig(workers=self.workers, launcher="threads"), **launch),
            train=TrainConfig(epochs=NEVER, steps=steps, batch_size=BATCH_SIZE),
            checkpoint=ONLY_AT_THE_END,
        )


def plan_for(workers: int, quick: bool, first_seed: int) -> CompressionPlan:
    """The plan of a run."""
    if quick:
        return CompressionPlan(workers, QUICK, first_seed, quick, model=QUICK_MODEL)
    return CompressionPlan(workers, FULL, first_seed)


AGREEMENT_BYTES = 8 * ROW
"""A row of float64 numbers, in which workers agree on loss and bad numbers."""


@dataclass(frozen=True)
class Timed:
    """One codec on one link."""

    rounds_ms: Sequence[float]
    """A whole step of the slowest worker, round by round: codecs are compared in pairs."""
    own_ms: float
    """Outside of the exchange: forward, backward, update."""
    exchange_ms: float
    """Encoding, waiting, moving, decoding."""
    encode_ms: float
    """Encoding and decoding alone."""
    sent_bytes: int
    """What one worker sends in the exchange of a step, the mean over the workers."""

    @property
    def step_ms(self) -> Measured:
        """A whole step."""
        return inside_run(self.rounds_ms)


@dataclass(frozen=True)
class Chosen:
    """What `compressed:auto` chose on a link, and how it went on."""

    codec: str
    step_ms: Measured
    """After the choice."""
    link_bits_per_s: float
    predicted_ms: Mapping[str, float]
    """The exchange of every candidate."""
    local_ms: Mapping[str, float]
    """Encoding and decoding."""


@dataclass(frozen=True)
class CompressionMeasurements:
    """Everything measured."""

    plan: CompressionPlan
    parameters: int
    timed: Mapping[str, Mapping[str, Timed]]
    """By link and codec."""
    chosen: Mapping[str, Chosen]
    """By link."""
    declared: Mapping[str, int]
    """The bytes of a worker's payloads in a step, as each codec declares them."""
    operations: Mapping[str, str]
    """The collective that carries each codec's payloads."""
    accuracies: Mapping[str, tuple[float, ...]]
    """On the test set, by exchange; one for each seed."""
    break_even: Mapping[str, float]
    """The link rate in bit/s above which each codec no longer pays; 0 for no compression."""
    local_ms: Mapping[str, float]
    """Encoding and decoding, the median over the links."""
    busy: float = 0.0
    """The part of the machine that other programs used; 0 if it was not busy."""

    def expected_bytes(self, codec: str) -> int:
        """What a worker sends by the formula of the codec's collective, and the rows in which workers agree."""
        calls = [
            GroupCall(self.operations[codec], self.declared[codec]),
            GroupCall("all_gather", AGREEMENT_BYTES),
        ]
        return round(sum(received_bytes(call, self.plan.workers) for call in calls))

    def fastest(self, link: str, among: Sequence[str] = CODECS) -> str:
        """The codec with the shortest step on a link."""
        return min(among, key=lambda codec: self.timed[link][codec].step_ms.value)

    def front(self, link: str) -> list[str]:
        """The codecs that no other beats in both time and accuracy on a link, by time; none if the machine was busy."""
        times = {codec: self.timed[link][codec].rounds_ms for codec in CODECS}
        return [] if self.busy else pareto_front(times, self.accuracies)


def measure(plan: CompressionPlan, runs: Runs) -> CompressionMeasurements:
    """Read every run folder."""
    forms = _forms(runs.path(f"learn-{NONE}-seed{plan.first_seed}"))
    chosen = {link: _chosen(runs.path(f"auto-{link}"), plan.workers) for link in LINKS}
    local_ms = {codec: median(chosen[link].local_ms[codec] for link in LINKS) for codec in CODECS}
    declared = {codec: _declared(codec, forms) for codec in CODECS}
    return CompressionMeasurements(
        plan=plan,
        parameters=sum(form.numel for form in forms.values()),
        timed={link: _timed(plan, runs, f"rotate-{link}") for link in LINKS},
        chosen=chosen,
        declared=declared,
        operations={codec: _operation(codec) for codec in CODECS},
        accuracies={
            name: tuple(accuracy_of(runs.path(f"learn-{name}-seed{seed}")) for seed in plan.seeds)
            for name in (*CODECS, *FEEDBACK)
        },
        break_even=_break_even(declared, local_ms, plan.workers),
        local_ms=local_ms,
        busy=runs.busy(),
    )


def _timed(plan: CompressionPlan, runs: Runs, name: str) -> dict[str, Timed]:
    def steps(run: Path) -> list[Step]:
        return read_steps(run, plan.workers)

    def rounds_ms(paths: Sequence[Path]) -> dict[str, list[float]]:
        found = [plan.rotation.by_round([_step_ms(step) for step in steps(run)]) for run in paths]
        return {codec: [ms for each in found for ms in each[codec]] for codec in CODECS}

    config = plan.runs()[name]
    paths = made_again(runs, name, config, plan.size.most, lambda paths: _decides(rounds_ms(paths)))
    counted = plan.rotation.counted(steps(paths[0]))
    return {codec: _timed_codec(its, counted[codec]) for codec, its in rounds_ms(paths).items()}


def _decides(rounds_ms: Mapping[str, Sequence[float]]) -> bool:
    """Whether more rounds would change little in how the fastest codec compares with none."""
    best = min(CODECS[1:], key=lambda codec: median(rounds_ms[codec]))
    return settled({each: rounds_ms[each] for each in (NONE, best)})


def _timed_codec(rounds_ms: Sequence[float], steps: Sequence[Step]) -> Timed:
    return Timed(
        rounds_ms,
        median(fmean(rank.own_ms for rank in step) for step in steps),
        median(fmean(rank.exchange_ms for rank in step) for step in steps),
        median(fmean(rank.encode_ms for rank in step) for step in steps),
        max(round(fmean(rank.sent_bytes for rank in step)) for step in steps),
    )


def _step_ms(step: Step) -> float:
    return max(rank.own_ms + rank.exchange_ms for rank in step)


def _chosen(run: Path, workers: int) -> Chosen:
    choice = next(event for event in read_events(RunFolder(run).events()) if event["event"] == "codec")
    steps = read_steps(run, workers)[choice["step"] + 1 :]  # the step of the choice measures
    rows: list[dict[str, Any]] = choice["candidates"]
    return Chosen(
        choice["chosen"],
        inside_run([_step_ms(step) for step in steps]),
        choice["link_bits_per_s"],
        {row["codec"]: row["predicted_ms"] for row in rows},
        {row["codec"]: row["encode_decode_ms"] for row in rows},
    )


def _break_even(declared: Mapping[str, int], local_ms: Mapping[str, float], workers: int) -> dict[str, float]:
    """As `compressed:auto` computes it, from the medians of all links."""
    candidates = {
        codec: Candidate(codec, local_ms[codec] / 1e3, [GroupCall(_operation(codec), declared[codec])])
        for codec in CODECS
    }
    dense = candidates[NONE]
    return {codec: each.break_even_bits_per_s(dense, workers) for codec, each in candidates.items()}


def _operation(codec: str) -> str:
    is_linear = isinstance(build_codec(CompressedConfig(codec=codec).encoding_of("")), Linear)  # pyright: ignore[reportArgumentType]
    return "all_reduce" if is_linear else "all_gather"


def _declared(codec: str, forms: Mapping[str, Form]) -> int:
    config = CompressedConfig(codec=codec)  # pyright: ignore[reportArgumentType]
    return sum(
        build_codec(config.encoding_of(name)).fitted(form).num_bytes(form) for name, form in forms.items()
    )


def _forms(run: Path) -> dict[str, Form]:
    weights = read_model(RunFolder(run).model).weights
    return {name: Form(tuple(weight.shape), torch.float32) for name, weight in weights.items()}
