"""The mesh as text: `data=4,tensor=2` names the axes along which workers divide the work, and their sizes."""

import math
from collections.abc import Mapping
from itertools import product

from shoal.config.kinds import check
from shoal.config.sections.values import Count
from shoal.errors import ConfigError, unknown

AXES = ("data", "pipeline", "tensor")
"""The axes, slowest first: workers that differ only in the last one have neighbouring ranks."""

LAYOUT_AXES = AXES[1:]
"""The axes along which a layout of the same name divides the model; `data` divides batches."""


def parse_mesh(text: str, workers: int = 1) -> dict[str, int]:
    """The sizes of a mesh's axes, in the order of AXES; an axis that is not named has size 1 and is left out.

    One axis may be without a size: it takes the workers that the others leave.

    >>> parse_mesh("tensor=2,data=4"), parse_mesh("data=2,pipeline", workers=6)
    ({'data': 4, 'tensor': 2}, {'data': 2, 'pipeline': 3})
    """
    sizes: dict[str, int] = {}
    unsized = ""
    for item in text.split(","):
        axis, equals, size = (part.strip() for part in item.partition("="))
        if axis not in AXES:
            raise ConfigError(unknown("mesh axis", axis, AXES), "Write for example --mesh data=2,pipeline=2")
        if axis in sizes:
            raise ConfigError(f"--mesh {text}: the axis {axis} is given twice")
        if not equals and not unsized:
            unsized, size = axis, "1"
        if not (size.isascii() and size.isdecimal()) or len(size) > 9:
            raise ConfigError(f"--mesh {text[:40]}: expected {axis}=SIZE, got '{item.strip()[:40]}'")
        sizes[axis] = check(Count, int(size), f"the size of mesh axis {axis}")
    if unsized:
        sizes[unsized] = max(1, workers // math.prod(sizes.values()))
    return {axis: sizes[axis] for axis in AXES if axis in sizes}


def check_product(sizes: Mapping[str, int], workers: int) -> None:
    """Refuse a mesh whose sizes do not multiply to the number of workers.

    >>> check_product({"data": 3, "tensor": 2}, workers=4)
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: data (3) × tensor (2) = 6 workers, but there are 4
      Use --workers 6, or --mesh data=2,tensor=2.
    """
    product = math.prod(sizes.values())
    if product == workers:
        return
    factors = " × ".join(f"{axis} ({size})" for axis, size in sizes.items())
    others = math.prod(size for axis, size in sizes.items() if axis != "data")
    fix = ""
    if workers % others == 0:
        fitting = {**({"data": 1} if "data" not in sizes else {}), **sizes, "data": workers // others}
        fix = f", or --mesh {','.join(f'{axis}={fitting[axis]}' for axis in AXES if axis in fitting)}"
    raise ConfigError(
        f"{factors} = {product} workers, but there are {workers}", f"Use --workers {product}{fix}."
    )


def check_power_of_two(workers: int) -> None:
    """Refuse numbers of workers that do not divide the balanced binary tree of `--reduction invariant`."""
    if workers & (workers - 1):
        below = 1 << workers.bit_length() - 1
        raise ConfigError(
            f"--reduction invariant requires 1, 2, 4, 8, … workers, a power of two; you have {workers}",
            f"Use --workers {below} or {2 * below}.",
        )


def layout_of(sizes: Mapping[str, int]) -> str:
    """The name of the layout that a mesh needs: `whole` without an axis that divides the model."""
    return "+".join(axis for axis in LAYOUT_AXES if sizes.get(axis, 1) > 1) or "whole"


def check_divided(text: str, workers: int, is_started: bool = False) -> None:
    """Refuse a mesh with an axis that is to divide the model among the workers, of whom there is only one.

    Refuse `--mesh data`, too, which says nothing of one worker, unless that worker `is_started` already: by torchrun.

    >>> check_divided("pipeline", workers=1)
    Traceback (most recent call last):
        ...
    shoal.errors.ConfigError: pipeline divides the model among at least 2 workers, but there is 1
      Use --workers 2, or --strategy single.
    """
    if text.strip() == "data" and workers == 1 and not is_started:
        raise ConfigError(
            f"--mesh {text}: the axis has no size, and there is 1 worker",
            "Use --mesh data=2, or add --workers 2.",
        )
    sizes = parse_mesh(text, workers) if text else {}
    alone = [axis for axis in LAYOUT_AXES if sizes.get(axis) == 1]
    if alone and workers == 1:
        raise ConfigError(
            f"{' and '.join(alone)} divides the model among at least 2 workers, but there is 1",
            "Use --workers 2, or --strategy single.",
        )


def grid(sizes: Mapping[str, int]) -> list[str]:
    """The ranks of a mesh as the lines of a table; the last axis goes from left to right.

    >>> for line in grid({"data": 2, "pipeline": 3}):
    ...     print("|", line)
    |          pipeline 0  pipeline 1  pipeline 2
    | data 0   rank 0      rank 1      rank 2
    | data 1   rank 3      rank 4      rank 5
    """
    axes = [axis for axis, size in sizes.items() if size > 1] or list(sizes)[:1]
    *rows, last = axes
    width, columns = max(len(f"{last} {sizes[last]}"), 7) + 2, range(sizes[last])
    labels = [
        ", ".join(f"{axis} {at}" for axis, at in zip(rows, place, strict=True))
        for place in product(*(range(sizes[axis]) for axis in rows))
    ]
    margin = max(map(len, labels)) + 3 if rows else 0
    header = " " * margin + "".join(f"{last} {column}".ljust(width) for column in columns)
    lines = [header.rstrip()]
    for row, label in enumerate(labels):
        ranks = "".join(f"rank {row * len(columns) + column}".ljust(width) for column in columns)
        lines.append((label.ljust(margin) + ranks).rstrip())
    return lines
