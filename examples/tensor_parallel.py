"""Tensor parallelism in a loop of one's own: the workers divide every layer, and all train on the same batches.

    shoal launch --workers 2 examples/tensor_parallel.py

prints the losses that `python examples/tensor_parallel.py` prints.
"""

import sys

import torch
from torch import nn

import shoal

group = shoal.join()
torch.manual_seed(0)  # the same weights and batches on every worker
model = nn.Sequential(
    nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.Tanh(), nn.Linear(64, 10)
).double()
model = shoal.tensor_parallel(model, group, {"0": "column", "2": "row"})  # layer 4 stays whole
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    inputs, labels = torch.randn(32, 64, dtype=torch.float64), torch.randint(10, (32,))
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if group.rank == 0:
        sys.stdout.write(f"step {step}: loss {loss.item():.6f}\n")
