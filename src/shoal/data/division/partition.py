"""Who owns which samples: pure rules from so many samples and so many workers to a part for each.

::

    random        a random part each                                         sizes may differ
    contiguous    a stretch each, in stored order                            sizes may differ
    speed         a random part each, as large as its worker is fast
    hash          a hash of the sample's number decides: growing the data set moves nobody
    stratified    a random part each, with the label proportions of the whole  (label_partition.py, as the next two)
    label         some labels each
    dirichlet     of every label a part that is drawn at random: more or less uneven

Every part is an index tensor, and every sample is in exactly one of them: `divide` checks that, also for a rule of the
user's own. No part is empty unless that is allowed, so more workers than samples is an error. A rule's parameters say
what it needs: `num_samples`, `workers`, `labels` and `seed` are handed to it by name; the others are its options.

>>> parts = divide("random", num_samples=10, workers=3, seed=0)
>>> [len(part) for part in parts], torch.cat(parts).sort().values.equal(torch.arange(10))
([4, 3, 3], True)
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shoal.config.custom import current_directory_importable, load
from shoal.config.kinds import ImportPath, check
from shoal.config.schema import Custom
from shoal.data.augment import hashed
from shoal.data.division.label_partition import dirichlet_partition, label_partition, stratified_partition
from shoal.data.division.order import shares_by_weight
from shoal.data.division.parts import Parts, parts_of_owners, whole_sizes
from shoal.data.seeds import generator_for, seed_for
from shoal.errors import ConfigError, DataError, unknown

Rule = Callable[..., Sequence[Tensor]]
INPUTS = ("num_samples", "workers", "labels", "seed")
"""What a rule may be handed; its other parameters are options."""


def random_partition(
    num_samples: int, workers: int, seed: int, sizes: Sequence[float] | None = None
) -> Parts:
    """A random part for each worker: one permutation, cut.

    The permutation must be the same on every worker. Seeded by rank instead, workers would cut different
    permutations, and only 1 − (1 − 1/W)^W of the samples would be seen by anyone.
    """
    order = torch.randperm(num_samples, generator=generator_for("partition", seed))
    return order.split(list(whole_sizes(num_samples, workers, sizes)))


def contiguous_partition(num_samples: int, workers: int, sizes: Sequence[float] | None = None) -> Parts:
    """A stretch of the stored order for each worker: reads a disk well, and is as uneven as the order is.

    >>> contiguous_partition(5, 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    return torch.arange(num_samples).split(list(whole_sizes(num_samples, workers, sizes)))


def speed_partition(num_samples: int, workers: int, seed: int, speeds: Sequence[float] = ()) -> Parts:
    """A random part for each worker, as large as it is fast, so that all finish an epoch together.

    >>> [len(part) for part in speed_partition(100, 3, seed=0, speeds=(2.0, 1.0, 1.0))]
    [50, 25, 25]
    """
    if len(speeds) != workers:
        raise ConfigError(
            f"partition speed has {len(speeds)} speeds for {workers} workers",
            "Give a speed for each, in any unit: `speeds=(2, 1)` in Python, --partition.speeds 2,1 in the shell.",
        )
    return random_partition(num_samples, workers, seed, shares_by_weight(num_samples, speeds))


def hash_partition(num_samples: int, workers: int, keys: Sequence[int | str] | None = None) -> Parts:
    """A sample belongs to the worker whose hash with the sample's key is highest (rendezvous hashing).

    The owner depends on the key (the sample's number, unless keys are given) and on `workers` alone: a data set that
    grows moves nobody, and one worker more takes samples over and moves no others, about 1/W of all. Sizes are even
    only on average: N/W ± √(N/W). Costs one hash for each sample and worker.

    >>> few, more = hash_partition(100, 4), hash_partition(150, 4)
    >>> all(part.equal(grown[: len(part)]) for part, grown in zip(few, more))
    True
    """
    if keys is not None and len(keys) != num_samples:
        raise ConfigError(f"{len(keys):,} keys for {num_samples:,} samples: every sample needs one")
    numbers = torch.arange(num_samples) if keys is None else torch.tensor([_number_of(key) for key in keys])
    highest = torch.full((num_samples,), torch.iinfo(torch.int64).min)
    owners = torch.zeros(num_samples, dtype=torch.int64)
    for rank in range(workers):
        drawn = hashed(numbers, seed_for("owner", rank))
        owners[drawn > highest] = rank
        highest = highest.maximum(drawn)
    return parts_of_owners(owners, workers)


def _number_of(key: int | str) -> int:
    return key if isinstance(key, int) else seed_for("key", key)


PARTITIONS: dict[str, Rule] = {
    "random": random_partition,
    "contiguous": contiguous_partition,
    "speed": speed_partition,
    "hash": hash_partition,
    "stratified": stratified_partition,
    "label": label_partition,
    "dirichlet": dirichlet_partition,
}


def divide(
    by: str | Rule,
    num_samples: int,
    workers: int,
    *,
    labels: Tensor | None = None,
    seed: int = 0,
    allow_empty: bool = False,
    **options: Any,
) -> Parts:
    """A part for each worker, by a rule of ours, by `package.module:function`, or by a function; checked.

    >>> labels = torch.arange(20) % 2
    >>> [labels[part].unique().tolist() for part in divide("label", 20, workers=2, labels=labels)]
    [[1], [0]]
    """
    if num_samples < 1:
        raise ConfigError("a data set without samples cannot be divided")
    if workers < 1:
        raise ConfigError(f"the number of workers must be at least 1, not {workers}")
    if num_samples < workers and not allow_empty:
        raise ConfigError(
            f"{workers:,} workers cannot each own a part of {num_samples:,} samples",
            f"Use at most {num_samples:,} workers.",
        )
    name, rule = rule_of(by)
    if labels is not None and len(labels) != num_samples:
        raise DataError(f"{len(labels):,} labels for {num_samples:,} samples: every sample needs one")
    given: dict[str, Any] = {"num_samples": num_samples, "workers": workers, "labels": labels, "seed": seed}
    parts = _call(name, rule, given, options)
    return _checked(name, parts, num_samples, workers, allow_empty)


def rule_of(by: str | Rule) -> tuple[str, Rule]:
    """The name of a rule and the rule: out of the table, from the user's own module, or as it was given."""
    if callable(by):
        return getattr(by, "__name__", type(by).__name__), by
    if ":" in by:
        with current_directory_importable():
            return by, load("partition", Custom(check(ImportPath, by, "partition")))
    if by not in PARTITIONS:
        raise ConfigError(
            unknown("partition", by, PARTITIONS), "A rule of your own is written package.module:function."
        )
    return by, PARTITIONS[by]


def takes(rule: Rule, parameter: str) -> bool:
    """Whether a rule has a parameter of this name."""
    return parameter in _signature(rule).parameters


def _signature(rule: Rule) -> inspect.Signature:
    try:
        return inspect.signature(rule)
    except ValueError:  # some functions written in C do not tell theirs
        name = getattr(rule, "__name__", type(rule).__name__)
        raise ConfigError(
            f"partition {name} does not tell its parameters, so it cannot be handed what it needs",
            "Wrap it in a function of Python's.",
        ) from None


def _call(name: str, rule: Rule, given: Mapping[str, Any], options: Mapping[str, Any]) -> Sequence[Any]:
    """Hand a rule the inputs that it names, and its options, refusing those that are none of its own."""
    signature = _signature(rule)
    parameters = signature.parameters
    own = [parameter for parameter in parameters if parameter not in INPUTS]
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for option in options:
        if option not in own and not takes_any:
            owners = [other for other, function in PARTITIONS.items() if takes(function, option)]
            belongs = f": it belongs to {', '.join(owners)}" if owners else ""
            raise ConfigError(
                f"partition '{name}' has no option '{option}'{belongs}",
                f"Its options: {', '.join(own) or 'none'}.",
            )
    inputs = {key: value for key, value in given.items() if key in parameters and value is not None}
    if "labels" in parameters and "labels" not in inputs and _is_required(parameters["labels"]):
        raise DataError(
            f"partition '{name}' goes by the samples' labels, and there are none", "Give labels=…."
        )
    try:
        signature.bind(**inputs, **options)
    except TypeError as error:
        raise ConfigError(
            f"partition {name} cannot be called with {', '.join([*inputs, *options])}: {error}",
            f"A rule may have the parameters {', '.join(INPUTS)}, and options after them.",
        ) from None
    return rule(**inputs, **options)


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _checked(name: str, parts: Sequence[Any], num_samples: int, workers: int, allow_empty: bool) -> Parts:
    """The parts, if every sample is in exactly one of them; else a sentence about the first that is not."""
    try:
        tensors = tuple(torch.as_tensor(part, dtype=torch.int64).flatten() for part in parts)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"partition {name} did not give a list of samples for each worker: {error}",
            "Return a list with one list (or tensor) of sample numbers per worker.",
        ) from None
    if len(tensors) != workers:
        raise ConfigError(f"partition {name} made {len(tensors)} parts for {workers} workers")
    every = torch.cat(tensors)
    outside = every[(every < 0) | (every >= num_samples)]
    if len(outside):
        raise ConfigError(
            f"partition {name} gave away sample {outside[0]:,}, and samples run from 0 to {num_samples - 1:,}"
        )
    times = every.bincount(minlength=num_samples)
    for wrong, sentence in (
        (times == 0, "leaves {} of {:,} samples to nobody; the first is {:,}"),
        (times > 1, "gives {} of {:,} samples away more than once; the first is {:,}"),
    ):
        if wrong.any():
            first = int(wrong.nonzero()[0])
            raise ConfigError(
                f"partition {name} {sentence.format(f'{int(wrong.sum()):,}', num_samples, first)}"
            )
    empty = [rank for rank, part in enumerate(tensors) if not len(part)]
    if empty and not allow_empty:
        who = f"worker {empty[0]}" if len(empty) == 1 else f"{len(empty)} workers (the first is {empty[0]})"
        raise ConfigError(
            f"partition {name} leaves {who} without samples",
            "Use fewer workers, another seed or milder options; or allow_empty=True, if it may be so.",
        )
    return tensors
