"""How far `--strategy local` is from one machine: lenet on digits in float64, two workers with 40 and 24 samples.

    every = 1   equals one machine where the optimizer's update is linear in the gradient: SGD, momentum, weight decay
    Adam        is not linear: each worker divides its own gradient by its own size, m̂ / (√v̂ + ε), and the mean of
                quotients is not the quotient of means. After one step m̂ / √v̂ is ±1 in every element: where the workers'
                signs differ, they cancel each other.

Prints max|a − b| / max|b| over all weights, after 1, 10 and 50 steps.

    python bench/local_exact.py [--steps 1 10 50]
"""

import argparse
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from shoal import models, optim
from shoal.comm.alone import alone
from shoal.comm.group import Group
from shoal.comm.threads.group import run_threads
from shoal.config.sections.data import DigitsConfig
from shoal.config.sections.model import CrossEntropyConfig, LenetConfig
from shoal.config.sections.optimizer import AdamConfig, OptimizerConfig, SgdConfig
from shoal.data.dataset import Batch
from shoal.data.load import load
from shoal.events.spans import HostClock, SpanRecorder
from shoal.strategies.exchange.exchange import AllReduce
from shoal.strategies.gradient_engine import build_engine
from shoal.strategies.guard import Guard
from shoal.strategies.layout.whole import Whole
from shoal.strategies.local.local import LocalSync
from shoal.strategies.local.settings import LocalConfig
from shoal.strategies.replicas.sync import Sync, SyncParts
from shoal.strategies.strategy import Share, Strategy
from shoal.strategies.update import Update

SHARES = (40, 24)
BATCH = sum(SHARES)
OPTIMIZERS: dict[str, OptimizerConfig] = {
    "SGD": SgdConfig(lr=0.05),
    "SGD, momentum 0.9, weight decay 0.01": SgdConfig(lr=0.05, momentum=0.9, weight_decay=0.01),
    "Adam": AdamConfig(lr=1e-3),
}
CASES = {
    "every 1": LocalConfig(every=1),
    "every 1, moments kept": LocalConfig(every=1, moments="keep"),
    "every 5": LocalConfig(every=5),
}


def trained(
    optimizer: OptimizerConfig,
    group: Group,
    sync: Callable[[SyncParts], Strategy],
    shares: Sequence[int],
    steps: Sequence[int],
) -> list[Tensor]:
    """All weights as one vector, after each of these numbers of steps."""
    data, loss, span = load(DigitsConfig()), CrossEntropyConfig(), SpanRecorder(HostClock())
    model = models.build(LenetConfig(), data.input_shape, data.outputs, seed=0).double()
    layout = Whole(
        model, models.build_loss(loss), build_engine("torch", model, loss, span), span, replica=group.rank
    )
    update = Update(layout, lambda params: optim.build(optimizer, params))
    strategy = sync(SyncParts(layout, update, group, AllReduce(), Guard(group, AllReduce(), "stop")))
    first, count = sum(shares[: group.rank]), shares[group.rank]
    found: list[Tensor] = []
    for step in range(1, max(steps) + 1):
        start = (step - 1) * BATCH + first
        batch = data.batch(data.train, torch.arange(start, start + count))
        part = Batch(batch.inputs.double(), batch.labels, count)
        strategy.step(Share([part], BATCH, count), optimizer.lr)  # pyright: ignore[reportAttributeAccessIssue]
        span.marks.clear()
        if step in steps:
            strategy.consolidate()
            found.append(torch.cat([param.detach().reshape(-1) for param in layout.params.values()]))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="How far local SGD is from one machine.")
    parser.add_argument("--steps", type=int, nargs="+", default=[1, 10, 50], help="numbers of steps")
    steps = sorted(parser.parse_args().steps)
    torch.set_num_threads(1)
    print(f"{'':38} {'':22} " + "".join(f"{f'{step} steps':>10}" for step in steps))
    for name, optimizer in OPTIMIZERS.items():
        expected = trained(optimizer, alone(), Sync, (BATCH,), steps)
        for case, config in CASES.items():

            def work(
                group: Group, optimizer: OptimizerConfig = optimizer, config: LocalConfig = config
            ) -> list[Tensor]:
                return trained(optimizer, group, lambda parts: LocalSync(parts, config), SHARES, steps)

            found = run_threads(2, work)[0]
            apart = [
                ((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found, expected, strict=True)
            ]
            print(f"{name:38} {case:22} " + "".join(f"{each:10.1e}" for each in apart))


if __name__ == "__main__":
    main()
