"""DDP as in torch's tutorial, with the bug that its first argument names."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BUG = sys.argv[1] if __name__ == "__main__" else ""

if __name__ == "__main__":
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(70, 16), torch.randint(0, 4, (70,)))
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    sampler = DistributedSampler(data)
    for epoch in range(2):
        if BUG != "set_epoch":
            sampler.set_epoch(epoch)
        for inputs, labels in DataLoader(data, batch_size=8, sampler=sampler):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            if BUG == "mean twice":
                loss = loss / dist.get_world_size()
            loss.backward()
            optimizer.step()
            if BUG == "raises":
                raise ValueError("a fault of its own")
            if BUG == "alone" and dist.get_world_size() == 1:
                raise ValueError("one is no group")
    print("trained")
    dist.destroy_process_group()
