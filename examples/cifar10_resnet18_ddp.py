"""ResNet-18 on CIFAR-10 with several workers: a plain torch loop, made correct.

    torchrun --standalone --nproc-per-node 2 examples/cifar10_resnet18_ddp.py
    shoal launch --workers 2 examples/cifar10_resnet18_ddp.py
    python examples/cifar10_resnet18_ddp.py                                         # one worker: the same losses

`--synthetic` needs no data; otherwise run `shoal data fetch cifar10` first. `--steps 5` is a quick test.

Most programs of this kind have some of these errors. None of them stops a run, but they change its result or report
the wrong numbers:

1. `batch_size=64` per worker: with 4 workers the global batch is 256, so learning rate and number of steps no longer
   match one machine. Here `--batch-size` is global and divided among the workers.
2. Torch's `DistributedSampler` repeats samples until all workers have the same number, so some count twice per epoch.
   `shoal.DistributedSampler` gives each sample to one worker; in the last step a worker may have fewer samples or none.
3. The mean of the workers' means gives samples of a small share more weight. `model.batch(num_samples=n)` weights the
   gradients by numbers of samples.
4. Batch norm uses the statistics of a worker's 16 images instead of all 64. `shoal.SyncBatchNorm` uses all of them.
5. Augmentation draws from each worker's random state, so it depends on the number of workers. Here it is a function of
   (seed, epoch, index of the image).
6. The printed loss is rank 0's, and a sum over batches that depends on their number. Here it is the mean over all
   samples of all workers.
7. The program does not evaluate. Here every worker evaluates a part of the test set, and the results are summed.
8. `torch.cuda.set_device(rank)` fails on the second machine of four GPUs: there is no GPU 5. Use `LOCAL_RANK`.
9. All workers download the data at the same time, into the same files.
10. A network for images of 224 pixels downsamples twice before its first stage: 32 pixels become 8.

With 1 to 5 fixed, any number of workers computes the same result. In float32, rounding errors grow from step to step,
and faster with batch norm over few images; with `--float64` the printed losses agree in every digit.
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
from shoal.config.sections.data import Cifar10Config, SyntheticConfig
from shoal.config.sections.model import Resnet18Config
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
    model = shoal.DistributedDataParallel(network, group)  # copies rank 0's weights to all workers

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
    """Test accuracy: each worker evaluates a part of the test set, and the results are summed."""
    model.eval()
    totals = torch.zeros(2, dtype=torch.float64)
    for numbers in torch.arange(len(data.test)).split(EVALUATED_AT_ONCE)[group.rank :: group.size]:
        inputs, labels, num_samples = data.batch(data.test, numbers)
        # Not model(inputs): that begins with a broadcast, and with a small test set some workers have no part of it.
        hits = (model.module(inputs).argmax(1) == labels).sum()
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
    """The device and communication backend of this worker: a GPU and NCCL if there is a GPU for each worker."""
    local_rank, workers_here = (int(os.environ.get(name, 0)) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    if torch.cuda.device_count() >= max(1, workers_here):
        torch.cuda.set_device(local_rank)
        return torch.device("cuda", local_rank), "nccl"
    return torch.device("cpu"), "auto"


def pictures(options: argparse.Namespace) -> Cifar10Config | SyntheticConfig:
    """CIFAR-10, or generated images of its shape."""
    if options.synthetic:
        return SyntheticConfig(samples=options.synthetic, shape=(3, 32, 32), classes=10)
    return Cifar10Config(dir=options.data_dir)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="ResNet-18 on CIFAR-10 with several workers.")
    parser.add_argument("--data-dir", default="", help="folder with CIFAR-10's files")
    parser.add_argument(
        "--synthetic", type=int, nargs="?", const=512, default=0, help="use this many generated samples"
    )
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--steps", type=int, help="stop after this many steps, even within an epoch")
    parser.add_argument(
        "--batch-size", type=int, default=64, help="global batch size: samples per step over all workers"
    )
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage; 64 is ResNet-18")
    parser.add_argument("--float64", action="store_true", help="compute in double precision")
    parser.add_argument("--save", default="", help="file for the weights, in safetensors format")
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    return parser.parse_args()


if __name__ == "__main__":
    main()
