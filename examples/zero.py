"""ZeRO stage 3 in a loop of your own: every worker keeps its part of parameters, gradients and optimizer state.

shoal launch --workers 2 examples/zero.py
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

sharded = shoal.zero(model, lambda params: torch.optim.Adam(params, lr=1e-2), stage=3, group=group)
for step in range(20):
    batch = slice(32 * step % 512, 32 * step % 512 + 32)
    mine = slice(group.rank, None, group.size)  # every size-th sample of the batch
    own_inputs, own_labels = inputs[batch][mine], labels[batch][mine]
    with sharded.batch(num_samples=len(own_labels)):
        F.cross_entropy(model(own_inputs), own_labels).backward()
    sharded.step()

loss = F.cross_entropy(model(inputs), labels).item()  # on every worker: the parameters may be gathered
if group.rank == 0:
    sys.stdout.write(f"loss {loss:.6f} after 20 steps with {group.size} workers\n")
