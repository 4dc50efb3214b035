"""The runs of Lab 2 by name; each differs from its neighbours in one thing.

::

    rotate-*    one training for each condition, in which the exchange changes every few steps, so that all branches
                are measured in the same state of the machine. By processes, because their times are used.
    pace-*      one exchange, one condition: how fast is training, and where does a step's time go? By processes.
    equal-*     a few steps, then the weights are compared: what is equal, what is not? By threads, like all below.
    learn-*     longer, with several seeds: what does the aggregation do to loss and accuracy?
    fault-*     one faulty worker of five against every rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shoal.config import schema
from shoal.errors import ConfigError
from shoal.labs.lab2.branches import ALL, exchange_of
from shoal.labs.runs import NEVER, ONLY_AT_THE_END

BATCH_SIZE = 64
RATE, MOMENTUM = 0.02, 0.9
"""Of SGD, where gradients are averaged."""
ADAM_RATE = 2e-3
SLOWDOWN, SHARE = 3, 0.8
"""The slow worker computes this many times as long; the overloaded one has this part of the batch."""
SLOW = 1
"""The rank of the bottleneck, and of the faulty worker."""
LINK = "all:100mbit,1ms"
CONDITIONS: dict[str, Mapping[str, tuple[str, ...]]] = {
    "even": {},
    "compute": {"bottleneck": (f"rank={SLOW},slowdown={SLOWDOWN}",)},
    "batch": {"bottleneck": (f"rank={SLOW},share={SHARE}",)},
    "link": {"link": (LINK,)},
}
"""No bottleneck, or one of each kind."""
RULES: dict[str, schema.ExchangeConfig] = {
    "mean": schema.AllReduceConfig(),
    "median": schema.RobustConfig(rule="median"),
    "trimmed_mean": schema.RobustConfig(rule="trimmed_mean"),
    "krum": schema.RobustConfig(rule="krum"),
}
FAULTS = ("none", "flip", "huge", "nan")
FAULT_WORKERS = 5
"""The fewest with which Krum tolerates one faulty worker."""


@dataclass(frozen=True)
class Size:
    """How much is trained."""

    rounds: Mapping[str, int]
    """How many times the rotation goes through all branches, by condition."""
    branch_steps: int
    """Steps of a branch in one round; the first of them is not counted."""
    pace_steps: int
    equal_steps: int
    """Few: after many steps, rounding alone makes two runs differ."""
    learn_steps: int
    fault_steps: int
    seeds: int


FULL = Size({"even": 4, "compute": 3, "batch": 3, "link": 3}, 4, 60, 20, 80, 50, 3)
QUICK = Size({"even": 2, "compute": 1, "batch": 1, "link": 1}, 3, 20, 10, 30, 25, 2)


@dataclass(frozen=True)
class Plan:
    """The whole experiment."""

    workers: int
    size: Size
    first_seed: int = 0
    quick: bool = False
    data: schema.DataConfig = field(default_factory=schema.DigitsConfig)
    model: schema.ModelConfig = field(default_factory=schema.LenetConfig)
    timed_by: Literal["processes", "threads"] = "processes"
    """The launcher of runs whose times are used."""

    def __post_init__(self) -> None:
        if self.workers < 2:
            raise ConfigError(
                f"this lab needs at least 2 workers, got --workers {self.workers}", "Try --workers 2."
            )

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of repeated runs; runs that are not repeated have the first."""
        return tuple(range(self.first_seed, self.first_seed + self.size.seeds))

    def runs(self) -> dict[str, schema.RunConfig]:
        """Every run by name, in the order in which they are trained."""
        return {**self._timed(), **self._equal(), **self._learn(), **self._fault()}

    def fault_seeds(self, fault: str, rule: str) -> tuple[int, ...]:
        """Only runs that are compared by their spread are repeated: what Krum costs without a faulty worker."""
        return self.seeds if fault == "none" and rule in ("mean", "krum") else self.seeds[:1]

    def rotation(self, condition: str) -> list[str]:
        """The branch of every step of a rotation."""
        turns = [branch for _ in range(self.size.rounds[condition]) for branch in ALL]
        return [branch for branch in turns for _ in range(self.size.branch_steps)]

    # ── runs whose times are used ──

    def _timed(self) -> dict[str, schema.RunConfig]:
        runs = {f"rotate-{condition}": self._rotate(condition) for condition in CONDITIONS}
        for condition in CONDITIONS:
            runs[f"pace-{condition}"] = self._pace(condition)
        runs["pace-compute-balanced"] = _with(runs["pace-compute"], train={"balance": True})
        runs["pace-link-stages"] = replace(runs["pace-link"], exchange=link_stages())
        return runs

    def _rotate(self, condition: str) -> schema.RunConfig:
        branches = self.rotation(condition)
        return self._processes(condition, len(branches), _stages(branches))

    def _pace(self, condition: str) -> schema.RunConfig:
        return self._processes(condition, self.size.pace_steps, schema.AllReduceConfig())

    def _processes(self, condition: str, steps: int, exchange: schema.ExchangeConfig) -> schema.RunConfig:
        config = self._run(self.timed_by, self.workers, steps, _sgd(RATE), exchange=exchange)
        # A slow link needs a group that sends every byte; the other conditions use the same group to be comparable.
        config = _with(config, launch={"group": "gloo", **CONDITIONS[condition]})
        return _with(config, output={"trace": True}, train={"test": False})

    # ── runs whose results are used ──

    def _equal(self) -> dict[str, schema.RunConfig]:
        """The same first steps by ways that are equal, or that are often taken for equal."""
        steps, workers = self.size.equal_steps, self.workers
        sgd, adam = _sgd(RATE), schema.AdamConfig(lr=ADAM_RATE)
        by_parameters = schema.NaiveConfig(aggregate="parameters", combine="mean")
        means = schema.NaiveConfig(combine="mean")
        exact = self._threads(steps, sgd)
        runs = {
            "equal-single": replace(self._run("threads", 1, steps, sgd), strategy=schema.SingleConfig()),
            "equal-exact": exact,
            "equal-sum": self._threads(steps, _sgd(RATE / workers), schema.NaiveConfig(combine="sum")),
            "equal-mean": self._threads(steps, sgd, means),
            "equal-parameters": self._threads(steps, sgd, by_parameters),
            "equal-adam": self._threads(steps, adam, means),
            "equal-adam-parameters": self._threads(steps, adam, by_parameters),
            "equal-stages": replace(exact, exchange=equal_stages()),
        }
        for combine in ("exact", "weighted_mean", "mean"):
            runs[f"equal-uneven-{combine}"] = _with(
                self._threads(steps, sgd, schema.NaiveConfig(combine=combine)), launch=CONDITIONS["batch"]
            )
        return {name: _with(config, train={"test": False}) for name, config in runs.items()}

    def _learn(self) -> dict[str, schema.RunConfig]:
        """The same training with every aggregation, repeated."""
        steps, workers = self.size.learn_steps, self.workers
        uneven = CONDITIONS["batch"]
        once: dict[str, schema.RunConfig] = {
            "sgd-sum": self._threads(steps, _sgd(RATE / workers), schema.NaiveConfig(combine="sum")),
            "sgd-mean": self._threads(steps, _sgd(RATE / workers), schema.NaiveConfig(combine="mean")),
            "sgd-scaled": self._threads(steps, _sgd(RATE), schema.NaiveConfig(combine="mean")),
            "adam-sum": self._threads(
                steps, schema.AdamConfig(lr=ADAM_RATE), schema.NaiveConfig(combine="sum")
            ),
            "adam-mean": self._threads(
                steps, schema.AdamConfig(lr=ADAM_RATE), schema.NaiveConfig(combine="mean")
            ),
            "uneven-exact": _with(self._threads(steps, _sgd(RATE)), launch=uneven),
            "uneven-mean": _with(
                self._threads(steps, _sgd(RATE), schema.NaiveConfig(combine="mean")), launch=uneven
            ),
        }
        return {
            f"learn-{name}-seed{seed}": replace(config, seed=seed)
            for seed in self.seeds
            for name, config in once.items()
        }

    def _fault(self) -> dict[str, schema.RunConfig]:
        """Every rule with a faulty worker of every kind."""
        runs: dict[str, schema.RunConfig] = {}
        for rule, exchange in RULES.items():
            for fault in FAULTS:
                config = self._run(
                    "threads", FAULT_WORKERS, self.size.fault_steps, _sgd(RATE), exchange=exchange
                )
                if fault != "none":
                    config = _with(config, launch={"fault": (f"rank={SLOW},gradient={fault}",)})
                for seed in self.fault_seeds(fault, rule):
                    runs[f"fault-{fault}-{rule}-seed{seed}"] = replace(config, seed=seed)
        return runs

    def _threads(
        self, steps: int, optimizer: schema.OptimizerConfig, strategy: schema.NaiveConfig | None = None
    ) -> schema.RunConfig:
        return self._run("threads", self.workers, steps, optimizer, strategy)

    def _run(
        self,
        launcher: Literal["threads", "processes"],
        workers: int,
        steps: int,
        optimizer: schema.OptimizerConfig,
        strategy: schema.NaiveConfig | None = None,
        exchange: schema.ExchangeConfig | None = None,
    ) -> schema.RunConfig:
        return schema.RunConfig(
            seed=self.first_seed,
            device="cpu",
            threads=1,
            data=self.data,
            model=self.model,
            optimizer=optimizer,
            strategy=strategy or schema.NaiveConfig(),
            exchange=exchange or schema.AllReduceConfig(),
            launch=schema.LaunchConfig(workers=workers, launcher=launcher),
            train=schema.TrainConfig(epochs=NEVER, steps=steps, batch_size=BATCH_SIZE),
            checkpoint=ONLY_AT_THE_END,
        )


