"""A program that joins the workers that it was started with, once per kind of group, and sums the ranks."""

import os
import sys

import torch

from shoal.comm.join import join

if __name__ == "__main__":
    for kind, port in (argument.split(":") for argument in sys.argv[1:]):
        if port:
            os.environ["MASTER_PORT"] = port
        group = join(kind=kind, timeout_s=30)
        total = torch.tensor(float(group.rank))
        group.all_reduce(total).wait()
        sys.stdout.write(f"{group.rank} of {group.size}: {total.item()} by {type(group).__name__}\n")
        group.barrier().wait()
        group.close()
