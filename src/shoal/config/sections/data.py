"""Settings of the data sets, and of the partitions: which worker trains on which samples."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from shoal.config.choices import Checked
from shoal.config.kinds import AtLeast, AtMost
from shoal.config.sections.values import Count, Custom, Fraction, PositiveFloat

Loaders = Annotated[int, AtLeast(0), AtMost(256)]


@dataclass(frozen=True)
class DigitsConfig(Checked):
    """10,000 training and 2,000 test images of handwritten digits from MNIST; ships with shoal."""

    name: Literal["digits"] = "digits"
    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on this many samples, with the labels in the same proportions; none: on all."""
    validation: Fraction = 0.0
    """Fraction of the training set to hold out, stratified by label: tune on it, not on the test set."""


@dataclass(frozen=True)
class AliceConfig(Checked):
    """The bytes of Alice's Adventures in Wonderland; each is predicted from those before it. Ships with shoal."""

    name: Literal["alice"] = "alice"
    block_size: Annotated[int, AtLeast(1), AtMost(10_000)] = 64
    """Bytes of one sample; its labels are the bytes that follow each of them."""
    validation: Fraction = 0.0
    """Fraction of the training set to hold out: tune on it, not on the test set."""


@dataclass(frozen=True)
class _Fetched(Checked):
    """The settings of the data sets whose files `shoal data fetch` brings."""

    name: str = ""
    dir: str = ""
    """Folder with the files; otherwise $SHOAL_DATA, then the user's cache."""
    samples: Annotated[int, AtLeast(10)] | None = None
    """Train on this many samples, with the labels in the same proportions; none: on all."""
    validation: Fraction = 0.0
    """Fraction of the training set to hold out, stratified by label: tune on it, not on the test set."""


@dataclass(frozen=True)
class MnistConfig(_Fetched):
    """60,000 training and 10,000 test images of handwritten digits, 28×28, grey."""

    name: Literal["mnist"] = "mnist"


@dataclass(frozen=True)
class FashionMnistConfig(_Fetched):
    """60,000 training and 10,000 test images of clothes, 28×28, grey."""

    name: Literal["fashion-mnist"] = "fashion-mnist"


@dataclass(frozen=True)
class Cifar10Config(_Fetched):
    """50,000 training and 10,000 test photographs in ten classes, 32×32, colour."""

    name: Literal["cifar10"] = "cifar10"
    augment: bool = True
    """Shift training images by up to four pixels and mirror them, at random for each batch."""


@dataclass(frozen=True)
class SyntheticConfig(Checked):
    """Data generated from a seed, of any size and known to be learnable; nothing to download."""

    name: Literal["synthetic"] = "synthetic"
    task: Literal["classification", "regression", "text"] = "classification"
    """What the model predicts: a label, a number, or the next byte."""
    samples: Count = 4096
    """Number of training samples; the test set has a fifth as many."""
    shape: tuple[Count, ...] = ()
    """Shape of one input; for text a single number, the length in bytes. Empty: 1,28,28, or 64 for text."""
    classes: Annotated[int, AtLeast(2)] = 10
    """Number of classes (classification)."""
    seed: int = 0
    """Seed of the data alone: the data stays the same when --seed changes."""
    validation: Fraction = 0.0
    """Fraction of the training set to hold out: tune on it, not on the test set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.shape:
            object.__setattr__(self, "shape", (64,) if self.task == "text" else (1, 28, 28))


@dataclass(frozen=True)
class FilesConfig(Checked):
    """Files of your own, read while a run trains: class folders of pictures, tar shards, a file of tokens, a text."""

    SHORT: ClassVar[str] = "path"
    name: Literal["files"] = "files"
    path: str = ""
    """FOLDER with CLASS/1.jpg, *.tar or *.bin, or a text FILE.txt; --data ./FOLDER sets name and path at once."""
    loaders: Loaders = 0
    """Processes of each worker that read ahead; 0: the worker reads. The result is the same."""
    size: Count | None = None
    """Make all pictures squares of this many pixels: the middle, resized; none: they have one size already."""
    augment: bool = False
    """Shift training pictures by up to four pixels and mirror them, at random in each epoch."""
    block_size: Count = 256
    """Tokens of one sample; its labels are the tokens that follow each of them."""
    dtype: Literal["uint16", "uint32"] = "uint16"
    """How a file holds a token."""
    outputs: Count | None = None
    """Number of classes, or size of the vocabulary; none: by the largest label, or token of the files."""
    validation: Fraction = 0.0
    """Fraction of the training set to hold out, stratified by label: tune on it, not on the test set."""


BuiltInDataConfig = (
    DigitsConfig | AliceConfig | MnistConfig | FashionMnistConfig | Cifar10Config | SyntheticConfig
)
OwnData = FilesConfig | Custom
"""Data that only reading them shows."""
DataConfig = BuiltInDataConfig | OwnData


@dataclass(frozen=True)
class GlobalConfig(Checked):
    """No fixed owner: each batch is split among the workers. Equals training on one machine."""

    name: Literal["global"] = "global"


@dataclass(frozen=True)
class SamplingConfig(Checked):
    """No fixed owner: each worker draws from all samples with replacement, so an epoch misses some."""

    name: Literal["sampling"] = "sampling"


@dataclass(frozen=True)
class RandomConfig(Checked):
    """Each worker owns a random part for the whole run."""

    name: Literal["random"] = "random"


@dataclass(frozen=True)
class ContiguousConfig(Checked):
    """Each worker owns a contiguous range of the data set."""

    name: Literal["contiguous"] = "contiguous"


@dataclass(frozen=True)
class HashConfig(Checked):
    """A hash of a sample's index selects its owner, which stays the same when the data set grows."""

    name: Literal["hash"] = "hash"


@dataclass(frozen=True)
class StratifiedConfig(Checked):
    """Each worker owns a random part with the labels in the same proportions."""

    name: Literal["stratified"] = "stratified"


@dataclass(frozen=True)
class LabelConfig(Checked):
    """Each worker owns some of the labels; no other worker has them unless labels_per_worker is set."""

    name: Literal["label"] = "label"
    labels_per_worker: Count | None = None
    """Labels per worker, which workers may share; none: each label has one owner."""


@dataclass(frozen=True)
class DirichletConfig(Checked):
    """The workers' shares of each label are drawn from a Dirichlet distribution."""

    name: Literal["dirichlet"] = "dirichlet"
    alpha: PositiveFloat = 0.5
    """Concentration α. Small: each worker has few labels; large: all have the same proportions."""


@dataclass(frozen=True)
class SpeedConfig(Checked):
    """Each worker owns a random part, in proportion to its speed."""

    name: Literal["speed"] = "speed"
    speeds: tuple[PositiveFloat, ...] = ()
    """The speed of each worker, in any unit."""


PartitionConfig = (
    GlobalConfig
    | SamplingConfig
    | RandomConfig
    | ContiguousConfig
    | HashConfig
    | StratifiedConfig
    | LabelConfig
    | DirichletConfig
    | SpeedConfig
    | Custom
)
