"""`shoal.partition(dataset, …)[rank]`: each worker's part of a torch data set, as a torch `Subset`.

`shoal.DatasetPartitioner` is the same under the name, and with the arguments, that tutorials use.

>>> import torch
>>> from torch.utils.data import TensorDataset
>>> pictures, labels = torch.zeros(100, 1, 4, 4), torch.arange(100) % 10
>>> parts = partition(TensorDataset(pictures, labels), workers=4)
>>> parts, len(parts[0])
(Partition(by 'random': 25, 25, 25, 25), 25)
>>> partition(TensorDataset(pictures, labels), [0.7, 0.2, 0.1]).use(2)[0][0].shape
torch.Size([1, 4, 4])
"""

from collections.abc import Sequence
from typing import Any, final, overload

import torch
from torch import Tensor
from torch.utils.data import Dataset, Subset, TensorDataset

from shoal.config.arguments import checks_arguments
from shoal.config.sections.values import Count, Number, Seed
from shoal.data.division.order import Parts
from shoal.data.division.partition import Rule, divide, rule_of, takes
from shoal.errors import ConfigError, DataError

PLACES = ("targets", "labels")
"""Attributes in which data sets keep labels: torchvision's, and most others."""


def length_of(dataset: Any) -> int:
    """The number of samples of a data set; a DataError if it has no length or no samples."""
    kind = type(dataset).__name__
    try:
        length = len(dataset) if hasattr(dataset, "__getitem__") else None
    except TypeError:  # also of a tensor without dimensions
        length = None
    if length is None:
        raise DataError(
            f"{kind} cannot be divided: it has no __len__ or no __getitem__",
            "Pass a map-style data set.",
        )
    if not length:
        raise DataError(f"{kind} cannot be divided: it has no samples")
    return length


def labels_of(dataset: Any, given: Sequence[Any] | Tensor | None = None) -> Tensor:
    """One integer for each sample: `given`, else `.targets` or `.labels`; strings are numbered alphabetically.

    A `Subset` has the labels of its data set, and a `TensorDataset` its last tensor. The samples themselves are not
    read: that would load every picture.

    >>> data = TensorDataset(torch.zeros(3, 2), torch.tensor([5, 7, 5]))
    >>> labels_of(Subset(data, [0, 1])), labels_of(data, ["cat", "dog", "cat"])
    (tensor([5, 7]), tensor([0, 1, 0]))
    """
    found = _find(dataset) if given is None else given
    if found is None:
        raise DataError(
            f"{type(dataset).__name__} has neither .targets nor .labels",
            "Pass labels=[…], one for each sample.",
        )
    if not isinstance(found, Tensor) and len(found) and isinstance(found[0], str):
        numbers = {word: number for number, word in enumerate(sorted(set(found)))}
        return torch.tensor([numbers[word] for word in found])
    return torch.as_tensor(found)


def _find(dataset: Any) -> Any | None:
    for place in PLACES:
        if getattr(dataset, place, None) is not None:
            return getattr(dataset, place)
    if isinstance(dataset, Subset):
        whole = _find(dataset.dataset)
        indices = torch.as_tensor(dataset.indices, dtype=torch.int64)
        return None if whole is None else labels_of(dataset.dataset, whole)[indices]
    if isinstance(dataset, TensorDataset) and len(dataset.tensors) > 1:
        return dataset.tensors[-1]
    return None


SHOWN_WORKERS = 8


@final
class Partition(Sequence[Subset[Any]]):
    """A data set divided among workers: `partition[rank]` is a worker's part."""

    def __init__(self, dataset: Dataset[Any], by: str, parts: Parts) -> None:
        self.dataset = dataset
        self.by = by
        self.parts = parts
        """The indices of each worker's samples, by rank."""

    def __len__(self) -> int:
        return len(self.parts)

    @overload
    def __getitem__(self, rank: int) -> Subset[Any]: ...
    @overload
    def __getitem__(self, rank: slice) -> list[Subset[Any]]: ...
    def __getitem__(self, rank: int | slice) -> Subset[Any] | list[Subset[Any]]:
        if isinstance(rank, slice):
            return [Subset(self.dataset, part.tolist()) for part in self.parts[rank]]
        return Subset(self.dataset, self.parts[rank].tolist())

    @checks_arguments
    def use(self, rank: Number) -> Subset[Any]:
        """The part of a worker, a torch data set for any DataLoader."""
        if not 0 <= rank < len(self):
            raise ConfigError(
                f"rank {rank} is out of range for {len(self)} workers", f"Ranks are 0 to {len(self) - 1}."
            )
        return self[rank]

    def __repr__(self) -> str:
        sizes = [f"{len(part):,}" for part in self.parts[:SHOWN_WORKERS]]
        more = ", …" if len(self) > SHOWN_WORKERS else ""
        return f"Partition(by '{self.by}': {', '.join(sizes)}{more})"


@final
class DatasetPartitioner:
    """A data set cut into random parts: `DatasetPartitioner(dataset, [0.5, 0.5]).use(rank)` is a worker's.

    `partition` with fewer choices. Every sample is in exactly one part, also where the sizes do not come out even, and
    all workers must use one `seed`: parts of different permutations overlap, and miss samples.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> parts = DatasetPartitioner(TensorDataset(torch.arange(100)), [1 / 3, 1 / 3, 1 / 3])
    >>> [len(parts.use(rank)) for rank in range(3)]
    [34, 33, 33]
    """

    @checks_arguments
    def __init__(self, dataset: Dataset[Any], sizes: Sequence[float], seed: Seed = 1234) -> None:
        self.partitions = partition(dataset, sizes, seed=seed)

    def __len__(self) -> int:
        return len(self.partitions)

    def use(self, rank: int) -> Subset[Any]:
        """The part of a worker, a torch data set for any DataLoader."""
        return self.partitions.use(rank)


@checks_arguments
def partition(
    dataset: Dataset[Any],
    sizes: Sequence[float] | None = None,
    *,
    workers: Count | None = None,
    by: str | Rule = "random",
    seed: Seed = 0,
    labels: Sequence[Any] | Tensor | None = None,
    allow_empty: bool = False,
    **options: Any,
) -> Partition:
    """The data set divided among workers, by a rule of `shoal.data.division.partition` or by your own.

    `sizes` are integers that add up to the number of samples, or fractions that add up to 1; by default the rule
    chooses. `by` is the name of a rule, `package.module:function`, or a function; other options are passed to the rule
    (`alpha=0.3`). `seed` must be the same on all workers; they then agree without communication. Labels are taken from
    the data set if the rule needs them.

    >>> import torch
    >>> from torch.utils.data import TensorDataset
    >>> data = TensorDataset(torch.zeros(100, 2), torch.arange(100) % 10)
    >>> partition(data, workers=2, by="dirichlet", alpha=0.3)
    Partition(by 'dirichlet': 65, 35)
    """
    num_samples = length_of(dataset)
    if workers is None:
        if sizes is None:
            raise ConfigError(
                "partition() requires workers=… or sizes=…", "Pass workers=4, or a size for each worker."
            )
        workers = len(sizes)
    name, rule = rule_of(by)
    if sizes is not None:
        options["sizes"] = sizes
    wanted = takes(rule, "labels")
    found = labels_of(dataset, labels) if wanted or labels is not None else None
    parts = divide(by, num_samples, workers, labels=found, seed=int(seed), allow_empty=allow_empty, **options)
    return Partition(dataset, name, parts)
