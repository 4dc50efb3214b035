"""A training loop of one's own, with torch's verbs: any sampler, right or wrong, in a DataLoader for each worker.

Workers are threads. They agree in every step, by the wrapper `shoal.DistributedDataParallel`; or each goes through its
samples alone, and only at the end of an epoch all take the mean of their weights. What the loaders really delivered is
written down: a sampler that misses a part of the data set does not say so.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

from shoal import models
from shoal.kit.division import (
    DataSet,
    DistributedSampler,
    Division,
    Global,
    PartitionSampler,
    Split,
    build_division,
    load,
    survey,
)
from shoal.kit.runs import write_whole
from shoal.kit.settings import MlpConfig, RunConfig, to_toml
from shoal.kit.strategies import DistributedDataParallel
from shoal.kit.training import Group, threads, torch_settings
from shoal_labs.lab3.plan import BATCH_SIZE, DIVISIONS, EQUAL_RATE, RATE, Lab3Plan, partition_of, run_name
from shoal_labs.lab3.wrong_samplers import OneWorkersRange, SeedPerRank
from shoal_labs.runs import Runs

MakeSampler = Callable[[TensorDataset, Tensor, int, int, int], Any]
"""Of the data set, its labels, the number of workers, the rank and the seed."""


@dataclass(frozen=True)
class Way:
    """A sampler for each worker, and how often the workers agree."""

    sampler: MakeSampler
    agree: Literal["step", "epoch"] = "step"


WAYS: dict[str, Way] = {
    "right": Way(lambda data, _, size, rank, seed: DistributedSampler(data, size, rank, seed=seed)),
    "range": Way(lambda data, _, size, rank, seed: OneWorkersRange(data, size, rank, seed)),
    "rank-seed": Way(lambda data, _, size, rank, seed: SeedPerRank(data, size, rank, seed)),
    "seldom-random": Way(
        lambda data, _, size, rank, seed: PartitionSampler(data, size, rank, by="random", seed=seed), "epoch"
    ),
    "seldom-label": Way(
        lambda data, labels, size, rank, seed: PartitionSampler(
            data, size, rank, by="label", seed=seed, labels=labels
        ),
        "epoch",
    ),
}
WRONG = ("range", "rank-seed")
SELDOM = ("seldom-random", "seldom-label")
"""The workers agree once an epoch."""


@dataclass(frozen=True)
class OwnResult:
    """What a run left; lists have a number for each epoch."""

    loss: list[float]
    """Mean training loss."""
    accuracy: list[float]
    """On the validation part, at the end of the epoch."""
    coverage: list[float]
    """The part of the data set that any worker has seen so far."""
    overlap: float
    """The part that more than one worker sees in the first epoch."""
    test_accuracy: float


@dataclass
class _Seen:
    """What one worker went through, and what it measured."""

    numbers: list[Tensor]
    """The samples of each epoch."""
    loss_sum: list[float]
    accuracy: list[float]
    test_accuracy: float = 0.0


RECORD = "record.json"
"""The file that a run of this loop leaves in its folder."""
OwnRuns = dict[tuple[str, int], list[OwnResult]]
"""The results of every seed, by way and number of workers."""


def train_ways(plan: Lab3Plan, runs: Runs) -> OwnRuns:
    """Every way with every number of workers; those that agree once an epoch with the largest number alone."""
    made: OwnRuns = {
        (way, workers): []
        for workers in plan.workers
        for way in WAYS
        if way not in SELDOM or workers == plan.most
    }
    total, number, began = sum(len(plan.seeds_of(*each)) for each in made), 0, time.monotonic()
    for (way, workers), results in made.items():
        for seed in plan.seeds_of(way, workers):
            number, name = number + 1, run_name(f"own-{way}", workers, seed)
            label = runs.words("progress.run", number=number, total=total, name=name)
            runs.watch.running(runs.with_time_left(label, began, number - 1, total - number + 1))
            results.append(_trained_or_taken_over(way, name, plan.own(workers, seed), runs))
            runs.say("progress.own", label=label, accuracy=100 * results[-1].accuracy[-1])
    return made


def _trained_or_taken_over(way: str, name: str, config: RunConfig, runs: Runs) -> OwnResult:
    settings = {"way": way, "config": to_toml(config)}

    def earlier(folder: Path) -> OwnResult | None:
        record = json.loads((folder / RECORD).read_text("utf-8")) if (folder / RECORD).exists() else {}
        same = all(record.get(key) == value for key, value in settings.items())
        return OwnResult(**record["result"]) if same else None

    result = runs.reuse(name, earlier)
    if result is None:
        result = train_own(way, config)
        runs.path(name).mkdir(parents=True)
        record = json.dumps({**settings, "result": asdict(result)}, indent=1)
        write_whole(runs.path(name) / RECORD, record + "\n")
        runs.trained.append(name)
    return result


def train_own(way: str, config: RunConfig) -> OwnResult:
    """Train as a config says, but by the loop and the samplers of this file."""
    return train_way(WAYS[way], config)


def train_way(way: Way, config: RunConfig) -> OwnResult:
    """Train as a config says, but by the loop of this file and any sampler."""
    with torch_settings(config):
        data = load(config.data)
        every = torch.arange(len(data.train))
        batch = data.batch(data.train, every)
        samples = TensorDataset(batch.inputs, batch.labels, every)

        def work(group: Group) -> _Seen:
            return train_worker(way, config, data, samples, group)

        workers = threads.run(config.launch.workers, work)
    epochs = range(config.train.epochs)
    lists = [[worker.numbers[epoch] for worker in workers] for epoch in epochs]
    seen = [torch.cat([own for epoch in lists[: last + 1] for own in epoch]) for last in epochs]
    counts = [sum(map(len, own)) for own in lists]
    return OwnResult(
        loss=[sum(worker.loss_sum[epoch] for worker in workers) / counts[epoch] for epoch in epochs],
        accuracy=workers[0].accuracy,
        coverage=[len(numbers.unique()) / len(samples) for numbers in seen],
        overlap=survey(lists[0], len(samples)).overlap,
        test_accuracy=workers[0].test_accuracy,
    )


def train_worker(way: Way, config: RunConfig, data: DataSet, samples: TensorDataset, group: Group) -> _Seen:
    """One worker: its sampler, its loader, its replica, all epochs."""
    size, rank = group.size, group.rank
    sampler = way.sampler(samples, data.train.labels, size, rank, config.seed)
    # A whole batch is taken at once; sample by sample, Python would take longer than the network.
    batches = BatchSampler(sampler, BATCH_SIZE // size, drop_last=False)
    loader = DataLoader(samples, batch_size=None, sampler=batches, generator=torch.Generator())
    net = models.build(config.model, data.input_shape, data.outputs, config.seed)
    seen = _Seen([], [], [])
    model = DistributedDataParallel(net, group) if way.agree == "step" else net
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for epoch in range(config.train.epochs):
        sampler.set_epoch(epoch)
        if isinstance(model, DistributedDataParallel):
            # The worker with most samples decides how many steps there are; the others join in with nothing.
            steps = math.ceil(math.ceil(len(samples) / size) / (BATCH_SIZE // size))
            numbers, loss_sum = train_epoch(model, optimizer, equally_many(loader, steps))
        else:
            numbers, loss_sum = train_alone(model, optimizer, loader)
            average_weights(group, net, part=len(sampler) / len(samples))
        seen.numbers.append(numbers)
        seen.loss_sum.append(loss_sum)
        seen.accuracy.append(accuracy_on(net, data, data.validation or data.test, group))
    seen.test_accuracy = accuracy_on(net, data, data.test, group)
    return seen


Batches = Iterator[tuple[Tensor, Tensor, Tensor]]


def train_epoch(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer, batches: Batches
) -> tuple[Tensor, float]:
    """All workers agree in every step; gives back the samples seen, and the sum of their losses."""
    seen, loss_sum = [torch.empty(0, dtype=torch.int64)], 0.0
    for inputs, labels, numbers in batches:
        optimizer.zero_grad()
        with model.batch(num_samples=len(labels)):
            if len(labels):
                loss = nn.functional.cross_entropy(model(inputs), labels)
                loss.backward()  # afterwards the gradients are those of all workers together
                loss_sum += loss.item() * len(labels)
        optimizer.step()
        seen.append(numbers)
    return torch.cat(seen), loss_sum


def train_alone(
    model: nn.Module, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]
) -> tuple[Tensor, float]:
    """One epoch without any communication."""
    seen, loss_sum = [torch.empty(0, dtype=torch.int64)], 0.0
    for inputs, labels, numbers in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        loss_sum += loss.item() * len(labels)
        seen.append(numbers)
    return torch.cat(seen), loss_sum


@torch.no_grad()
def average_weights(group: Group, model: nn.Module, part: float) -> None:
    """Give every worker the mean of all workers' weights, each by its part of the samples."""
    for param in model.parameters():
        param.mul_(part)
        group.all_reduce(param.data).wait()


