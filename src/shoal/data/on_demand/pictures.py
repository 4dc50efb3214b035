"""A folder of class folders of pictures, as torchvision's ImageFolder reads it."""

from pathlib import Path
from typing import Any

import torch

from shoal.data.dataset import Draw
from shoal.data.on_demand.source import Source
from shoal.data.own.files import class_names, decoded, has_colour, listed, parts_of


class Pictures(Source):
    """FOLDER/CLASS/picture.jpg: pixels and the number of the class."""

    def __init__(self, name: str, folder: Path, classes: list[str], colour: bool, size: int | None) -> None:
        self.name = name
        files = listed(folder, classes)
        self._files = [file for file, _ in files]
        self._colour, self._size = colour, size
        self.labels = torch.tensor([label for _, label in files])
        self.outputs = len(classes)
        self.signature = str([str(file.relative_to(folder)) for file in self._files])

    def __len__(self) -> int:
        return len(self._files)

    def sample(self, number: int, draw: Draw) -> Any:
        """Decode the file."""
        assert self.labels is not None
        return decoded(self._files[number], self._colour, self._size), self.labels[number]

    def place(self, number: int) -> str:
        """The file."""
        return str(self._files[number])


def picture_sources(path: Path, name: str, size: int | None) -> dict[str, Source]:
    """FOLDER/CLASS, or FOLDER/train/CLASS and FOLDER/test/CLASS; the training set's classes are those of all."""
    parts = parts_of(path)
    classes = class_names(parts["train"])
    colour = has_colour(listed(parts["train"], classes)[0][0])
    return {split: Pictures(name, folder, classes, colour, size) for split, folder in parts.items()}
