"""Pictures of codecs and robust rules at work: the function of a run, applied to a few numbers."""

import torch
from torch import Tensor

from shoal.codecs.build import build_codec
from shoal.codecs.codec import Form
from shoal.config.sections.compression import CompressedConfig
from shoal.explain.picture import Block, Picture
from shoal.strategies.exchange.rules import ROBUST, mean

ROWS, COLUMNS, SEED = 8, 5, 23
WIDTH = 6
"""Characters of a number."""


def codec_at_work(name: str) -> Picture:
    """A small gradient, and what another worker decodes of it."""
    x = 0.3 * torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(SEED))
    form = Form.of(x)
    codec = build_codec(CompressedConfig(codec=name).encoding_of("weight")).fitted(form)
    decoded = codec.decode(codec.encode(x, 1, codec.new_memory(form, 1)), form, 1)
    wide = COLUMNS * WIDTH
    heads: list[Block] = [
        ("", wide, f"{'gradient':<{wide}}"),
        ("", 4, ""),
        ("", wide, f"{'decoded':<{wide}}"),
    ]
    rows = [
        (f"row {number}", [*_numbers(given), ("", 4, ""), *_numbers(found, found != 0)])
        for number, (given, found) in enumerate(zip(x, decoded, strict=True))
    ]
    title = f"A gradient of {form.numel * 4} bytes, sent in {codec.num_bytes(form)}"
    return Picture(title, [("", heads), *rows])


def rule_at_work(name: str) -> Picture:
    """Gradients of five workers, of which one is bad, and what the rule and the mean make of them."""
    rows = torch.tensor([1.0, -0.5, 0.2, 0.0]) + 0.1 * torch.randn(
        5, 4, generator=torch.Generator().manual_seed(2)
    )
    rows[1] *= -9
    chosen = ROBUST[name](rows, 1)
    lines: list[tuple[str, list[Block]]] = [
        (f"worker {rank}", _numbers(row, row == chosen) if rank != 1 else _numbers(row, row == row, "bad"))
        for rank, row in enumerate(rows)
    ]
    lines += [("", []), (name, _numbers(chosen, chosen == chosen)), ("mean", _numbers(mean(rows)))]
    return Picture("Gradients of five workers, of which worker 1 is bad", lines)


def _numbers(row: Tensor, marked: Tensor | None = None, look: str = "kept") -> list[Block]:
    marks = [False] * len(row) if marked is None else marked.tolist()
    return [
        (look if mark else "number", WIDTH, f"{value:.2f} " if value else "· ")
        for value, mark in zip(row.tolist(), marks, strict=True)
    ]
