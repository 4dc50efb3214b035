"""A parameter server in a loop of your own: the last rank holds the weights, the others train without waiting.

shoal launch --workers 3 examples/parameter_server.py
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

import shoal

torch.manual_seed(0)
inputs, labels = torch.randn(512, 20), torch.randint(0, 4, (512,))
model = nn.Sequential(nn.Linear(20, 256), nn.ReLU(), nn.Linear(256, 4))
server = shoal.ParameterServer(model, lambda params: torch.optim.SGD(params, lr=0.5), mode="bsp")


def train() -> None:
    """Twenty steps with this worker's samples of each batch."""
    rank, size = server.workers.rank, server.workers.size
    for step in range(20):
        batch = slice(32 * step % 512, 32 * step % 512 + 32)
        server.zero_grad()
        F.cross_entropy(model(inputs[batch][rank::size]), labels[batch][rank::size]).backward()
        server.step()


server.run(train)
if not server.serves and server.workers.rank == 0:
    loss = F.cross_entropy(model(inputs), labels).item()
    sys.stdout.write(f"loss {loss:.6f} after {server.version} updates by {server.workers.size} workers\n")
