"""A flat file of token numbers, as nanoGPT writes it (train.bin, val.bin), or a text, whose bytes are tokens."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from shoal.data.dataset import BYTES, Draw
from shoal.data.on_demand.source import Source
from shoal.errors import DataError

AT_ONCE = 1 << 24
"""Tokens that are in memory while the largest one is searched for."""
TokenType = Literal["uint8", "uint16", "uint32"]


class Tokens(Source):
    """Sample i is the i-th window of `length` tokens; its labels are the tokens that follow each of them."""

    def __init__(self, name: str, file: Path, length: int, dtype: TokenType, outputs: int | None) -> None:
        self.name, self._length, self._file = name, length, file
        item = np.dtype(dtype).newbyteorder("<")
        size = file.stat().st_size
        if size % item.itemsize:
            raise DataError(
                f"{file} has {size:,} bytes, and tokens have {item.itemsize} each",
                "--data.dtype uint16 or uint32 says which they are; a file that is cut off must be copied again.",
            )
        if size // item.itemsize <= length:
            raise DataError(
                f"{file} has {size // item.itemsize:,} tokens, and one sample needs {length + 1:,}",
                "Use a smaller --data.block_size.",
            )
        self._tokens: NDArray[Any] = np.memmap(file, item, mode="r")
        self.outputs = outputs or 1 + max(
            int(self._tokens[start : start + AT_ONCE].max()) for start in range(0, len(self._tokens), AT_ONCE)
        )
        self.signature = f"{file.name} {size}"

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // self._length

    def sample(self, number: int, draw: Draw) -> Any:
        """The window and the window one token later."""
        start = number * self._length
        window = torch.from_numpy(self._tokens[start : start + self._length + 1].astype(np.int64))
        return window[:-1], window[1:]

    def place(self, number: int) -> str:
        """The file and the first token."""
        return f"{self._file.name}, token {number * self._length:,}"


def token_sources(
    path: Path, name: str, length: int, dtype: TokenType, outputs: int | None
) -> dict[str, Source]:
    """One file, or a folder with train.bin and test.bin; without test.bin, val.bin is the test set, as in nanoGPT.

    Files that end in .txt instead hold text.
    """
    ending = "txt" if path.suffix == ".txt" or (path / "train.txt").is_file() else "bin"
    if ending == "txt":
        dtype, outputs = "uint8", BYTES
    files = (
        {"train": path} if path.is_file() else {file.stem: file for file in sorted(path.glob(f"*.{ending}"))}
    )
    found = {key: files[key] for key in ("train", "validation", "test") if key in files}
    if "val" in files:
        found["validation" if "test" in files else "test"] = files["val"]
    if "train" not in found:
        raise DataError(f"{path} has the files {', '.join(map(str, files.values()))}, and no train.bin")
    sources = {key: Tokens(name, file, length, dtype, outputs) for key, file in found.items()}
    # All splits have one vocabulary.
    largest = max(source.outputs or 0 for source in sources.values())
    for source in sources.values():
        source.outputs = largest
    return {**sources}
