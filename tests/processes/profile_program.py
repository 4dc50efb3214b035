"""A small DDP loop of torch's, without a word of ours, that is slow in a way that its first argument names."""

import hashlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Samples(TensorDataset):
    def __getitem__(self, index):
        time.sleep(0.002 * (CAUSE == "data"))
        return super().__getitem__(index)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x):
        time.sleep(0.02 * (CAUSE == "rank" and dist.get_rank() == 1))
        return self.layers(x)


if __name__ == "__main__":
    CAUSE, STEPS = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    data = Samples(torch.randn(8 * size * STEPS, 16), torch.randint(0, 4, (8 * size * STEPS,)))
    model = DistributedDataParallel(Net())
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for inputs, labels in DataLoader(data, batch_size=8, sampler=DistributedSampler(data)):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        if CAUSE != "no step":
            optimizer.step()
        dist.all_reduce(loss.detach())
    weights = b"".join(param.detach().numpy().tobytes() for param in model.parameters())
    sys.stdout.write(f"{hashlib.sha256(weights).hexdigest()}\n")
    dist.destroy_process_group()
    if CAUSE == "failure" and size > 1:
        raise ValueError("after training")
