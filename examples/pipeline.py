"""Pipeline parallelism in a loop of one's own: each worker holds some layers, micro-batches go through all of them.

    shoal launch --workers 2 examples/pipeline.py
    torchrun --standalone --nproc-per-node 3 examples/pipeline.py
    python examples/pipeline.py

However many workers there are, the printed losses are the same.
"""

import sys

import torch
from torch import nn

import shoal


def main() -> None:
    """Fit random labels."""
    draw = torch.Generator().manual_seed(0)  # of its own: thread workers share torch's global one
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    for param in model.parameters():
        nn.init.normal_(param, std=0.2, generator=draw)
    inputs, labels = torch.randn(96, 20, generator=draw), torch.randint(3, (96,), generator=draw)

    group = shoal.join()
    pipe = shoal.Pipeline(
        model, group, loss=nn.CrossEntropyLoss(), example=inputs, schedule="1f1b", microbatches=4
    )
    optimizer = torch.optim.SGD(pipe.parameters(), lr=0.5)
    for step in range(5):
        optimizer.zero_grad()
        loss = pipe.step(inputs, labels)  # the same batch on every worker
        optimizer.step()
        if group.rank == 0:
            sys.stdout.write(f"step {step}: loss {loss.item():.4f}\n")
    correct = (pipe(inputs).argmax(1) == labels).sum().item()
    if group.rank == 0:
        sys.stdout.write(f"{correct} of {len(labels)} correct; rank 0 holds {', '.join(pipe.layers)}\n")
    group.close()


if __name__ == "__main__":
    main()
