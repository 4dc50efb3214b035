"""ZeRO stage 3 of a model that no worker holds: built without memory, then each worker gets its part of every layer.

shoal launch --workers 2 examples/zero_meta.py
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

import shoal

group = shoal.join()
torch.manual_seed(0)
inputs, labels = torch.randn(512, 20), torch.randint(0, 4, (512,))
with torch.device("meta"):  # shapes, no memory
    model = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))

sharded = shoal.zero(model, group=group, seed=0)  # or weights="model.safetensors"
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(20):
    batch = slice(32 * step % 512, 32 * step % 512 + 32)
    mine = slice(group.rank, None, group.size)  # every size-th sample of the batch
    own_inputs, own_labels = inputs[batch][mine], labels[batch][mine]
    with sharded.batch(num_samples=len(own_labels)):
        F.cross_entropy(model(own_inputs), own_labels).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()

loss = F.cross_entropy(model(inputs), labels).item()  # on every worker: the parameters may be gathered
if group.rank == 0:
    sys.stdout.write(f"loss {loss:.6f} after 20 steps with {group.size} workers\n")
