"""What all nodes' samplers see together: run it before you train. No network, no data, no other node is needed.

python check_sampler.py
"""

import argparse
from collections.abc import Sequence

from shoal.labs.lab3.solution.sampler import MyRandomSampler, MySampler

EPOCHS = 3


def epoch_lists(kind: type[MySampler], num_samples: int, nodes: int, epoch: int) -> list[list[int]]:
    """What each node goes through in an epoch. The samplers are made anew: nodes share nothing."""
    lists: list[list[int]] = []
    for rank in range(nodes):
        sampler = kind(range(num_samples), nodes, rank, shuffle=True, seed=0)
        sampler.set_epoch(epoch)
        lists.append(list(sampler))
    return lists


def nodes_per_sample(lists: Sequence[Sequence[int]], num_samples: int) -> list[int]:
    """How many nodes see each sample."""
    counts = [0] * num_samples
    for own in lists:
        for index in set(own):
            counts[index] += 1
    return counts


def faults(kind: type[MySampler], num_samples: int, nodes: int) -> list[str]:
    """What is wrong, a sentence each; none if nothing is."""
    lists = epoch_lists(kind, num_samples, nodes, epoch=0)
    given = [len(own) for own in lists]
    said = [len(kind(range(num_samples), nodes, rank)) for rank in range(nodes)]
    found: list[str] = []
    if said != given:
        found.append(f"__len__ says {said}, and __iter__ gives {given} samples")
    if abs(sum(given) - num_samples) >= nodes:
        found.append(f"all nodes together go through {sum(given):,} samples, and there are {num_samples:,}")
    if max(given) - min(given) > 1:
        found.append("the nodes' shares differ by more than one sample")
    if any(not 0 <= index < num_samples for own in lists for index in own):
        return [*found, f"a number is outside of 0 to {num_samples - 1:,}"]
    if lists != epoch_lists(kind, num_samples, nodes, epoch=0):
        found.append("made again, the sampler gives another order: use a generator with a seed of its own")
    if lists == epoch_lists(kind, num_samples, nodes, epoch=1):
        found.append("the next epoch has the same order: does set_epoch change anything?")
    if kind is MyRandomSampler:
        same = any(lists[0] == own for own in lists[1:])
        return [*found, "two nodes draw the same samples: their seeds must differ"] if same else found
    return found + partition_faults(lists, num_samples, nodes)


def partition_faults(lists: Sequence[Sequence[int]], num_samples: int, nodes: int) -> list[str]:
    """What is wrong with a partition: samples that nobody sees, and samples that several nodes see.

    Fewer samples than there are nodes may be left out, or come twice, to make all shares equal.
    """
    counts = nodes_per_sample(lists, num_samples)
    missed, several = counts.count(0), sum(count > 1 for count in counts)
    if max(missed, several) < nodes:
        return []
    found = [f"{missed:,} of {num_samples:,} samples are seen by nobody, {several:,} by more than one node"]
    seen = 1 - missed / num_samples
    if max(map(max, lists)) < -(-num_samples // nodes):
        found.append(
            f"every number is below {num_samples:,} / {nodes}: is the range as long as one node's share?"
        )
    elif abs(seen - (1 - (1 - 1 / nodes) ** nodes)) < 0.03:
        found.append(
            f"{100 * seen:.0f} % is about 1 - (1 - 1/W)^W: does every node permute by itself (a seed with its rank)?"
        )
    return found


def seen_so_far(kind: type[MySampler], num_samples: int, nodes: int) -> str:
    """Coverage after each epoch, in percent."""
    seen: set[int] = set()
    shown: list[str] = []
    for epoch in range(EPOCHS):
        for own in epoch_lists(kind, num_samples, nodes, epoch):
            seen.update(own)
        shown.append(f"{100 * len(seen) / num_samples:.1f} %")
    return ", ".join(shown)


def main(argv: Sequence[str] | None = None) -> int:
    """Check both samplers; the exit code is 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description="Count what the samplers of all nodes see together.")
    parser.add_argument("--n_devices", type=int, nargs="+", default=[1, 2, 3, 4], help="numbers of nodes")
    parser.add_argument("--samples", type=int, default=1000, help="size of the data set")
    args = parser.parse_args(argv)
    wrong = 0
    for kind in (MySampler, MyRandomSampler):
        for nodes in args.n_devices:
            found = faults(kind, args.samples, nodes)
            wrong += len(found)
            seen = seen_so_far(kind, args.samples, nodes)
            print(f"{kind.__name__}, W = {nodes}: seen after 1, 2, 3 epochs: {seen}")  # noqa: T201
            print("".join(f"  WRONG: {sentence}\n" for sentence in found) or "  right\n", end="")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
