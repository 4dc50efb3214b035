"""Memory of a model of 200 M parameters that no worker holds: `shoal.zero`, stage 3, from the meta device.

Four processes, one thread each. A transformer is built on the meta device, gets its values from a seed, and trains for
some steps with torch's AdamW, which is made afterwards. Each worker's peak, from the idle process that has loaded torch
to the last step, is compared with the formula of `shoal memory` for `zero`; the peak before the first step is shown.

    python bench/zero_meta.py [--layers 16] [--width 1024] [--workers 4] [--steps 3] [--json]
    python bench/zero_meta.py --group gloo --return-freed            units are gathered, as on several machines

Memory is what the kernel counts: anonymous pages, and shared ones divided among the workers that map them. It includes
what the C library keeps of freed memory; with `--return-freed` it keeps nothing, as with `--memory.return_freed`.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import shoal
from shoal.comm.shared_memory.arena import NUM_SLOTS, SLOT_BYTES
from shoal.config.sections.model import CrossEntropyConfig
from shoal.data.dataset import Batch
from shoal.launch import programs
from shoal.memory.formulas import components, total
from shoal.memory.sized_pass import activation_bytes, pass_peak
from shoal.models.transformer import transformer
from shoal.strategies.memory import Component, Sizes
from shoal.strategies.pieces.freed_memory import return_large_memory_at_once
from shoal.strategies.zero.settings import ZeroConfig
from shoal.strategies.zero.zero import with_units
from shoal.training.memory.peak import PeakMemory, warm_up

MOST = 1.15
"""A worker's peak over its formula, at most."""
LENGTH = 64
CPU = torch.device("cpu")


def network(layers: int, width: int) -> nn.Module:
    """Without memory."""
    with torch.device("meta"):
        return transformer((LENGTH,), layers=layers, width=width)


def formula(model: nn.Module, workers: int, maps_memory: bool) -> list[Component]:
    """What a worker needs, in the formulas of `shoal memory`. `model` has no memory."""
    params = dict(model.named_parameters())
    numel, largest = (
        sum(param.numel() for param in params.values()),
        max(param.nbytes for param in params.values()),
    )
    text = torch.zeros(1, LENGTH, dtype=torch.int64)
    batch, loss = Batch(text, text, 1), CrossEntropyConfig()
    activations, peak = activation_bytes(model, loss, batch), pass_peak(model, loss, batch)
    assert activations is not None
    assert peak is not None
    sizes = Sizes(
        num_params=numel,
        workers=workers,
        weights=4 * numel,
        state=8 * numel,
        largest=largest,
        maps_memory=maps_memory,
        slots=NUM_SLOTS * SLOT_BYTES if maps_memory else 0,
        activations=activations,
        working=max(0, peak - activations),
    )
    return components("zero", with_units(ZeroConfig(stage=3), sizes, model, params, 0))


def work(given: argparse.Namespace) -> None:
    """One worker: train, and write down its peaks."""
    torch.set_num_threads(1)
    if given.return_freed:
        return_large_memory_at_once()
    group = shoal.join(kind=given.group)
    warm_up(CPU)
    nn.Embedding(1, 1, device="meta")  # for which torch imports its compiler
    found = formula(network(given.layers, given.width), group.size, group.maps_memory)
    meter = PeakMemory(CPU)
    model = network(given.layers, given.width)
    shoal.zero(model, seed=0, group=group)
    group.barrier().wait()
    drawn = meter.read()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for step in range(given.steps):
        text = torch.randint(
            256, (1, LENGTH), generator=torch.Generator().manual_seed(group.size * step + group.rank)
        )
        F.cross_entropy(model(text).flatten(0, 1), text.flatten()).backward()
        optimizer.step()
        optimizer.zero_grad()
    group.barrier().wait()
    row = {"rank": group.rank, "drawn": drawn, "peak": meter.read(), "formula": total(found)}
    row |= {"parameters": sum(param.numel() for param in model.parameters())}
    row |= {"components": {each.name: each.num_bytes for each in found}}
    (Path(given.folder) / f"{group.rank}.json").write_text(json.dumps(row))
    group.barrier().wait()


def shown(rows: list[dict[str, Any]], as_json: bool) -> bool:
    """Print the rows; whether all peaks are within the target."""
    met = True
    for row in rows:
        ratio = row["peak"] / row["formula"]
        met = met and ratio <= MOST
        if as_json:
            print(json.dumps(row | {"ratio": ratio}))
            continue
        mib = {name: row[name] / 2**20 for name in ("drawn", "peak", "formula")}
        verdict = "met   " if ratio <= MOST else "MISSED"
        print(
            f"{verdict}   rank {row['rank']}: {row['parameters'] / 1e6:.1f} M parameters, peak {mib['peak']:,.0f} MiB, "
            f"formula {mib['formula']:,.0f} MiB, {ratio:.3f} (at most {MOST}); "
            f"{mib['drawn']:,.0f} MiB before the first step"
        )
    if not as_json:
        parts = ", ".join(
            f"{name} {num_bytes / 2**20:,.0f}" for name, num_bytes in rows[0]["components"].items()
        )
        print(f"         formula in MiB: {parts}")
    return met


def main() -> int:
    """Measure; 1 when a target is missed."""
    parser = argparse.ArgumentParser(
        description="Memory of a model that no worker holds, under zero stage 3."
    )
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument(
        "--group", choices=["auto", "shm", "gloo"], default="auto", help="gloo: units are gathered"
    )
    parser.add_argument("--return-freed", action="store_true", help="the C library keeps no freed memory")
    parser.add_argument("--json", action="store_true", help="one line for each worker, for programs")
    parser.add_argument("--folder", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder:
        work(given)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        programs.by_processes(__file__, [*sys.argv[1:], "--folder", folder], given.workers)
        rows = [json.loads((Path(folder) / f"{rank}.json").read_text()) for rank in range(given.workers)]
    return 0 if shown(rows, given.json) else 1


if __name__ == "__main__":
    raise SystemExit(main())
