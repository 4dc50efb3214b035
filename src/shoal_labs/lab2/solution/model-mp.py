# ruff: noqa: N999
"""Starts all nodes at once, each as a process of its own.

python model-mp.py --n_devices=2
"""

import argparse

import torch.multiprocessing as mp

from shoal_labs.lab2.solution.model import parse_args, work


def main(rank: int, args: argparse.Namespace) -> None:
    """Run one node; spawn passes its rank."""
    work(args, rank)


if __name__ == "__main__":
    args = parse_args()
    mp.spawn(main, (args,), nprocs=args.n_devices)
