"""Load the data set of a configuration."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from shoal.config.checks import check_memory, data_bytes
from shoal.config.sections.data import (
    AliceConfig,
    Cifar10Config,
    DataConfig,
    DigitsConfig,
    FashionMnistConfig,
    FilesConfig,
    MnistConfig,
    SyntheticConfig,
)
from shoal.config.sections.values import Custom
from shoal.data.dataset import BYTES, Augment, DataSet, Split
from shoal.data.holdout import hold_out, only
from shoal.data.on_demand.load import load_files
from shoal.data.own.load import load_own
from shoal.data.sources.catalogue import CATALOGUE, IDX_FILES, Catalogue, DataFile, entry_of
from shoal.data.sources.files import check_published, find
from shoal.data.sources.formats import decode_cifar, decode_idx, read_content
from shoal.data.synthetic import synthetic
from shoal.errors import ConfigError, DataError, unknown

CLASSES = 10
TEST_PART_OF_ALICE = 10
"""The last tenth of the book is the test set."""
# Mean and standard deviation of each channel of the published training sets, for pixels from 0 to 1.
MNIST_STATISTICS = ((0.1307,), (0.3081,))
FASHION_MNIST_STATISTICS = ((0.2860,), (0.3530,))
CIFAR10_STATISTICS = ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616))

Statistics = tuple[tuple[float, ...], tuple[float, ...]]


def load(config: DataConfig, seed_of_validation: int = 0, catalogue: Catalogue = CATALOGUE) -> DataSet:
    """The data set of a configuration, in memory, with its validation part held out if configured.

    Every file must be identical to the published one; a DataError names the problem and the fix.

    >>> from shoal.config.sections.data import DigitsConfig
    >>> data = load(DigitsConfig(validation=0.1))
    >>> data.train, data.validation
    (Split(9,000 samples of shape (1, 28, 28) on cpu), Split(1,000 samples of shape (1, 28, 28) on cpu))
    """
    if isinstance(config, Custom):
        return load_own(config)
    if isinstance(config, FilesConfig):
        return load_files(config, seed_of_validation)
    if config.name not in LOADERS:
        raise ConfigError(unknown("data set", config.name, LOADERS))
    check_memory(1, data_bytes(config), "the data")
    data = LOADERS[config.name](config, catalogue)
    if not isinstance(config, SyntheticConfig | AliceConfig) and config.samples is not None:
        data = only(data, config.samples)
    return hold_out(data, config.validation, seed_of_validation)


def load_idx(folder: str, name: str = "own", classes: int = CLASSES) -> DataSet:
    """Your own data in MNIST's format: four files with MNIST's names in one folder, of any size and shape.

    The format and the labels are checked. Mean and standard deviation come from the training pictures.
    """
    paths: list[Path] = []
    for file in IDX_FILES:
        plain = Path(folder).expanduser() / file
        path = plain if plain.is_file() else plain.with_name(f"{file}.gz")
        if not path.is_file():
            raise DataError(
                f"{plain} is missing", f"Four files are needed, plain or .gz: {', '.join(IDX_FILES)}."
            )
        paths.append(path)
    contents = [read_content(path) for path in paths]
    train, test = _idx_splits(paths, contents, classes)
    pixels = train.inputs.to(torch.float32) / 255
    # Constant pictures would divide by zero.
    std, mean = torch.std_mean(pixels)
    return DataSet(
        name, "classification", train, None, test, classes, mean.view(1), std.clamp_min(1e-3).view(1)
    )


def _published_idx(
    config: DigitsConfig | MnistConfig | FashionMnistConfig, catalogue: Catalogue, statistics: Statistics
) -> DataSet:
    directory = "" if isinstance(config, DigitsConfig) else config.dir
    files, paths, contents = _read_all(config.name, directory, catalogue)
    train, test = _idx_splits(paths, contents, CLASSES)
    _check_all(files, paths, contents, catalogue)
    mean, std = map(torch.tensor, statistics)
    return DataSet(config.name, "classification", train, None, test, CLASSES, mean, std)


def _cifar10(config: Cifar10Config, catalogue: Catalogue) -> DataSet:
    files, paths, contents = _read_all(config.name, config.dir, catalogue)
    parts = [decode_cifar(data, str(path)) for path, data in zip(paths, contents, strict=True)]
    splits: list[Split] = []
    for chosen in (parts[:-1], parts[-1:]):  # the last file is the test set
        labels = torch.cat([labels for _, labels in chosen]).long()
        splits.append(Split(torch.cat([pictures for pictures, _ in chosen]), labels))
    for (_, labels), path in zip(parts, paths, strict=True):
        _check_labels(labels, CLASSES, path)
    _check_all(files, paths, contents, catalogue)
    mean, std = map(torch.tensor, CIFAR10_STATISTICS)
    augment = Augment() if config.augment else None
    return DataSet(config.name, "classification", splits[0], None, splits[1], CLASSES, mean, std, augment)


def _alice(config: AliceConfig, catalogue: Catalogue) -> DataSet:
    """Windows of the book, one after the other; the last ones are the test set."""
    files, paths, contents = _read_all(config.name, "", catalogue)
    _check_all(files, paths, contents, catalogue)
    text, length = torch.frombuffer(contents[0], dtype=torch.uint8), config.block_size
    windows = text.unfold(0, length + 1, length)
    whole = Split(windows[:, :-1].contiguous(), windows[:, 1:].long())
    train, test = torch.arange(len(whole)).tensor_split([len(whole) - len(whole) // TEST_PART_OF_ALICE])
    return DataSet(config.name, "text", whole.take(train), None, whole.take(test), BYTES, None, None)


LOADERS: dict[str, Callable[[Any, Catalogue], DataSet]] = {
    "alice": _alice,
    "digits": partial(_published_idx, statistics=MNIST_STATISTICS),
    "mnist": partial(_published_idx, statistics=MNIST_STATISTICS),
    "fashion-mnist": partial(_published_idx, statistics=FASHION_MNIST_STATISTICS),
    "cifar10": _cifar10,
    "synthetic": lambda config, catalogue: synthetic(config),
}


def _read_all(
    name: str, directory: str, catalogue: Catalogue
) -> tuple[tuple[DataFile, ...], list[Path], list[bytearray]]:
    """The files of a data set in order: catalogue entries, paths and contents."""
    files = entry_of(name, catalogue).files
    found = find(name, directory, catalogue)
    paths = [found[file.name] for file in files]
    contents = [read_content(path, limit=file.size) for file, path in zip(files, paths, strict=True)]
    return files, paths, contents


def _check_all(
    files: tuple[DataFile, ...], paths: list[Path], contents: list[bytearray], catalogue: Catalogue
) -> None:
    """Compare with the published sha256; called last, because errors in the format are easier to understand."""
    for file, path, data in zip(files, paths, contents, strict=True):
        check_published(file, path, data, catalogue)


def _idx_splits(paths: list[Path], contents: list[bytearray], classes: int) -> tuple[Split, Split]:
    """Training and test split of the four files in the order of IDX_FILES."""
    splits: list[Split] = []
    for images_at, labels_at in ((0, 1), (2, 3)):
        pictures = decode_idx(contents[images_at], dims=3, where=str(paths[images_at]))
        labels = decode_idx(contents[labels_at], dims=1, where=str(paths[labels_at]))
        if len(pictures) != len(labels):
            raise DataError(
                f"{paths[images_at]} holds {len(pictures):,} pictures, "
                f"but {paths[labels_at].name} holds {len(labels):,} labels"
            )
        _check_labels(labels, classes, paths[labels_at])
        splits.append(Split(pictures.unsqueeze(1), labels.long()))
    train, test = splits
    if train.inputs.shape[1:] != test.inputs.shape[1:]:
        sizes = [" × ".join(map(str, split.inputs.shape[2:])) for split in splits]
        raise DataError(f"{paths[0]} holds pictures of {sizes[0]} pixels, but {paths[2].name} of {sizes[1]}")
    return train, test


def _check_labels(labels: Tensor, classes: int, path: Path) -> None:
    largest = int(labels.max())
    if largest >= classes:
        sample = int(labels.argmax())
        raise DataError(f"{path}: sample {sample:,} has label {largest}, expected 0 to {classes - 1}")
