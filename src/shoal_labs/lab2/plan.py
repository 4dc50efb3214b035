"""The runs of Lab 2 by name; each differs from its neighbours in one thing.

::

    rotate-*    one training for each condition, in which the exchange changes every few steps, so that all branches
                are measured in the same state of the machine. By processes, because their times are used.
    contest-*   a rotation of the few branches that the findings compare, with many rounds: they are compared in pairs
    pace-*      one exchange, one condition: how fast is training, and where does a step's time go? By processes.
    turn-*      a few steps with even, slow and balanced workers, and over a slow link, in turns (labs/timing), to be
                compared in pairs
    equal-*     a few steps, then the weights are compared: what is equal, what is not? By threads, like all below. On
                a GPU, one machine computes in the workers' parts
    learn-*     longer, with several seeds: what does the aggregation do to loss and accuracy?
    fault-*     one faulty worker of five against every rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shoal.kit.settings import (
    AdamConfig,
    AllReduceConfig,
    Combine,
    DataConfig,
    DigitsConfig,
    ExchangeConfig,
    LaunchConfig,
    LenetConfig,
    MlpConfig,
    ModelConfig,
    NaiveConfig,
    NoSyncConfig,
    OptimizerConfig,
    RobustConfig,
    RunConfig,
    SgdConfig,
    StagesConfig,
    TrainConfig,
)
from shoal_labs.lab2.averaging import ALL, COURSE, exchange_of
from shoal_labs.plans import at_least_two, in_parts, seeds_from
from shoal_labs.rotation import Rotation
from shoal_labs.runs import NEVER, ONLY_AT_THE_END

BATCH_SIZE = 64
RATE, MOMENTUM = 0.01, 0.9
"""Of SGD, where gradients are averaged."""
ADAM_RATE = 2e-3


def _sgd(rate: float) -> SgdConfig:
    return SgdConfig(lr=rate, momentum=MOMENTUM)


SGD, ADAM = _sgd(RATE), AdamConfig(lr=ADAM_RATE)
SLOWDOWN, SHARE = 3, 0.8
"""The slow worker computes this many times as long; the overloaded one has this part of the batch."""
SLOW = 1
"""The rank of the bottleneck, and of the faulty worker."""
LINK = "all:100mbit,1ms"
CONDITIONS: dict[str, Mapping[str, Any]] = {
    "even": {},
    "compute": {"bottleneck": (f"rank={SLOW},slowdown={SLOWDOWN}",)},
    "batch": {"bottleneck": (f"rank={SLOW},share={SHARE}",)},
    "link": {"link": (LINK,)},
}
"""No bottleneck, or one of each kind."""
RULES: dict[str, ExchangeConfig] = {
    "mean": AllReduceConfig(),
    "median": RobustConfig(rule="median"),
    "trimmed_mean": RobustConfig(rule="trimmed_mean"),
    "krum": RobustConfig(rule="krum"),
}
EQUAL_STAGES = StagesConfig(plan=("0=all_reduce", "0.34=by:ring", "0.67=by:central"))
"""Three exchanges of the same sum, one after the other."""
LINK_STAGES = StagesConfig(plan=(f"0={exchange_of('gather_broadcast')}", "0.5=by:ring"))
"""Behind a slow link: first through one worker, then around the ring."""
COMBINE_STAGES = ("0=sum", "0.5=mean")
"""The sum takes long steps while the loss falls fast; the mean takes short ones at the end."""
CONTESTS: dict[str, tuple[tuple[str, ...], int]] = {
    "even": (("all_reduce", "gather_broadcast", "all_gather"), 5),
    "compute": (COURSE, 2),
    "link": (("gather_broadcast", "by:ring"), 2),
}
"""The branches that are compared round by round under a condition, and the steps of a turn."""
SGD_WAYS = ("sgd-sum", "sgd-mean", "sgd-scaled", "sgd-stages")
LEARNING = (*SGD_WAYS, "adam-sum", "adam-mean", "uneven-exact", "uneven-mean")
UNEVEN_WAYS: tuple[Combine, ...] = ("exact", "weighted_mean", "mean")
"""How uneven batches are combined where the weights are compared with one machine's."""
TURNS = {"even": "", "compute": "even", "balanced": "compute", "link": "even"}
"""The runs that take turns, and the one with which each is compared."""
FAULTS = ("none", "flip", "huge", "nan")
FAULT_WORKERS = 5
"""The fewest with which Krum tolerates one faulty worker."""


@dataclass(frozen=True)
class Lab2Size:
    """How much is trained."""

    rounds: Mapping[str, int]
    """How many times the rotation goes through all branches, by condition."""
    branch_steps: int
    """Steps of a branch in one round; the first of them is not counted."""
    contest_rounds: int
    """Of the rotations that are compared round by round."""
    turn_rounds: int
    """Of the runs that take turns: they differ so much that a few rounds decide, where the machine is quiet."""
    turn_steps: int
    """Of a run that takes turns. The last quarter counts: by then, balancing has changed the shares twice."""
    pace_steps: int
    equal_steps: int
    """Few: after many steps, rounding alone makes two runs differ."""
    learn_steps: int
    fault_steps: int
    seeds: int
    """At most ten: up to there a comparison by seeds is Student's, which decides sooner than a sign test."""
    close_seeds: int
    """Of the runs whose results are close: what uneven batches cost, and Krum, which follows one worker's noise."""
    most: int = 1
    """How many times as many rounds there may be, if they scatter too much to decide."""


