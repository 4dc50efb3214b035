"""A loop of torch's DDP, without a word of ours, that is slow for the reason that its first argument names."""

import os
import resource
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

IS_MAIN = __name__ == "__main__"  # tests import it
CAUSE, STEPS = (sys.argv[1], int(sys.argv[2])) if IS_MAIN else ("none", 0)
LOCAL = int(os.environ.get("LOCAL_RANK", "0"))
BATCH = 32 * (1 + 4 * (CAUSE == "batches" and LOCAL == 1))
SLOW_S = 0.08
SIDE = 8 if CAUSE in ("buckets", "call for each") else 24


class Samples(TensorDataset):
    """Images; each may take a while to read."""

    def __getitem__(self, index):
        if CAUSE == "loader" or (CAUSE == "loader on one" and LOCAL == 1):
            time.sleep(4 * SLOW_S / BATCH)
        return super().__getitem__(index)


class Net(nn.Module):
    """A few convolutions: much to compute, little to exchange."""

    def __init__(self):
        super().__init__()
        depth = 40 if CAUSE in ("buckets", "call for each") else 0
        tiny = [nn.Sequential(nn.Conv2d(16, 16, 1), nn.ReLU()) for _ in range(depth)]
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), *tiny, nn.ReLU(), nn.Conv2d(16, 16, 5))
        self.head = nn.Linear(16, 4)
        self.spare = nn.Linear(16, 300) if CAUSE == "unused" else None
        self.wide = nn.Linear(16, 30_000) if CAUSE == "link" else None

    def forward(self, x):
        if LOCAL == 1 and CAUSE == "slow forward":
            time.sleep(SLOW_S)
        if LOCAL == 1 and CAUSE == "more work":
            end = time.thread_time() + SLOW_S
            while time.thread_time() < end:
                torch.ones(64, 64) @ torch.ones(64, 64)
        out = self.body(x).mean((2, 3))
        return self.head(out) + (0 if self.wide is None else self.wide(out).mean())


class SlowFile:
    """A file on a slow disk."""

    def __init__(self, path):
        self._file = path.open("wb")

    def write(self, data):
        return self._file.write(data)

    def flush(self):
        time.sleep(4 * SLOW_S)
        self._file.flush()


def save(model, rank):
    torch.save(model.state_dict(), SlowFile(Path(f"weights{rank}.pt")))


def train(rank):
    torch.manual_seed(0)
    size = dist.get_world_size()
    data = Samples(torch.randn(BATCH * STEPS, 1, SIDE, SIDE), torch.randint(0, 4, (BATCH * STEPS,)))
    net = Net()
    searches = CAUSE in ("unused", "search")
    cap_mb = 0.0005 if CAUSE == "buckets" else 25
    plain = CAUSE == "call for each"
    model = (
        net if plain else DistributedDataParallel(net, find_unused_parameters=searches, bucket_cap_mb=cap_mb)
    )
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step, (inputs, labels) in enumerate(DataLoader(data, batch_size=BATCH)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        if plain:
            for param in model.parameters():
                dist.all_reduce(param.grad)
                param.grad /= size
        optimizer.step()
        if rank == 1 and CAUSE == "between steps":
            time.sleep(SLOW_S)
        if rank == 0 and CAUSE == "evaluation" and step % 5 == 4:
            with torch.no_grad():
                for _ in range(8):
                    net(torch.randn(100, 1, SIDE, SIDE))
        if (CAUSE == "save" or (CAUSE == "save on one" and rank == 0)) and step % 4 == 3:
            save(net, rank)
        if CAUSE == "memory" and step == 4:
            lines = Path("/proc/self/status").read_text().splitlines()
            used = next(int(line.split()[1]) for line in lines if line.startswith("VmPeak"))
            resource.setrlimit(resource.RLIMIT_AS, (int(1024 * used * 1.03),) * 2)


if IS_MAIN:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()
