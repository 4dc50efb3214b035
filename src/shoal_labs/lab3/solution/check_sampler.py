"""What all nodes' samplers see together: run it before you train. No network, no data, no other node is needed.

python check_sampler.py
"""

import argparse
from collections.abc import Sequence
from typing import Any

from shoal_labs.lab3.solution.sampler import MyRandomSampler, MySampler

EPOCHS = 3
MANY_EPOCHS = 30
"""So many epochs draw each sample for certain."""

Found = list[tuple[str, dict[str, Any]]]
"""What is wrong: the key of a sentence, and the values in it."""

SENTENCES = {
    "length": "__len__ says {said}, and __iter__ gives {given} samples",
    "total": "all nodes together go through {given:,} samples, and there are {samples:,}",
    "shares": "the nodes' shares differ by more than one sample",
    "outside": "an index is outside of 0 to {last:,}",
    "again": "created again, the sampler gives another order: use a generator with its own seed",
    "second_time": "iterated again in the same epoch, the sampler does not give the same samples",
    "same_epoch": "the next epoch has the same order: does set_epoch change anything?",
    "same_seed": "another seed gives the same order: does the generator get the seed?",
    "shared_epoch": "set_epoch of one node's sampler changes another's: is the epoch kept in the class?",
    "same_draws": "two nodes draw the same samples: their seeds must differ",
    "no_replacement": "no node draws any sample twice: that is not drawing with replacement",
    "never_drawn": "sample {index:,} of {samples:,} is never drawn in {epochs} epochs: does the range end too early?",
    "missed": "{missed:,} of {samples:,} samples are seen by no node, {several:,} by more than one",
    "short_range": "every index is below {samples:,} / {nodes}: is the range only as long as one node's share?",
    "own_permutation": "{seen:.0f} % is near 1 - (1 - 1/W)^W: is the rank part of the seed?",
    "fixed_parts": "each node has the same samples in every epoch: permute first, then divide",
    "shuffled": "without shuffle the samples do not come in the stored order",
}


def sampler_of(kind: type[MySampler], num_samples: int, nodes: int, rank: int, **more: Any) -> MySampler:
    """One node's sampler. It is made anew each time: nodes share nothing."""
    given: dict[str, Any] = {"shuffle": True, "seed": 0, **more}
    return kind(range(num_samples), nodes, rank, **given)


def numbers(sampler: MySampler) -> list[int]:
    """What it gives; a number may also be a tensor."""
    return [int(index) for index in sampler]


def epoch_lists(
    kind: type[MySampler], num_samples: int, nodes: int, epoch: int, **more: Any
) -> list[list[int]]:
    """What each node goes through in an epoch."""
    lists: list[list[int]] = []
    for rank in range(nodes):
        sampler = sampler_of(kind, num_samples, nodes, rank, **more)
        sampler.set_epoch(epoch)
        lists.append(numbers(sampler))
    return lists


def nodes_per_sample(lists: Sequence[Sequence[int]], num_samples: int) -> list[int]:
    """How many nodes see each sample."""
    counts = [0] * num_samples
    for own in lists:
        for index in set(own):
            counts[index] += 1
    return counts


def faults(kind: type[MySampler], num_samples: int, nodes: int, partition: bool) -> list[str]:
    """What is wrong, a sentence each; none if nothing is."""
    return [SENTENCES[key].format(**values) for key, values in found(kind, num_samples, nodes, partition)]


def found(kind: type[MySampler], num_samples: int, nodes: int, partition: bool) -> Found:
    """What is wrong with the samplers of a partition, or of random sampling."""
    lists = epoch_lists(kind, num_samples, nodes, epoch=0)
    given = [len(own) for own in lists]
    said = [len(sampler_of(kind, num_samples, nodes, rank)) for rank in range(nodes)]
    wrong: Found = []
    if said != given:
        wrong.append(("length", {"said": said, "given": given}))
    if not num_samples <= sum(given) < num_samples + nodes:
        wrong.append(("total", {"given": sum(given), "samples": num_samples}))
    if max(given) - min(given) > 1:
        wrong.append(("shares", {}))
    if any(not 0 <= index < num_samples for own in lists for index in own):
        return [*wrong, ("outside", {"last": num_samples - 1})]
    wrong += order_faults(kind, num_samples, nodes, lists)
    if partition:
        return wrong + partition_faults(kind, num_samples, nodes, lists)
    return wrong or sampling_faults(kind, num_samples, nodes, lists)


