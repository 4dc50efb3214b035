"""ResNet-18 on CIFAR-10 with several workers: a plain torch loop, and what it takes to make it right.

    torchrun --standalone --nproc-per-node 2 examples/cifar10_resnet18_ddp.py
    shoal launch --workers 2 examples/cifar10_resnet18_ddp.py
    python examples/cifar10_resnet18_ddp.py                                         # alone: the same losses

`--synthetic` needs no data; without it, `shoal data fetch cifar10` gets them first. `--steps 5` is a quick try.

Programs like this one are in every course, and most have some of these errors. None of them stops a run; all of them
change its result or say something else than what happened:

1. `batch_size=64` for each worker: with 4 workers the batch is 256, and neither learning rate nor number of steps is
   that of one machine any more. Here `--batch-size` is global, and divided.
2. Torch's `DistributedSampler` repeats samples until all workers have equally many: some count twice in every epoch.
   `shoal.DistributedSampler` gives each sample to one worker; who has one less takes part with fewer, or with none.
3. A mean over the workers of their means counts samples of a small share more. `model.batch(num_samples=n)` weights
   the gradients by the samples behind them.
4. Batch norm normalises by a worker's own 16 pictures instead of all 64. `shoal.SyncBatchNorm` takes all of them.
5. Pictures are changed by draws from each worker's random state: other workers, other pictures. Here it is decided by
   (seed, epoch, number of the picture), whoever has it.
6. The loss that is printed is rank 0's own, and a sum over batches: it depends on how many there are. Here it is the
   mean over all samples of all workers.
7. Nothing is ever tested. Here every worker evaluates a part of the test set, and hits and samples are added up.
8. `torch.cuda.set_device(rank)`: on the second machine of four GPUs there is no GPU number 5. It is `LOCAL_RANK`.
9. All workers download the data at once, into the same files.
10. A network made for pictures of 224 pixels halves them twice before its first stage: of 32 pixels, 8 are left.

With 1 to 5 put right, any number of workers computes the same. In float32 rounding grows from step to step, and faster
with batch norm over few pictures; with `--float64` the losses agree to the last digit that is shown.
"""

import argparse
import os
import sys
from collections.abc import Iterator

import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader

import shoal
from shoal.comm.group import Group
from shoal.config.schema import Cifar10Config, Resnet18Config, SyntheticConfig
from shoal.data import Batch, DataSet, load
from shoal.errors import ConfigError
from shoal.models import build

SEED = 0
EVALUATED_AT_ONCE = 500


def main() -> None:
    """Train, evaluate after every epoch, and save the weights."""
    options = parse()
    device, kind = place()
    group = shoal.join(kind=kind)
    if options.batch_size % group.size:
        raise ConfigError(f"--batch-size {options.batch_size} cannot be divided among {group.size} workers")
    data = load(pictures(options)).to(device)

    network = build(Resnet18Config(width=options.width), data.input_shape, data.outputs, SEED)
    network = shoal.SyncBatchNorm.convert_sync_batchnorm(network).to(device)
    if options.float64:
        network.double().register_forward_pre_hook(lambda _, inputs: (inputs[0].double(),))
    model = shoal.DistributedDataParallel(network, group)  # from here on all have rank 0's weights

    sampler = shoal.DistributedSampler(range(len(data.train)), group.size, group.rank, seed=SEED)
    per_worker = options.batch_size // group.size
    steps_per_epoch = len(sampler.step_sizes(per_worker))
    total_steps = min(options.steps or sys.maxsize, options.epochs * steps_per_epoch)

    optimizer = torch.optim.SGD(
        model.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total_steps)

    for epoch in range(-(-total_steps // steps_per_epoch)):
        most = min(steps_per_epoch, total_steps - epoch * steps_per_epoch)
        mean_loss = train(model, batches(data, sampler, per_worker, epoch, most), optimizer, schedule, group)
        accuracy = evaluate(model, data, group)
        if group.rank == 0:
            sys.stdout.write(
                f"epoch {epoch + 1}: {most} steps, training loss {mean_loss:.4f}, test accuracy {accuracy:.2%}\n"
            )
    if options.save and group.rank == 0:
        from safetensors.torch import save_file

        save_file(network.state_dict(), options.save)
    group.close()


def train(
    model: shoal.DistributedDataParallel,
    parts: Iterator[Batch],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
    group: Group,
) -> float:
    """One epoch; the mean loss over all samples of all workers."""
    model.train()
    totals = torch.zeros(2, dtype=torch.float64)
    for inputs, labels, num_samples in parts:
        optimizer.zero_grad()
        with model.batch(num_samples=num_samples):
            loss_sum = F.cross_entropy(model(inputs), labels, reduction="sum")
            (loss_sum / max(1, num_samples)).backward()
        optimizer.step()
        schedule.step()
        totals += torch.tensor([loss_sum.item(), num_samples], dtype=torch.float64)
    group.all_reduce(totals).wait()
    return (totals[0] / totals[1]).item()


@torch.no_grad()
def evaluate(model: shoal.DistributedDataParallel, data: DataSet, group: Group) -> float:
    """The part of the test set that is predicted right; the workers take turns, and add up what they found."""
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64)
    for numbers in torch.arange(len(data.test)).split(EVALUATED_AT_ONCE)[group.rank :: group.size]:
        inputs, labels, num_samples = data.batch(data.test, numbers)
        hits = (model(inputs).argmax(1) == labels).sum()
        totals += torch.tensor([hits.item(), num_samples], dtype=torch.float64)
    group.all_reduce(totals).wait()
    return (totals[0] / totals[1]).item()


def batches(
    data: DataSet, sampler: shoal.DistributedSampler, batch_size: int, epoch: int, most: int
) -> Iterator[Batch]:
    """This worker's batch of every step; in the last step of an epoch it may be short, or have no samples at all."""
    sampler.set_epoch(epoch)

    def batch_of(numbers: list[int]) -> Batch:
        return data.training_batch(torch.tensor(numbers, dtype=torch.int64), SEED, epoch)

    loader = iter(DataLoader(range(len(data.train)), batch_size, sampler=sampler, collate_fn=batch_of))
    for _ in range(most):
        yield next(loader, None) or batch_of([])


def place() -> tuple[torch.device, str]:
    """Where this worker computes and through what it talks: a GPU of its own and NCCL, if there are enough."""
    local_rank, workers_here = (int(os.environ.get(name, 0)) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    if torch.cuda.device_count() >= max(1, workers_here):
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank), "nccl"
    return torch.device("cpu"), "auto"


def pictures(options: argparse.Namespace) -> Cifar10Config | SyntheticConfig:
    """CIFAR-10, or pictures of its shape that are made here."""
    if options.synthetic:
        return SyntheticConfig(samples=options.synthetic, shape=(3, 32, 32), classes=10)
    return Cifar10Config(dir=options.data_dir)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="ResNet-18 on CIFAR-10 with several workers.")
    parser.add_argument("--data-dir", default="", help="folder with CIFAR-10's files")
    parser.add_argument(
        "--synthetic", type=int, nargs="?", const=512, default=0, help="made data, this many samples"
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, help="stop after so many, also in mid-epoch")
    parser.add_argument("--batch-size", type=int, default=64, help="samples of a step, over all workers")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage; 64 is ResNet-18")
    parser.add_argument("--float64", action="store_true", help="compute in double precision")
    parser.add_argument("--save", default="", help="file for the weights, in safetensors format")
    return parser.parse_args()


if __name__ == "__main__":
    main()