def _sgd(rate: float) -> schema.SgdConfig:
    return schema.SgdConfig(lr=rate, momentum=MOMENTUM)


def equal_stages() -> schema.StagesConfig:
    """Three exchanges of the same sum, one after the other."""
    return schema.StagesConfig(plan=("0=all_reduce", "0.34=by:ring", "0.67=by:central"))


def link_stages() -> schema.StagesConfig:
    """Behind a slow link: first through one worker, then around the ring."""
    return schema.StagesConfig(plan=(f"0={exchange_of('gather_broadcast')}", "0.5=by:ring"))


def plan_for(workers: int, quick: bool, first_seed: int) -> Plan:
    """The plan of a run."""
    return Plan(workers, QUICK if quick else FULL, first_seed, quick)


def _stages(branches: list[str]) -> schema.StagesConfig:
    """Stages that follow a list of one branch per step."""
    starts = [step for step, branch in enumerate(branches) if step == 0 or branch != branches[step - 1]]
    # Half a step early, so that a rounded fraction is still between two steps.
    plan = [f"{max(0, start - 0.5) / len(branches):.9g}={exchange_of(branches[start])}" for start in starts]
    return schema.StagesConfig(plan=tuple(plan))


def _with(config: schema.RunConfig, **sections: Mapping[str, Any]) -> schema.RunConfig:
    """A config with some fields of its sections changed."""
    return replace(
        config,
        **{name: replace(getattr(config, name), **dict(changes)) for name, changes in sections.items()},
    )