def order_faults(kind: type[MySampler], num_samples: int, nodes: int, lists: list[list[int]]) -> Found:
    """Is the order a function of seed and epoch, and of nothing else?"""
    if lists != epoch_lists(kind, num_samples, nodes, epoch=0):
        return [("again", {})]
    wrong: Found = []
    if lists == epoch_lists(kind, num_samples, nodes, epoch=1):
        wrong.append(("same_epoch", {}))
    if lists == epoch_lists(kind, num_samples, nodes, epoch=0, seed=12345):
        wrong.append(("same_seed", {}))
    last, other = (sampler_of(kind, num_samples, nodes, nodes - 1) for _ in range(2))
    last.set_epoch(0)
    first = numbers(last)
    if numbers(last) != first:
        return [*wrong, ("second_time", {})]
    other.set_epoch(1)
    return wrong if numbers(last) == first else [*wrong, ("shared_epoch", {})]


def sampling_faults(kind: type[MySampler], num_samples: int, nodes: int, lists: list[list[int]]) -> Found:
    """What is wrong with drawing: the same draws on two nodes, no sample twice, one that never comes."""
    if any(lists[one] == lists[other] for one in range(nodes) for other in range(one)):
        return [("same_draws", {})]
    if all(len(set(own)) == len(own) for own in lists) and max(map(len, lists)) ** 2 > 20 * num_samples:
        return [("no_replacement", {})]
    seen = {
        index
        for epoch in range(MANY_EPOCHS)
        for own in epoch_lists(kind, num_samples, nodes, epoch)
        for index in own
    }
    never = [index for index in range(num_samples) if index not in seen]
    if not never:
        return []
    return [("never_drawn", {"index": never[-1], "samples": num_samples, "epochs": MANY_EPOCHS})]


def partition_faults(kind: type[MySampler], num_samples: int, nodes: int, lists: list[list[int]]) -> Found:
    """What is wrong with a partition: samples seen by no node or by several, parts that never change.

    Fewer samples than there are nodes may come twice, to make all shares equal.
    """
    counts = nodes_per_sample(lists, num_samples)
    missed, several = counts.count(0), sum(count > 1 for count in counts)
    if not missed and several < nodes:
        return unshuffled_faults(kind, num_samples, nodes, lists)
    wrong: Found = [("missed", {"missed": missed, "samples": num_samples, "several": several})]
    seen = 1 - missed / num_samples
    if nodes > 1 and max(max(own, default=0) for own in lists) < -(-num_samples // nodes):
        wrong.append(("short_range", {"samples": num_samples, "nodes": nodes}))
    elif missed and abs(seen - (1 - (1 - 1 / nodes) ** nodes)) < 0.03:
        wrong.append(("own_permutation", {"seen": 100 * seen}))
    return wrong


def unshuffled_faults(kind: type[MySampler], num_samples: int, nodes: int, lists: list[list[int]]) -> Found:
    """Does the partition change from epoch to epoch, and keep the stored order where that is asked for?"""
    wrong: Found = []
    if nodes > 1 and all(
        set(own) == set(then)
        for epoch in range(1, EPOCHS)
        for own, then in zip(lists, epoch_lists(kind, num_samples, nodes, epoch), strict=True)
    ):
        wrong.append(("fixed_parts", {}))
    stored = epoch_lists(kind, num_samples, nodes, epoch=0, shuffle=False)
    # The last of a share may be one of the first samples, come again to make all shares equal.
    if any(own[:-1] != sorted(own[:-1]) for own in stored) or 0 in nodes_per_sample(stored, num_samples):
        wrong.append(("shuffled", {}))
    return wrong


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
    parser.add_argument("--local-rank", "--local_rank", type=int, help="set by torch.distributed.launch")
    args = parser.parse_args(argv)
    wrong = 0
    for kind in (MySampler, MyRandomSampler):
        for nodes in args.n_devices:
            sentences = faults(kind, args.samples, nodes, partition=kind is MySampler)
            wrong += len(sentences)
            seen = seen_so_far(kind, args.samples, nodes)
            print(f"{kind.__name__}, W = {nodes}: seen after 1, 2, 3 epochs: {seen}")  # noqa: T201
            print("".join(f"  WRONG: {sentence}\n" for sentence in sentences) or "  right\n", end="")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
