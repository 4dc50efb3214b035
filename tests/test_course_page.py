"""docs/en/course.md: its function divides a data set, and printed programs fail as it says and run as mended."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import shoal

PAGE = (Path(__file__).parents[1] / "docs/en/course.md").read_text(encoding="utf-8")


def test_partition_dataset_gives_every_sample_to_one_worker():
    (block,) = (
        each
        for each in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
        if "def partition_dataset" in each
    )
    seen: list[int] = []
    for rank in range(3):
        dist = SimpleNamespace(get_rank=lambda rank=rank: rank, get_world_size=lambda: 3)
        names = {"shoal": shoal, "dist": dist, "DataLoader": DataLoader}
        exec(block, names)
        loader = names["partition_dataset"](TensorDataset(torch.arange(100)))
        assert loader.batch_size == 42
        seen += [int(sample) for (batch,) in loader for sample in batch]
    assert sorted(seen) == list(range(100))


def vector(x, y):
    (x * 2).backward()


def leaf(x, y):
    x.detach().backward(torch.ones(3))


def missing(x, y):
    nn.functional.add(x, y)  # pyright: ignore[reportAttributeAccessIssue]


MENDS = {
    vector: lambda x, y: (x * 2).sum().backward(),
    leaf: lambda x, y: (x + y).backward(torch.ones(3)),
    missing: lambda x, y: torch.add(x, y).backward(torch.ones(3)),
}


@pytest.mark.parametrize("program", MENDS)
def test_a_printed_program_fails_with_the_error_on_the_page_and_its_mend_runs(program):
    x, y = torch.tensor([1.0, 2.0, 3.0], requires_grad=True), torch.tensor([4.0, 5.0, 6.0])
    with pytest.raises((RuntimeError, AttributeError)) as failed:
        program(x, y)
    quoted = re.findall(r"`(\w+Error)(?:: ([^`]+))?`", PAGE)
    assert any(
        type(failed.value).__name__ == kind and (sentence or "") in str(failed.value)
        for kind, sentence in quoted
    )
    MENDS[program](x, y)
    assert x.grad is not None
