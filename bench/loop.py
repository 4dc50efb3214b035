"""Our training loop against the barest hand-written one doing the same work: lenet, batch 64, Adam.

Ours brings events, spans, progress, the schedule and the check of every loss; it may cost 3 % for that, also with a
callback and the CSV logger. A torch Dataset of one's own is read into memory once: with it, our loop is compared with a
hand-written one over a DataLoader.

    python bench/loop.py [--json]
"""

import itertools
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

from common import Target, interleave, options, report
from shoal.api.callbacks import Callback, WithCallbacks
from shoal.api.loggers import CsvLogger
from shoal.comm.alone import alone
from shoal.comm.traced import traced
from shoal.config.schema import RunConfig
from shoal.config.sections.data import DataConfig, DigitsConfig
from shoal.config.sections.model import LenetConfig
from shoal.config.sections.train import TrainConfig
from shoal.config.sections.values import Custom
from shoal.data.load import load
from shoal.events.file import EventFile
from shoal.models import build as build_model
from shoal.training.build import build
from shoal.training.hooks.random_state import RandomState
from shoal.training.loop import train_epoch
from shoal.training.observer import Observer, Silent
from shoal.training.progress import Progress
from shoal.training.steplog import StepLog

STEPS = 60
BATCH = 64


class Pictures(Dataset[tuple[torch.Tensor, int]]):
    """The training pictures as a Dataset of one's own would give them, normalised."""

    def __init__(self) -> None:
        data = load(DigitsConfig())
        everything = data.batch(data.train, torch.arange(len(data.train)))
        self._inputs, self._labels = everything.inputs, everything.labels.tolist()

    def __len__(self) -> int:
        """The number of pictures."""
        return len(self._labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """One picture and its label."""
        return self._inputs[index], self._labels[index]


class Kept(Callback):
    """Keeps every loss."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def step(self, step: int, loss: float) -> None:
        """Keep it."""
        self.losses.append(loss)


def with_callbacks(folder: Path) -> WithCallbacks:
    """An observer with a callback and the CSV logger."""
    logger = CsvLogger()
    logger.start(folder, 0, STEPS)
    return WithCallbacks([logger, Kept()], Silent())


def ours(events: EventFile, observer: Observer, data: DataConfig) -> Callable[[], None]:
    """Sixty steps of the loop as `shoal train` runs it."""
    with warnings.catch_warnings(action="ignore"):  # our Dataset has no test set
        run = build(
            RunConfig(data=data, train=TrainConfig(steps=STEPS)), torch.device("cpu"), traced(alone())
        )
    run.random = RandomState(0, 0, shared_by_threads=False)
    run.log = StepLog(events, run.span, [], observer, reads_late=False, keep_all_spans=False)

    def work() -> None:
        run.log.restart_clock()
        done = train_epoch(run, Progress())
        assert done.step == STEPS

    return work


def by_hand() -> Callable[[], None]:
    """The same steps as one would write them in a notebook: no log, no progress, no checks."""
    data = load(DigitsConfig())
    model = build_model(LenetConfig(), data.input_shape, data.outputs, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    mean, std = data.mean, data.std
    assert mean is not None
    assert std is not None
    inputs, labels = data.train.inputs, data.train.labels

    def work() -> None:
        order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(0))
        for step in range(STEPS):
            indices = order[step * BATCH : (step + 1) * BATCH]
            batch = inputs[indices].float().div_(255).sub_(mean).div_(std)
            optimizer.zero_grad()
            F.cross_entropy(model(batch), labels[indices]).backward()
            optimizer.step()

    return work


def by_loader() -> Callable[[], None]:
    """The same steps over a DataLoader of the Dataset."""
    pictures = Pictures()
    model = build_model(LenetConfig(), (1, 28, 28), 10, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    loader = DataLoader(pictures, batch_size=BATCH, shuffle=True)

    def work() -> None:
        for inputs, labels in itertools.islice(loader, STEPS):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), labels).backward()
            optimizer.step()

    return work


def main() -> int:
    """Measure and print."""
    parser = options("Our training loop against the barest hand-written one.", rounds=60)
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default %(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder, EventFile(Path(folder) / "events.jsonl") as events:
        cases = {
            "by hand": by_hand(),
            "ours": ours(events, Silent(), DigitsConfig()),
            "ours, callbacks": ours(events, with_callbacks(Path(folder)), DigitsConfig()),
            "by DataLoader": by_loader(),
            "ours, Dataset": ours(events, Silent(), Custom(name="loop:Pictures")),
        }
        seconds = interleave(cases, args.rounds)
    targets = [
        Target(slow="ours", fast="by hand", at_most=1.03),
        Target(slow="ours, callbacks", fast="by hand", at_most=1.03),
        Target(slow="by DataLoader", fast="ours, Dataset", at_least=0.95),
    ]
    met = report(f"{STEPS} steps of lenet, batch {BATCH}", seconds, "by hand", targets, args.json)
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
