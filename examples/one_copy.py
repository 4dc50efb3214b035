"""One copy of the weights for all workers of a machine, in a loop of your own.

shoal launch --workers 2 examples/one_copy.py
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

import shoal

group = shoal.join()
torch.manual_seed(0)
inputs, labels = torch.randn(512, 20), torch.randint(0, 4, (512,))
model = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 4))

shared = shoal.OneCopy(model, lambda params: torch.optim.Adam(params, lr=1e-2), group)
for step in range(20):
    batch = slice(32 * step % 512, 32 * step % 512 + 32)
    mine = slice(group.rank, None, group.size)  # every size-th sample of the batch
    own_inputs, own_labels = inputs[batch][mine], labels[batch][mine]
    shared.zero_grad()
    F.cross_entropy(model(own_inputs), own_labels).backward()
    shared.step(num_samples=len(own_labels))

if group.rank == 0:
    loss = F.cross_entropy(model(inputs), labels).item()
    sys.stdout.write(f"loss {loss:.6f} after 20 steps with {group.size} workers\n")
