"""What the samplers of all nodes see together: run it before you train. It needs no network and no data.

python check_sampler.py
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from shoal_labs.handout.common import new_parser, say
from shoal_labs.lab3.solution.sampler import MyRandomSampler, MySampler

EPOCHS = 3
MANY_EPOCHS = 30
"""In so many epochs every sample is drawn, for certain."""

Found = list[tuple[str, dict[str, Any]]]
"""What is wrong: the key of a sentence, and the values in it."""
Epochs = Callable[..., list[list[int]]]
"""The indices that each node gets in an epoch, by the number of the epoch and by changed arguments of the sampler."""

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


def sampler_of(kind: type[MySampler], num_samples: int, nodes: int, rank: int, **changed: Any) -> MySampler:
    """A new sampler of one node: nodes share nothing."""
    given: dict[str, Any] = {"shuffle": True, "seed": 0, **changed}
    return kind(range(num_samples), nodes, rank, **given)


def indices(sampler: MySampler, epoch: int) -> list[int]:
    """The indices of an epoch; a sampler may also yield tensors."""
    sampler.set_epoch(epoch)
    return [int(index) for index in sampler]


def epoch_lists(
    kind: type[MySampler], num_samples: int, nodes: int, epoch: int, **changed: Any
) -> list[list[int]]:
    """The indices that each node gets in an epoch."""
    return [indices(sampler_of(kind, num_samples, nodes, rank, **changed), epoch) for rank in range(nodes)]


def faults(kind: type[MySampler], num_samples: int, nodes: int, partition: bool) -> list[str]:
    """What is wrong, a sentence each."""
    return [SENTENCES[key].format(**values) for key, values in found(kind, num_samples, nodes, partition)]


def found(kind: type[MySampler], num_samples: int, nodes: int, partition: bool) -> Found:
    """What is wrong with the samplers of a partition, or of random sampling."""
    epochs = partial(epoch_lists, kind, num_samples, nodes)
    lists = epochs(0)
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
    last, other = (sampler_of(kind, num_samples, nodes, nodes - 1) for _ in range(2))
    wrong += order_found(epochs, last, other)
    if partition:
        return wrong + partition_found(epochs, num_samples, nodes)
    return wrong or sampling_found(epochs, num_samples)


def order_found(epochs: Epochs, one: MySampler, other: MySampler) -> Found:
    """Does the order depend on seed and epoch alone? `one` and `other` are samplers of the same node."""
    lists = epochs(0)
    if lists != epochs(0):
        return [("again", {})]
    wrong: Found = []
    if lists == epochs(1):
        wrong.append(("same_epoch", {}))
    if lists == epochs(0, seed=12345):
        wrong.append(("same_seed", {}))
    first = indices(one, 0)
    if [int(index) for index in one] != first:
        return [*wrong, ("second_time", {})]
    other.set_epoch(1)
    return wrong if [int(index) for index in one] == first else [*wrong, ("shared_epoch", {})]


def sampling_found(epochs: Epochs, num_samples: int) -> Found:
    """What is wrong with drawing: equal draws on two nodes, no sample twice, a sample that is never drawn."""
    lists = epochs(0)
    if len(set(map(tuple, lists))) < len(lists):
        return [("same_draws", {})]
    if all(len(set(own)) == len(own) for own in lists) and max(map(len, lists)) ** 2 > 20 * num_samples:
        return [("no_replacement", {})]
    seen = {index for epoch in range(MANY_EPOCHS) for own in epochs(epoch) for index in own}
    never = max(set(range(num_samples)) - seen, default=None)
    values = {"index": never, "samples": num_samples, "epochs": MANY_EPOCHS}
    return [] if never is None else [("never_drawn", values)]


def partition_found(epochs: Epochs, num_samples: int, nodes: int) -> Found:
    """What is wrong with a partition: samples that no node or several nodes see, parts that never change."""
    lists = epochs(0)
    counts = Counter(index for own in lists for index in set(own))
    missed, several = num_samples - len(counts), sum(count > 1 for count in counts.values())
    wrong: Found = []
    if missed or several >= nodes:  # fewer samples may come twice, to make all shares equal
        wrong.append(("missed", {"missed": missed, "samples": num_samples, "several": several}))
        seen = 1 - missed / num_samples
        if nodes > 1 and max(counts, default=0) < -(-num_samples // nodes):
            wrong.append(("short_range", {"samples": num_samples, "nodes": nodes}))
        elif missed and abs(seen - (1 - (1 - 1 / nodes) ** nodes)) < 0.03:
            wrong.append(("own_permutation", {"seen": 100 * seen}))
        return wrong
    parts = [list(map(set, epochs(epoch))) for epoch in range(EPOCHS)]
    if nodes > 1 and all(each == parts[0] for each in parts):
        wrong.append(("fixed_parts", {}))
    stored = epochs(0, shuffle=False)
    # The last index of a share may be one of the first again, to make all shares equal.
    if any(own[:-1] != sorted(own[:-1]) for own in stored) or len(set().union(*stored)) < num_samples:
        wrong.append(("shuffled", {}))
    return wrong


def main(argv: Sequence[str] | None = None) -> int:
    """Check both samplers; the exit code is 1 if anything is wrong."""
    parser = new_parser("Count the samples that the samplers of all nodes see together.")
    parser.add_argument("--n_devices", type=int, nargs="+", default=[1, 2, 3, 4], help="numbers of nodes")
    parser.add_argument("--samples", type=int, default=1000, help="size of the data set")
    args = parser.parse_args(argv)
    wrong = 0
    for kind in (MySampler, MyRandomSampler):
        for nodes in args.n_devices:
            seen, shown = set[int](), list[str]()
            for epoch in range(EPOCHS):
                seen.update(*epoch_lists(kind, args.samples, nodes, epoch))
                shown.append(f"{100 * len(seen) / args.samples:.1f} %")
            say(f"{kind.__name__}, W = {nodes}: seen after 1, 2, 3 epochs: {', '.join(shown)}")
            sentences = faults(kind, args.samples, nodes, partition=kind is MySampler)
            wrong += len(sentences)
            for sentence in sentences:
                say(f"  WRONG: {sentence}")
            if not sentences:
                say("  no error found")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
