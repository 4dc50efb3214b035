"""Samples in files of the user's own: a folder of pictures, a CSV file, a NumPy file."""

import csv
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from shoal.data.dataset import Split
from shoal.data.own.samples import split_of
from shoal.errors import DataError
from shoal.files import read_text

PICTURES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".ppm", ".pgm", ".webp", ".tif", ".tiff"}
LABEL_COLUMNS = ("label", "class", "target", "y")
ARRAYS = (("inputs", "labels"), ("x", "y"))
"""The names of two arrays in an .npz file; with _train, _validation or _test after them for splits."""


def read_path(path: Path) -> dict[str, Split]:
    """The splits in a folder or file; one without splits is the training set."""
    path = path.expanduser()
    if path.is_dir():
        return _folder(path)
    if not path.is_file():
        raise DataError(
            f"{path} does not exist", f"Paths are relative to the current directory: {Path.cwd()}"
        )
    if path.suffix == ".csv":
        return {"train": _csv(path)}
    if path.suffix in (".npz", ".npy"):
        return _numpy(path)
    raise DataError(
        f"{path} is no folder of pictures and no .csv, .npz or .npy file",
        "Read it in your function, and return tensors.",
    )


def _folder(path: Path) -> dict[str, Split]:
    """FOLDER/CLASS/picture.png, or FOLDER/train/CLASS/picture.png and FOLDER/test/CLASS/picture.png."""
    parts = parts_of(path)
    classes = class_names(parts["train"])
    return {split: _pictures(folder, classes) for split, folder in parts.items()}


def parts_of(path: Path) -> dict[str, Path]:
    """The folders train, test and validation (or val) of a folder; without train, the folder is the training set."""
    names = {"train": "train", "test": "test", "validation": "validation", "val": "validation"}
    parts = {split: path / name for name, split in names.items() if (path / name).is_dir()}
    return parts if "train" in parts else {"train": path}


def class_names(folder: Path) -> list[str]:
    """The names of the folders in a folder, sorted: the classes."""
    found = sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    if not found:
        raise DataError(
            f"{folder} has no folders of pictures", "Each class is a folder: cats/1.png, dogs/1.png."
        )
    return found


def _pictures(folder: Path, classes: list[str]) -> Split:
    pictures, labels = list[Tensor](), list[int]()
    colour, first = False, folder
    for file, label in listed(folder, classes):
        if not pictures:
            first, colour = file, has_colour(file)
        picture = decoded(file, colour)
        if pictures and picture.shape != pictures[0].shape:
            sizes = [f"{each.shape[2]} × {each.shape[1]}" for each in (picture, pictures[0])]
            raise DataError(
                f"{file} has {sizes[0]} pixels, and {first} has {sizes[1]}",
                "All pictures need one size: --data PATH --data.size N makes them squares; or read them in your "
                "function.",
            )
        pictures.append(picture)
        labels.append(label)
    return Split(torch.stack(pictures), torch.tensor(labels))


def listed(folder: Path, classes: list[str]) -> list[tuple[Path, int]]:
    """The pictures of a folder of class folders, each with the number of its class."""
    found = list[tuple[Path, int]]()
    for name in class_names(folder):
        if name not in classes:
            raise DataError(f"{folder / name} is no class of the training set ({', '.join(classes)})")
        files = sorted(file for file in (folder / name).iterdir() if file.suffix.lower() in PICTURES)
        found += [(file, classes.index(name)) for file in files]
    if not found:
        raise DataError(f"{folder} has no pictures ({', '.join(sorted(PICTURES))})")
    return found


def has_colour(file: Path | BinaryIO) -> bool:
    """Whether a picture has more than one channel; the first one decides it for all."""
    opened = _opened(file)
    return len(opened.getbands()) > 1 or opened.mode == "P"


def decoded(file: Path | BinaryIO, colour: bool, size: int | None = None) -> Tensor:
    """The pixels of a picture, [channels, height, width]; with a size its middle square, resized."""
    picture = _opened(file).convert("RGB" if colour else "L")
    if size is not None:
        from PIL import ImageOps

        picture = ImageOps.fit(picture, (size, size))
    pixels = torch.from_numpy(np.array(picture))
    return pixels.permute(2, 0, 1).contiguous() if colour else pixels.unsqueeze(0)


