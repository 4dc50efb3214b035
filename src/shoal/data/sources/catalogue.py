"""The files of each published data set: sizes, sha256, and mirrors to fetch them from.

Sizes and sha256 are those of the unpacked *content*, so any gzip of a file is accepted.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from shoal.errors import ConfigError, unknown


@dataclass(frozen=True)
class DataFile:
    """One published file; of a data set, as it is when unpacked."""

    name: str
    size: int
    """Bytes."""
    sha256: str


@dataclass(frozen=True)
class Archive(DataFile):
    """A tar file that holds all files of a data set in one folder."""

    folder: str
    """The folder inside the archive; nothing outside it is read."""


@dataclass(frozen=True)
class Entry:
    """A data set that consists of files."""

    name: str
    sentence: str
    """What it holds."""
    credit: str
    """Authors and licence."""
    files: tuple[DataFile, ...]
    subfolders: tuple[str, ...] = ()
    """Folders to search below a data folder, besides the folder with the data set's name."""
    mirrors: tuple[str, ...] = ()
    """URLs that end in /; the name of a file (with .gz) or of the archive is appended."""
    archive: Archive | None = None
    shipped: bool = False
    """Whether the files are part of this package."""

    @property
    def size(self) -> int:
        """Bytes of all files when unpacked."""
        return sum(file.size for file in self.files)


Catalogue = Mapping[str, Entry]

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
"""The files of a data set in MNIST's format."""


def _idx_files(*published: tuple[int, str]) -> tuple[DataFile, ...]:
    """The files in MNIST's format, by size and sha256."""
    return tuple(DataFile(name, *facts) for name, facts in zip(IDX_FILES, published, strict=True))


DIGITS = Entry(
    name="digits",
    sentence="10,000 + 2,000 handwritten digits, 28×28 grey: a stratified part of MNIST",
    credit="Y. LeCun, C. Cortes, C. Burges; CC BY-SA 3.0",
    files=_idx_files(
        (7_840_016, "96defee2ab685483b9a3e40d749565b36760c0072a8b8a3f6d989614bd22ff4d"),
        (10_008, "306eb44c58c72aea6431270542616c67dd483edc08e92917cd180d90aad4772c"),
        (1_568_016, "0a2a978ac97c9ffe5524643f23f15c688c7c4b82e1ce271f4060492e4a74cae4"),
        (2_008, "601a3cc86da79e5dcf5265d52b4dd14eb2e0ee0c69c9792c036ed8b98dcb05fa"),
    ),
    shipped=True,
)

ALICE = Entry(
    name="alice",
    sentence="Alice's Adventures in Wonderland: a book, as text",
    credit="L. Carroll, 1865; in the public domain",
    files=(
        DataFile("alice.txt", 148_476, "cc660e04a3bef809b5436e822536cafefa278d55fb3639fb3e93665590d6fc0a"),
    ),
    shipped=True,
)

MNIST = Entry(
    name="mnist",
    sentence="60,000 + 10,000 handwritten digits, 28×28 grey",
    credit="Y. LeCun, C. Cortes, C. Burges; CC BY-SA 3.0",
    files=_idx_files(
        (47_040_016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        (60_008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        (7_840_016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        (10_008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    ),
    subfolders=("MNIST/raw",),
    mirrors=(
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
    ),
)

FASHION_MNIST = Entry(
    name="fashion-mnist",
    sentence="60,000 + 10,000 pictures of clothes, 28×28 grey",
    credit="Zalando SE (H. Xiao, K. Rasul, R. Vollgraf); MIT",
    files=_idx_files(
        (47_040_016, "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
        (60_008, "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
        (7_840_016, "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
        (10_008, "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
    ),
    subfolders=("FashionMNIST/raw",),
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    ),
)

CIFAR10 = Entry(
    name="cifar10",
    sentence="50,000 + 10,000 photographs of ten kinds of things, 32×32 colour",
    credit="A. Krizhevsky, V. Nair, G. Hinton (Learning Multiple Layers of Features from Tiny Images, 2009)",
    files=tuple(
        DataFile(name, 30_730_000, sha256)
        for name, sha256 in (
            ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        )
    ),
    subfolders=("cifar10/cifar-10-batches-bin", "cifar-10-batches-bin"),
    mirrors=(
        "https://www.cs.toronto.edu/~kriz/",
        "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/",
        "https://mindspore-website.obs.cn-north-4.myhuaweicloud.com/notebook/datasets/",
    ),
    archive=Archive(
        name="cifar-10-binary.tar.gz",
        size=170_052_171,
        sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        folder="cifar-10-batches-bin",
    ),
)

CATALOGUE: Catalogue = {entry.name: entry for entry in (DIGITS, ALICE, MNIST, FASHION_MNIST, CIFAR10)}


def entry_of(name: str, catalogue: Catalogue = CATALOGUE) -> Entry:
    """The entry of this name; a ConfigError suggests the nearest known name.

    >>> entry_of("mnist").size
    54950048
    """
    if name not in catalogue:
        raise ConfigError(unknown("data set of files", name, catalogue))
    return catalogue[name]
