"""Data that do not fit in memory: five forms, each read by loader processes while two workers train.

python examples/on_demand.py                 # writes small files into a temporary folder, and trains on each form
cd examples; shoal train --data on_demand:map_style --data.loaders 2 --model mlp
"""

import io
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset, IterableDataset

import shoal

CLASSES = ("dark", "light")


def picture(number):
    """A picture of 10 × 10 grey pixels, dark or light."""
    noise = np.random.default_rng(number).integers(0, 128, (10, 10), dtype=np.uint8)
    return Image.fromarray(noise + np.uint8(100 * (number % 2)))


class Pictures(Dataset):
    """Map-style: any sample at any time. What a transform draws follows from (seed, epoch, sample)."""

    def __init__(self, numbers):
        self.numbers = numbers
        self.targets = [
            number % 2 for number in numbers
        ]  # all labels: nobody needs to say how many classes there are

    def __len__(self):
        return len(self.numbers)

    def __getitem__(self, index):
        pixels = torch.from_numpy(np.array(self.picture(index))) / 255
        top, left = torch.randint(3, (2,)).tolist()  # a random crop, drawn anew in each epoch
        return pixels[top : top + 8, left : left + 8].flatten(), self.targets[index]

    def picture(self, index):
        """Draw it here; a data set of files would open one."""
        return picture(self.numbers[index])


class Readings(IterableDataset):
    """Iterable: one order, as from a socket or a compressed file. All workers see the same samples in that order."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __len__(self):
        return len(self.numbers)

    def __iter__(self):
        for number in self.numbers:
            yield torch.tensor([number % 2, number % 3, 1.0]), number % 2


def map_style():
    """Training and test set, read by index."""
    return Pictures(range(96)), Pictures(range(96, 120))


def iterable():
    """Training and test set, read forward."""
    return Readings(range(96)), Readings(range(96, 120))


def write_pictures(folder):
    """FOLDER/CLASS/picture.png, as torchvision's ImageFolder has it."""
    for number in range(120):
        path = folder / CLASSES[number % 2] / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(number).save(path)
    return folder


def write_shards(folder):
    """FOLDER/000.tar, …, as WebDataset has them: 0001.png and 0001.cls are one sample."""
    folder.mkdir()
    for shard in range(3):
        with tarfile.open(folder / f"{shard:03}.tar", "w") as tar:
            for number in range(40 * shard, 40 * shard + 40):
                pixels = io.BytesIO()
                picture(number).save(pixels, "png")
                for suffix, content in (("png", pixels.getvalue()), ("cls", str(number % 2).encode())):
                    member = tarfile.TarInfo(f"{number:04}.{suffix}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return folder


def write_tokens(folder):
    """FOLDER/train.bin and val.bin, as nanoGPT has them: numbers of 16 bits, one after the other."""
    folder.mkdir()
    text = (np.arange(4000) * 7 % 50).astype(np.uint16)
    text[:3600].tofile(folder / "train.bin")
    text[3600:].tofile(folder / "val.bin")
    return folder


def forms(folder):
    """Of each form its name, a model for it, the data and their settings."""
    pixels = nn.Sequential(nn.Flatten(), nn.Linear(100, 2))
    return [
        ("map-style", nn.Linear(64, 2), map_style, {}),
        ("iterable", nn.Linear(3, 2), iterable, {"data.outputs": 2}),
        ("pictures", pixels, str(write_pictures(folder / "photos")), {"data.augment": True}),
        ("shards", pixels, str(write_shards(folder / "shards")), {}),
        (
            "tokens",
            "transformer",
            str(write_tokens(folder / "text")),
            {"data.block_size": 20, "model.width": 16},
        ),
    ]


def train(model, data, **settings):
    """Train for two epochs; the result is the same with other numbers of loaders."""
    common = {"workers": 2, "strategy": "ddp", "data.loaders": 2}
    return shoal.fit(model, data, epochs=2, batch_size=8, progress=False, **common | settings)


def main():
    """Train on each form."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        for name, model, data, settings in forms(Path(folder)):
            result = train(model, data, **settings)
            sys.stdout.write(f"{name:<10} {result.steps} steps, test loss {result.test_loss:.3f}\n")


if __name__ == "__main__":
    main()
