"""Stand-ins for packages: torchvision with the labs' digits and its transforms; others that a check does not need."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, final
from unittest.mock import MagicMock

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from shoal import data
from shoal.kit.settings import DigitsConfig

NUM_TRAINED = 2000
"""Digits of the training set that the stand-in has: a check takes a few steps."""
HARMLESS = (
    *("matplotlib", "seaborn", "plotly", "visdom", "tqdm", "rich", "prettytable", "pandas", "tensorboardX"),
    *("wandb", "swanlab", "loguru", "torchsummary", "torchinfo", "thop", "psutil", "pynvml", "GPUtil"),
)
"""Packages that draw curves, show progress or write logs: no check asks for their work."""


class MNIST(Dataset[Any]):
    """The digits of the labs under torchvision's name; nothing is downloaded."""

    def __init__(
        self,
        root: str | Path,
        train: bool = True,
        transform: Callable[[Any], Any] | None = None,
        target_transform: Callable[[Any], Any] | None = None,
        download: bool = False,
    ) -> None:
        digits = data.load(DigitsConfig())
        split = digits.train if train else digits.test
        chosen = torch.arange(min(NUM_TRAINED, len(split)))
        pictures = split.inputs[chosen].reshape(-1, 28, 28)
        self.data = pictures
        self.targets = split.labels[chosen].long()
        self.transform, self.target_transform = transform, target_transform

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        picture: Any = self.data[index].numpy()
        label: Any = int(self.targets[index])
        return (
            self.transform(picture) if self.transform else picture,
            self.target_transform(label) if self.target_transform else label,
        )


class FashionMNIST(MNIST):
    """The same digits: a check needs pictures of the right shape."""


class Compose:
    """One transform after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, value: Any) -> Any:
        """The transformed value."""
        for transform in self.transforms:
            value = transform(value)
        return value


class ToTensor:
    """A picture [28, 28] of bytes becomes a tensor [1, 28, 28] from 0 to 1."""

    def __call__(self, picture: Any) -> Tensor:
        """The transformed value."""
        return torch.from_numpy(np.asarray(picture)).unsqueeze(0).float() / 255


class Normalize:
    """Subtract the mean and divide by the standard deviation."""

    def __init__(self, mean: Any, std: Any, inplace: bool = False) -> None:
        self.mean, self.std = (torch.as_tensor(each).reshape(-1, 1, 1) for each in (mean, std))

    def __call__(self, picture: Tensor) -> Tensor:
        """The transformed value."""
        return (picture - self.mean) / self.std


class Lambda:
    """A function as a transform."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, value: Any) -> Any:
        """The transformed value."""
        return self.function(value)


class Unchanged:
    """For transforms that only vary a picture, or bring it to the size that it has already."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __call__(self, picture: Any) -> Any:
        """The transformed value."""
        return picture


def replace_data() -> None:
    """Let torchvision give the labs' digits, also where it is installed: there is no network to download others."""
    vars(import_module("torchvision.datasets")).update(MNIST=MNIST, FashionMNIST=FashionMNIST)


def install() -> None:
    """Let `import torchvision` find these."""
    root, datasets, transforms = (
        ModuleType(name) for name in ("torchvision", "torchvision.datasets", "torchvision.transforms")
    )
    vars(datasets).update(MNIST=MNIST, FashionMNIST=FashionMNIST)
    vars(transforms).update(Compose=Compose, ToTensor=ToTensor, Normalize=Normalize, Lambda=Lambda)
    for name in ("Resize", "CenterCrop", "RandomCrop", "RandomRotation", "RandomHorizontalFlip", "Grayscale"):
        setattr(transforms, name, Unchanged)
    vars(root).update(datasets=datasets, transforms=transforms, __version__="0", __path__=[])
    sys.modules.update({module.__name__: module for module in (root, datasets, transforms)})


def ignore_missing() -> None:
    """Let these packages be imported where they are missing: they do nothing."""
    sys.meta_path.append(_Missing())


@final
class _Missing(MetaPathFinder, Loader):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A stand-in for a module that nothing else has found."""
        if fullname.partition(".")[0] not in HARMLESS:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> Any:
        """A module whose every name does nothing; `tqdm` gives back what it is given."""
        made = MagicMock(name=spec.name)
        made.__path__, made.__spec__, made.__file__ = [], spec, ""
        if spec.name.startswith("tqdm"):
            made.tqdm = made.side_effect = lambda given=None, *_, **__: given
            made.trange = lambda *given, **_: range(*given)
        return made

    def exec_module(self, module: Any) -> None:
        """Nothing is in it."""
