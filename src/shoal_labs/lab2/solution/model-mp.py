# ruff: noqa: N999
"""All nodes at once: python model-mp.py --n_devices=2 starts one process for each, with ranks from 0."""

import argparse

import torch.multiprocessing as mp

from shoal_labs.lab2.solution.model import parse_args, work


def main(rank: int, args: argparse.Namespace) -> None:
    """The entry of every process; spawn gives it its rank."""
    work(args, rank)


if __name__ == "__main__":
    args = parse_args()
    mp.spawn(main, (args,), nprocs=args.n_devices)
