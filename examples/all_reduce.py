"""An all-reduce, started in five ways. All print the same sums.

Processes on this machine:

    shoal launch --workers 2 examples/all_reduce.py

Threads of one process, where a breakpoint works in every rank:

    shoal launch --workers 2 --launcher threads examples/all_reduce.py

By hand, in two terminals (or on two machines, with an address that both can reach):

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 python examples/all_reduce.py
    RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29517 python examples/all_reduce.py

With torchrun:

    torchrun --standalone --nproc-per-node 2 examples/all_reduce.py

Without a launcher, as a group of one:

    python examples/all_reduce.py
"""

import sys

import torch

import shoal


def main() -> None:
    """Sum rank + 1 over all workers."""
    group = shoal.join()
    total = torch.full((4,), group.rank + 1.0)
    group.all_reduce(total).wait()
    sys.stdout.write(f"rank {group.rank} of {group.size}: {total.tolist()}\n")
    group.close()


if __name__ == "__main__":
    main()
