"""Partitions: rules that give each worker samples of its own.

::

    random        random parts                                       takes sizes
    contiguous    slices of the stored order                         takes sizes
    speed         random parts, proportional to the workers' speeds
    hash          by a hash of the sample's number: a growing data set moves no sample
    stratified    random parts with the label proportions of the whole   (this and the next two: label_partition.py)
    label         a few labels for each worker
    dirichlet     each label in random proportions, more or less uneven

Every part is an index tensor, and every sample is in exactly one part: `divide` checks this, also for a user's rule. No
part is empty unless `allow_empty` is set, so more workers than samples is an error. A rule declares what it needs by
its parameters: `num_samples`, `workers`, `labels` and `seed` are passed by name; other parameters are its options.

>>> parts = divide("random", num_samples=10, workers=3, seed=0)
>>> [len(part) for part in parts], torch.cat(parts).sort().values.equal(torch.arange(10))
([4, 3, 3], True)
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from shoal.config.custom import calling, load
from shoal.config.kinds import ImportPath, check
from shoal.config.sections.values import Custom
from shoal.data.division.label_partition import dirichlet_partition, label_partition, stratified_partition
from shoal.data.division.order import Parts, parts_of_owners, shares_by_weight, whole_sizes
from shoal.data.seeds import generator_for, hashed, seed_for
from shoal.errors import ConfigError, DataError, unknown

Rule = Callable[..., Sequence[Tensor]]
INPUTS = ("num_samples", "workers", "labels", "seed")
"""Parameters that `divide` passes to a rule; its other parameters are options."""


def random_partition(
    num_samples: int, workers: int, seed: int, sizes: Sequence[float] | None = None
) -> Parts:
    """Random parts: one permutation, split.

    The permutation must be the same on every worker. If it were seeded by rank, only a fraction 1 − (1 − 1/W)^W of the
    samples would be seen.
    """
    order = torch.randperm(num_samples, generator=generator_for("partition", seed))
    return order.split(list(whole_sizes(num_samples, workers, sizes)))


def contiguous_partition(num_samples: int, workers: int, sizes: Sequence[float] | None = None) -> Parts:
    """Slices of the stored order: sequential reads, and labels as uneven as the order.

    >>> contiguous_partition(5, 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    return torch.arange(num_samples).split(list(whole_sizes(num_samples, workers, sizes)))


def speed_partition(num_samples: int, workers: int, seed: int, speeds: Sequence[float] = ()) -> Parts:
    """Random parts proportional to the workers' speeds, so that all finish an epoch together.

    >>> [len(part) for part in speed_partition(100, 3, seed=0, speeds=(2.0, 1.0, 1.0))]
    [50, 25, 25]
    """
    if len(speeds) != workers:
        raise ConfigError(
            f"partition speed: {len(speeds)} speeds for {workers} workers",
            "Pass one speed per worker, in any unit: `speeds=(2, 1)` in Python, --partition.speeds 2,1 in the shell.",
        )
    return random_partition(num_samples, workers, seed, shares_by_weight(num_samples, speeds))


def hash_partition(num_samples: int, workers: int, keys: Sequence[int | str] | None = None) -> Parts:
    """Rendezvous hashing: a sample belongs to the worker whose hash with the sample's key is highest.

    The owner depends only on the key (default: the sample's number) and on `workers`: a growing data set moves no
    sample, and an additional worker takes about 1/W of the samples and moves no others. Sizes are equal only on
    average: N/W ± √(N/W). Cost: one hash for each sample and worker.

    >>> few, more = hash_partition(100, 4), hash_partition(150, 4)
    >>> all(part.equal(grown[: len(part)]) for part, grown in zip(few, more))
    True
    """
    if keys is not None and len(keys) != num_samples:
        raise ConfigError(f"{len(keys):,} keys for {num_samples:,} samples: one per sample is required")
    if keys is None:
        numbers = torch.arange(num_samples)
    else:
        numbers = torch.tensor([key if isinstance(key, int) else seed_for("key", key) for key in keys])
    highest = torch.full((num_samples,), torch.iinfo(torch.int64).min)
    owners = torch.zeros(num_samples, dtype=torch.int64)
    for rank in range(workers):
        drawn = hashed(numbers, seed_for("owner", rank))
        owners[drawn > highest] = rank
        highest = highest.maximum(drawn)
    return parts_of_owners(owners, workers)


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
    """A part for each worker, by the name of a rule, by `package.module:function`, or by a function; checked.

    >>> labels = torch.arange(20) % 2
    >>> [labels[part].unique().tolist() for part in divide("label", 20, workers=2, labels=labels)]
    [[1], [0]]
    """
    if num_samples < 1:
        raise ConfigError("cannot divide a data set without samples")
    if workers < 1:
        raise ConfigError(f"workers must be ≥ 1, got {workers}")
    if num_samples < workers and not allow_empty:
        raise ConfigError(
            f"{num_samples:,} samples are too few for {workers:,} workers",
            f"Use at most {num_samples:,} workers.",
        )
    name, rule = rule_of(by)
    if labels is not None and len(labels) != num_samples:
        raise DataError(f"{len(labels):,} labels for {num_samples:,} samples: one per sample is required")
    given: dict[str, Any] = {"num_samples": num_samples, "workers": workers, "labels": labels, "seed": seed}
    parts = _call(name, rule, given, options)
    return _checked(name, parts, num_samples, workers, allow_empty)


def rule_of(by: str | Rule) -> tuple[str, Rule]:
    """A rule and its name: from the table, from the user's module, or the function itself."""
    if callable(by):
        return getattr(by, "__name__", type(by).__name__), by
    if ":" in by:
        config = Custom(check(ImportPath, by, "partition"))
        with calling("partition", config):
            return by, load("partition", config)
    if by not in PARTITIONS:
        raise ConfigError(unknown("partition", by, PARTITIONS), "Your own rule: package.module:function.")
    return by, PARTITIONS[by]


def takes(rule: Rule, parameter: str) -> bool:
    """Whether a rule has a parameter of this name."""
    return parameter in _signature(rule).parameters


def _signature(rule: Rule) -> inspect.Signature:
    try:
        return inspect.signature(rule)
    except ValueError:  # some functions written in C have no signature
        name = getattr(rule, "__name__", type(rule).__name__)
        raise ConfigError(
            f"partition {name} has no signature, so its parameters are unknown",
            "Wrap it in a Python function.",
        ) from None


def _call(name: str, rule: Rule, given: Mapping[str, Any], options: Mapping[str, Any]) -> Sequence[Any]:
    """Call a rule with the inputs that it declares and with its options; unknown options are an error."""
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
    labels = parameters.get("labels")
    if labels is not None and "labels" not in inputs and labels.default is inspect.Parameter.empty:
        raise DataError(
            f"partition '{name}' requires labels, but the data set has none",
            "Use another rule, such as random; shoal.partition takes labels=[…], one for each sample.",
        )
    try:
        signature.bind(**inputs, **options)
    except TypeError as error:
        raise ConfigError(
            f"partition {name} cannot be called with {', '.join([*inputs, *options])}: {error}",
            f"A rule has any of the parameters {', '.join(INPUTS)}, followed by its options.",
        ) from None
    return rule(**inputs, **options)


def _checked(name: str, parts: Sequence[Any], num_samples: int, workers: int, allow_empty: bool) -> Parts:
    """The parts as tensors; a ConfigError unless every sample is in exactly one of them."""
    try:
        tensors = tuple(torch.as_tensor(part, dtype=torch.int64).flatten() for part in parts)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"partition {name} did not return a list of samples for each worker: {error}",
            "Return a list with one list (or tensor) of sample numbers per worker.",
        ) from None
    if len(tensors) != workers:
        raise ConfigError(f"partition {name} returned {len(tensors)} parts for {workers} workers")
    every = torch.cat(tensors)
    outside = every[(every < 0) | (every >= num_samples)]
    if len(outside):
        raise ConfigError(
            f"partition {name} returned sample {outside[0]:,}, but samples are 0 to {num_samples - 1:,}"
        )
    times = every.bincount(minlength=num_samples)
    for wrong, sentence in (
        (times == 0, "assigns {} of {:,} samples to no worker; the first is {:,}"),
        (times > 1, "assigns {} of {:,} samples more than once; the first is {:,}"),
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
            "Use fewer workers, another seed or less skewed options, or pass allow_empty=True.",
        )
    return tensors
