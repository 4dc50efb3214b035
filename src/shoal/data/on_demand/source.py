"""What samples are read from: one object for each split, in the worker and in the processes of its loaders."""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

from shoal.data.dataset import Draw


class Source(ABC):
    """Samples by number, from 0; `read` makes tensors of them."""

    name: str
    """In errors."""
    is_stream = False
    """Whether samples can only be read forward."""
    labels: Tensor | None = None
    """The label of every sample, where it is known without reading them."""
    outputs: int | None = None
    """The number of classes or the size of the vocabulary, where it is known."""
    signature = ""
    """Differs between sources whose files differ in name or size."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of samples."""

    @abstractmethod
    def sample(self, number: int, draw: Draw) -> Any:
        """One pair (input, label)."""

    def place(self, number: int) -> str:
        """Where a sample lies, for errors: a file; empty where that is not known."""
        return ""