def _opened(file: Path | BinaryIO) -> Any:
    try:
        from PIL import Image, UnidentifiedImageError
    except ModuleNotFoundError:
        raise DataError("pictures need the package pillow", "pip install pillow") from None

    try:
        with Image.open(file) as image:
            image.load()
            return image
    except (OSError, ValueError, SyntaxError) as error:
        name = file if isinstance(file, Path) else file.name
        if isinstance(error, OSError) and error.errno:
            raise unreadable(str(name), error) from None
        # Pillow would name the file once more, or an object in memory.
        why = "" if isinstance(error, UnidentifiedImageError) else f": {error}"
        raise DataError(f"{name} is damaged or no picture{why}", "Copy it again, or remove it.") from None


def unreadable(name: str, error: OSError) -> DataError:
    """The error of a file that the system does not open."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{name} is gone", "It was there when the run began: put it back.")
    return DataError(f"{name} cannot be read: {error.strerror}")


def _csv(path: Path) -> Split:
    """A row for each sample; the label is the column named label, class, target or y, else the last one."""
    try:
        lines = read_text(path).splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not text: {error}") from None
    rows = [(number, row) for number, row in enumerate(csv.reader(lines), 1) if row]
    if not rows:
        raise DataError(f"{path} is empty")
    header = rows.pop(0)[1] if not any(_is_number(cell) for cell in rows[0][1]) else None
    width = len(header or rows[0][1])
    names = [name.strip().lower() for name in header or ()]
    at = next((names.index(name) for name in LABEL_COLUMNS if name in names), width - 1)
    if width < 2 or not rows:
        raise DataError(
            f"{path} has {width} columns and {len(rows):,} rows of samples; it needs inputs and a label"
        )
    inputs = list[list[float]]()
    for number, row in rows:
        if len(row) != width:
            raise DataError(f"{path}, line {number}: {len(row)} columns, expected {width}")
        numbers = [cell for column, cell in enumerate(row) if column != at]
        if not all(map(_is_number, numbers)):
            bad = next(cell for cell in numbers if not _is_number(cell))
            raise DataError(f"{path}, line {number}: {bad!r} is not a number", "Only the label may be text.")
        inputs.append([float(cell) for cell in numbers])
    return split_of((torch.tensor(inputs), _labels([row[at].strip() for _, row in rows])), str(path))


def _labels(cells: list[str]) -> Tensor:
    """Whole numbers are classes, other numbers targets; names are classes in alphabetical order."""
    if all(cell.lstrip("-").isdigit() for cell in cells):
        return torch.tensor([int(cell) for cell in cells])
    if all(map(_is_number, cells)):
        return torch.tensor([float(cell) for cell in cells])
    classes = sorted(set(cells))
    return torch.tensor([classes.index(cell) for cell in cells])


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numpy(path: Path) -> dict[str, Split]:
    try:
        arrays = _arrays(path)
    except (ValueError, OSError, zipfile.BadZipFile) as error:  # ValueError: objects, which could run code
        raise DataError(f"{path} cannot be read: {error}") from None
    for inputs, labels in ARRAYS:
        endings = {"train": "", "validation": "_validation", "test": "_test"}
        if f"{inputs}_train" in arrays:
            endings["train"] = "_train"
        splits = {
            split: split_of((arrays[f"{inputs}{ending}"], arrays[f"{labels}{ending}"]), f"{path}, {split}")
            for split, ending in endings.items()
            if f"{inputs}{ending}" in arrays and f"{labels}{ending}" in arrays
        }
        if "train" in splits:
            return splits
    raise DataError(
        f"{path} has the arrays {', '.join(arrays)}",
        "It needs inputs and labels, or x and y; or x_train, y_train, x_test and y_test.",
    )


def _arrays(path: Path) -> dict[str, Any]:
    """The arrays of an .npz file; of an .npy file the rows, whose last column is the label."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found}
    table = np.load(path, allow_pickle=False)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(f"its shape is {list(table.shape)}, expected rows of inputs and a label")
    labels = table[:, -1]
    is_class = bool(np.all(labels == np.floor(labels)))
    return {"inputs": table[:, :-1], "labels": labels.astype(np.int64) if is_class else labels}