def equally_many(loader: DataLoader[Any], steps: int) -> Batches:
    """Yield `steps` batches; empty ones after a worker's last."""
    yield from loader
    for _ in range(steps - len(loader)):
        yield torch.empty(0), torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)


@torch.no_grad()
def accuracy_on(model: nn.Module, data: DataSet, split: Split, group: Group) -> float:
    """The part of a split's samples that are labelled correctly; the workers divide them."""
    correct = torch.zeros(1)
    for numbers in torch.arange(group.rank, len(split), group.size).split(500):
        batch = data.batch(split, numbers)
        correct += (model(batch.inputs).argmax(1) == batch.labels).sum()
    group.all_reduce(correct).wait()
    return correct.item() / len(split)


# ── the same order on one machine ──


def differences_from_same_order(plan: Lab3Plan) -> dict[str, float]:
    """Of every division: the largest relative difference of the weights from one machine that takes the same samples.

    A small network, because the claim holds for any; with the largest number of workers of the plan. It trains on the
    CPU, also where the other runs use a GPU.
    """
    config = replace(plan.equal(plan.most)[0], device="cpu")
    with torch_settings(config):
        data = load(config.data)
        return {name: _difference(name, config, data, plan.most) for name in DIVISIONS}


def _difference(name: str, config: RunConfig, data: DataSet, size: int) -> float:
    num_samples = len(data.train)
    division = build_division(partition_of(name, size), num_samples, size, config.seed, data.train.labels)
    alone = Global(num_samples, config.seed, size=1, order=division.order)
    ours = threads.run(size, _worker(config, data, division))[0]
    its = threads.run(1, _worker(config, data, alone))[0]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(ours, its, strict=True))


def _worker(config: RunConfig, data: DataSet, division: Division) -> Callable[[Group], list[Tensor]]:
    def work(group: Group) -> list[Tensor]:
        net = models.build(MlpConfig(), data.input_shape, data.outputs, config.seed)
        model = DistributedDataParallel(net, group)
        optimizer = torch.optim.SGD(model.parameters(), lr=EQUAL_RATE)
        epoch = consumed = 0
        for _ in range(cast(int, config.train.steps)):
            mine = division.step(epoch, consumed, BATCH_SIZE, group.rank)
            batch = data.batch(data.train, mine)
            optimizer.zero_grad()
            with model.batch(num_samples=len(mine)):
                if len(mine):
                    nn.functional.cross_entropy(model(batch.inputs), batch.labels).backward()
            optimizer.step()
            consumed += BATCH_SIZE
            if consumed >= len(data.train):
                epoch, consumed = epoch + 1, 0
        return [param.detach() for param in net.parameters()]

    return work
