"""A program that joins whoever it was started with, and sums the ranks."""

import sys

import torch

from shoal.comm.join import join

if __name__ == "__main__":
    group = join(kind=sys.argv[1], timeout_s=30)
    total = torch.tensor(float(group.rank))
    group.all_reduce(total).wait()
    sys.stdout.write(f"{group.rank} of {group.size}: {total.item()} by {type(group).__name__}\n")
    group.close()