FULL = Lab2Size({"even": 4, "compute": 3, "batch": 3, "link": 3}, 4, 31, 31, 42, 60, 20, 100, 100, 10, 10, 2)
QUICK = Lab2Size(dict.fromkeys(CONDITIONS, 1), 3, 15, 8, 28, 24, 10, 60, 50, 6, 10, 3)


@dataclass(frozen=True)
class Lab2Plan:
    """The whole experiment."""

    workers: int
    size: Lab2Size
    first_seed: int = 0
    quick: bool = False
    data: DataConfig = field(default_factory=DigitsConfig)
    model: ModelConfig = field(default_factory=LenetConfig)
    dense_model: ModelConfig = field(default_factory=MlpConfig)
    """Of equal-*, learn-* and fault-*. Convolutions stay on a plateau for tens of steps, and seeds then differ more
    than aggregations do; and those of a GPU round so coarsely that ten steps amplify it to more than rounding."""
    device: Literal["cpu", "cuda"] = "cpu"
    timed_by: Literal["processes", "threads"] = "processes"
    """The launcher of runs whose times are used."""

    def __post_init__(self) -> None:
        at_least_two(self.workers)

    def runs(self) -> dict[str, RunConfig]:
        """Every run by name, in the order in which they are trained."""
        return {**self._timed(), **self._equal(), **self._learn(), **self._fault()}

    def learn_runs(self, way: str) -> dict[str, int]:
        """The runs of an aggregation with their seeds; `sgd-scaled` is shown, and nothing is compared with it."""
        size = self.size
        count = 1 if way == "sgd-scaled" else size.close_seeds if way.startswith("uneven") else size.seeds
        return {f"learn-{way}-seed{seed}": seed for seed in seeds_from(self.first_seed, count)}

    def fault_runs(self, fault: str, rule: str) -> dict[str, int]:
        """The runs of a rule with their seeds; only those that show the price of Krum are repeated."""
        repeated = fault == "none" and rule in ("mean", "krum")
        seeds = seeds_from(self.first_seed, self.size.close_seeds if repeated else 1)
        return {f"fault-{fault}-{rule}-seed{seed}": seed for seed in seeds}

    def compared_weights(self) -> dict[str, tuple[str, str]]:
        """Runs that are said to be equal, or not to be, by what is compared."""
        return {
            "exact": ("equal-exact", "equal-single"),
            "sum": ("equal-sum", "equal-mean"),
            "parameters": ("equal-parameters", "equal-mean"),
            "adam-parameters": ("equal-adam-parameters", "equal-adam"),
            "stages": ("equal-stages", "equal-exact"),
            **{f"uneven-{way}": (f"equal-uneven-{way}", self.uneven_single) for way in UNEVEN_WAYS},
        }

    def rotation(self, condition: str) -> Rotation:
        """How the branches take turns under a condition."""
        return Rotation(ALL, self.size.branch_steps, self.size.rounds[condition])

    def contest(self, condition: str) -> Rotation:
        """How the branches of a contest take turns."""
        branches, steps = CONTESTS[condition]
        return Rotation(branches, steps, self.size.contest_rounds)

    @property
    def uneven_parts(self) -> int:
        """The parts of an uneven batch, of which all workers but the overloaded one have one each."""
        return round((self.workers - 1) / (1 - SHARE))

    @property
    def uneven_single(self) -> str:
        """The name of the run on one machine with which uneven batches are compared; on a GPU it has their parts."""
        return "equal-single" if self.device == "cpu" else "equal-single-uneven-parts"

    def turns(self) -> dict[str, RunConfig]:
        """The runs that take turns, by name."""
        steps, exchange = self.size.turn_steps, AllReduceConfig()
        even, compute = (self._traced(condition, steps, exchange) for condition in ("even", "compute"))
        balanced = _with(compute, train={"balance": True})
        # Its steps are long, and as many as for balancing are not needed.
        link = self._traced("link", max(steps // 4, 4), exchange)
        turns = {"even": even, "compute": compute, "balanced": balanced, "link": link}
        return {f"turn-{name}": turns[name] for name in TURNS}

    # ── runs whose times are used ──

    def _timed(self) -> dict[str, RunConfig]:
        rotations = {("rotate", condition): self.rotation(condition) for condition in CONDITIONS}
        rotations |= {("contest", condition): self.contest(condition) for condition in CONTESTS}
        pace = {
            f"pace-{condition}": self._traced(condition, self.size.pace_steps, AllReduceConfig())
            for condition in CONDITIONS
        }
        return {
            **{
                f"{kind}-{condition}": self._traced(condition, len(its.names), its.stages(exchange_of))
                for (kind, condition), its in rotations.items()
            },
            **pace,
            "pace-compute-balanced": _with(pace["pace-compute"], train={"balance": True}),
            "pace-link-stages": replace(pace["pace-link"], exchange=LINK_STAGES),
        }

    def _traced(self, condition: str, steps: int, exchange: ExchangeConfig) -> RunConfig:
        # A link carries messages through shared memory, where their own time hardly adds to the wire's.
        group = "auto" if condition == "link" else "gloo"
        config = self._run(steps, launcher=self.timed_by, group=group, **CONDITIONS[condition])
        config = _with(config, output={"trace": True}, train={"test": False})
        return replace(config, exchange=exchange)

    # ── runs whose results are used ──

    def _equal(self) -> dict[str, RunConfig]:
        """The same first steps by ways that are equal, or that are often taken for equal."""
        steps, scaled = self.size.equal_steps, _sgd(RATE / self.workers)
        single = replace(self._run(steps, workers=1), sync=NoSyncConfig())
        exact = in_parts(self._run(steps), self.workers)
        runs = {
            "equal-single": in_parts(single, self.workers),
            "equal-exact": exact,
            "equal-sum": self._run(steps, scaled, "sum"),
            "equal-mean": self._run(steps, SGD, "mean"),
            "equal-parameters": self._run(steps, SGD, "mean", "parameters"),
            "equal-adam": self._run(steps, ADAM, "mean"),
            "equal-adam-parameters": self._run(steps, ADAM, "mean", "parameters"),
            "equal-stages": replace(exact, exchange=EQUAL_STAGES),
            **{
                f"equal-uneven-{combine}": in_parts(
                    self._run(steps, SGD, combine, **CONDITIONS["batch"]), self.uneven_parts
                )
                for combine in UNEVEN_WAYS
            },
            self.uneven_single: in_parts(single, self.uneven_parts),
        }
        return {
            name: _with(replace(config, model=self.dense_model), train={"test": False})
            for name, config in runs.items()
        }

    def _learn(self) -> dict[str, RunConfig]:
        """The same training with every aggregation, repeated."""
        steps, scaled = self.size.learn_steps, _sgd(RATE / self.workers)
        once = {
            "sgd-sum": self._run(steps, scaled, "sum"),
            "sgd-mean": self._run(steps, scaled, "mean"),
            "sgd-scaled": self._run(steps, SGD, "mean"),
            "sgd-stages": _with(self._run(steps, scaled), sync={"combine_stages": COMBINE_STAGES}),
            "adam-sum": self._run(steps, ADAM, "sum"),
            "adam-mean": self._run(steps, ADAM, "mean"),
            "uneven-exact": self._run(steps, SGD, "exact", **CONDITIONS["batch"]),
            "uneven-mean": self._run(steps, SGD, "mean", **CONDITIONS["batch"]),
        }
        return {
            name: replace(config, model=self.dense_model, seed=seed)
            for way, config in once.items()
            for name, seed in self.learn_runs(way).items()
        }

    def _fault(self) -> dict[str, RunConfig]:
        """Every rule with a faulty worker of every kind."""
        runs: dict[str, RunConfig] = {}
        for rule, exchange in RULES.items():
            for fault in FAULTS:
                faulty = () if fault == "none" else (f"rank={SLOW},gradient={fault}",)
                config = self._run(self.size.fault_steps, workers=FAULT_WORKERS, fault=faulty)
                config = replace(config, model=self.dense_model)
                for name, seed in self.fault_runs(fault, rule).items():
                    runs[name] = replace(config, exchange=exchange, seed=seed)
        return runs

    def _run(
        self,
        steps: int,
        optimizer: OptimizerConfig = SGD,
        combine: Combine = "exact",
        aggregate: Literal["gradients", "parameters"] = "gradients",
        **launch: Any,
    ) -> RunConfig:
        """A run by threads unless `launch` says otherwise."""
        return RunConfig(
            seed=self.first_seed,
            device=self.device,
            threads=1,
            data=self.data,
            model=self.model,
            optimizer=optimizer,
            sync=NaiveConfig(aggregate=aggregate, combine=combine),
            launch=replace(LaunchConfig(workers=self.workers, launcher="threads"), **launch),
            train=TrainConfig(epochs=NEVER, steps=steps, batch_size=BATCH_SIZE),
            checkpoint=ONLY_AT_THE_END,
        )


def plan_for(workers: int, quick: bool, first_seed: int) -> Lab2Plan:
    """The plan of a run."""
    return Lab2Plan(workers, QUICK if quick else FULL, first_seed, quick)


def _with(config: RunConfig, **sections: Mapping[str, Any]) -> RunConfig:
    """A config with some fields of its sections changed."""
    return replace(
        config,
        **{name: replace(getattr(config, name), **dict(changes)) for name, changes in sections.items()},
    )
