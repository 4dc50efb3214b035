"""What a worker sends in a step: counted in real runs of every strategy, beside its formula.

    python bench/sent.py [--workers 2,4] [--groups threads,shm,gloo] [--only zero] [--json]

Write W for the number of workers and n for the bytes of all parameters. Bytes are means over the workers, in units of
n. The messages in which workers agree on losses and on what goes on are counted, too, and are no part of a formula.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from shoal.codecs.build import CODECS, build_codec
from shoal.codecs.codec import Form, Linear
from shoal.comm.group import Group
from shoal.config.read import read
from shoal.config.schema import RunConfig
from shoal.config.sections.compression import CompressedConfig
from shoal.launch.run import launch_run
from shoal.models.mlp import mlp
from shoal.strategies.buckets.plan import MIB
from shoal.strategies.zero.units import cut
from shoal.training.observer import Silent
from shoal.training.result import Result
from shoal.training.stop import StopRequest
from shoal.training.worker import work

WIDTHS = (64, 512, 256, 128, 8)
"""Of the mlp, from its inputs to its outputs."""
BATCH, STEPS = 16, 4
FLAGS = (
    f"--data synthetic --data.samples {BATCH * STEPS} --data.shape 1,8,8 --data.classes {WIDTHS[-1]} --model mlp "
    f"--model.hidden {','.join(map(str, WIDTHS[1:-1]))} --batch-size {BATCH} --epochs 1 --device cpu --threads 1 "
    "--train.test false"
)
GROUPS = {
    "threads": "--launcher threads",
    "shm": "--launcher processes --group shm",
    "gloo": "--launcher processes --group gloo",
}
MAPPING = ("threads", "shm")
"""Groups whose members map each other's memory."""
LAYERS = [*pairwise(WIDTHS)]
N = 4 * sum(inputs * outputs + outputs for inputs, outputs in LAYERS)
LAST_LAYER = 4 * (WIDTHS[-2] + 1) * WIDTHS[-1]
AGREEING = 4096
"""Bytes of a step in which workers agree, at most."""


@dataclass(frozen=True)
class Case:
    """One strategy."""

    flags: str
    formula: str
    sent: Callable[[int], float]
    """The bytes of a worker in a step, of W."""
    groups: tuple[str, ...] = tuple(GROUPS)
    """On which it runs."""
    mapped: Callable[[int], float] = lambda workers: 0.0
    """The bytes that do not travel on a group that maps memory."""
    of_workers: Mapping[int, str] | None = None
    """More flags, by W."""
    padding: Callable[[int], float] = lambda workers: 0.0
    """Bytes that a formula leaves out, at most."""

    def config(self, workers: int, group: str, folder: str) -> RunConfig:
        """The settings of a run."""
        more = (self.of_workers or {}).get(workers, "")
        flags = f"{FLAGS} {self.flags} {more} {GROUPS[group]} --workers {workers} --runs-dir {folder}"
        return read(None, flags.split())

    def is_right(self, workers: int, bytes_of_step: float) -> bool:
        """Whether a worker sends as much as the formula says."""
        return 0 <= bytes_of_step - self.sent(workers) <= AGREEING + self.padding(workers)


def of_step(result: Result) -> tuple[float, float]:
    """What a worker sent in a step, and what of it did not travel."""
    return result.bytes_sent / result.steps, result.bytes_mapped / result.steps


def ring(workers: int) -> float:
    """An all-reduce of all parameters."""
    return 2 * (workers - 1) / workers * N


def batch(*widths: int) -> float:
    """Activations of a whole batch."""
    return 4 * BATCH * sum(widths)


def padding(unit_mib: float, times: int) -> Callable[[int], float]:
    """Of `zero`: units are cut into equal pieces of whole chunks, and sent so many times, the last unit twice."""
    model = mlp((1, 8, 8), WIDTHS[-1], WIDTHS[1:-1])
    params = dict(model.named_parameters())

    def more(workers: int) -> float:
        units = cut(model, params, workers, unit_mib * MIB)
        sizes = [4 * sum(shape.numel() for shape in unit.shapes.values()) for unit in units]
        pads = [4 * workers * unit.piece - size for unit, size in zip(units, sizes, strict=True)]
        return (workers - 1) / workers * (times * sum(pads) - (times - 2) * pads[-1])

    return more


def declared(codec: str) -> tuple[int, bool]:
    """The bytes of a worker's payloads, and whether an all-reduce sums them."""
    encoding = CompressedConfig(codec=codec).encoding_of("")  # pyright: ignore[reportArgumentType]
    forms = [Form(shape, torch.float32) for inputs, out in LAYERS for shape in ((out, inputs), (out,))]
    chosen = build_codec(encoding)
    total = sum(chosen.fitted(form).num_bytes(form) for form in forms)
    return total, isinstance(chosen, Linear)


def coded(codec: str) -> Case:
    """A codec: d bytes of payloads, gathered or, if they can be added, summed."""
    num_bytes, is_linear = declared(codec)
    flags = f"--strategy ddp --exchange compressed:{codec}"
    if is_linear:
        return Case(flags, "2(W−1)/W·d", lambda workers: ring(workers) / N * num_bytes)
    return Case(flags, "(W−1)·d", lambda workers: (workers - 1) * num_bytes)


ALL_REDUCE, SERVER = "2(W−1)/W·n", "n pushed + n pulled"
CUTS = {2: "--pipeline.cut fc3", 4: "--pipeline.cut fc2,fc3,fc4"}
STAGES = {2: "--strategy.cut fc3", 4: "--strategy.cut fc2,fc3"}
CASES = {
    "ddp": Case("--strategy ddp", ALL_REDUCE, ring),
    "naive": Case("--strategy naive", ALL_REDUCE, ring),
    "dp": Case(
        "--strategy dp",
        "(W−1)/W·(2n + (x + 2y)/W), x: inputs, y: outputs",
        lambda workers: ring(workers) * (1 + batch(WIDTHS[0], 2 * WIDTHS[-1]) / 2 / N / workers),
    ),
    "onecopy": Case("--strategy onecopy", ALL_REDUCE, ring, MAPPING, mapped=ring),
    "zero 1": Case("--strategy zero --strategy.stage 1", ALL_REDUCE, ring, padding=padding(8, 2)),
    "zero 2": Case("--strategy zero --strategy.stage 2", ALL_REDUCE, ring, padding=padding(8, 2)),
    "zero 3": Case(
        "--strategy zero --strategy.stage 3 --strategy.unit_mib 0.001",
        "(W−1)/W·(3n − u), u: the last unit",
        lambda workers: ring(workers) * (3 - LAST_LAYER / N) / 2,
        mapped=lambda workers: ring(workers) * (2 - LAST_LAYER / N) / 2,
        padding=padding(0.001, 3),
    ),
    "zero 3, one unit": Case(
        "--strategy zero --strategy.stage 3",
        "(W−1)/W·(3n − u), u = n",
        ring,
        mapped=lambda workers: ring(workers) / 2,
        padding=padding(8, 3),
    ),
    "local": Case(
        "--strategy local --strategy.every 2 --optimizer sgd",
        "2(W−1)/W·n / 2, every 2nd step",
        lambda workers: ring(workers) / 2,
    ),
    "local, adam": Case(
        "--strategy local --strategy.every 2",
        "2(W−1)/W·3n / 2: its moments, too",
        lambda workers: 3 * ring(workers) / 2,
    ),
    "server bsp": Case(
        "--strategy server --strategy.mode bsp", SERVER, lambda workers: 2 * N, mapped=lambda workers: 2 * N
    ),
    "server bsp, 2": Case(
        "--strategy server --strategy.mode bsp --strategy.servers 2",
        SERVER,
        lambda workers: 2 * N,
        mapped=lambda workers: 2 * N,
    ),
    "server ssp": Case(
        "--strategy server --strategy.mode ssp", SERVER, lambda workers: 2 * N, mapped=lambda workers: 2 * N
    ),
    "server asp": Case(
        "--strategy server --strategy.mode asp",
        "n pushed + n pulled, + n for the first weights",
        lambda workers: (2 + 1 / STEPS) * N,
        mapped=lambda workers: (2 + 1 / STEPS) * N,
    ),
    "server, int8": Case(
        "--strategy server --exchange compressed:int8",
        "d pushed + n pulled",
        lambda workers: declared("int8")[0] + N,
        mapped=lambda workers: N,
    ),
    "hogwild": Case(
        "--strategy server --strategy.mode hogwild",
        SERVER,
        lambda workers: 2 * N,
        MAPPING,
        mapped=lambda workers: 2 * N,
    ),
    "pipeline": Case(
        "--strategy pipeline",
        "2a / W, a: activations at the cuts",
        lambda workers: 2 * batch(*(WIDTHS[1:4] if workers == 4 else WIDTHS[2:3])) / workers,
        of_workers=CUTS,
    ),
    "tensor": Case(
        "--strategy tensor",
        "2(W−1)/W·a, a: activations between pairs of layers, there and back",
        lambda workers: ring(workers) / N * batch(2 * WIDTHS[2], WIDTHS[-1]),
    ),
    "rpc": Case(
        "--strategy rpc",
        "(x + 2a + 2y) / W; no x for 2 workers: rank 0 has layers",
        lambda workers: (
            batch(2 * WIDTHS[2] + (WIDTHS[0] + 2 * WIDTHS[1]) * (workers > 2), 2 * WIDTHS[-1]) / workers
        ),
        ("shm", "gloo"),
        of_workers=STAGES,
    ),
    "by:ring": Case("--strategy ddp --exchange by:ring", ALL_REDUCE, ring),
    "by:central": Case("--strategy ddp --exchange by:central", ALL_REDUCE, ring),
    "by:all_gather_sum": Case(
        "--strategy ddp --exchange by:all_gather_sum", "(W−1)·n", lambda workers: (workers - 1) * N
    ),
    "robust:median": Case(
        "--strategy ddp --exchange robust:median --exchange.bad 0",
        "(W−1)·n",
        lambda workers: (workers - 1) * N,
    ),
    **{codec: coded(codec) for codec in CODECS if codec not in ("none", "threshold", "average")},
}
"""Every strategy, and every codec whose bytes do not depend on the gradients."""


def trained(group: Group, name: str, workers: int, kind: str, folder: str) -> tuple[float, float]:
    """Train as a member of a group: the bytes of a worker in a step, and those that did not travel."""
    config = CASES[name].config(workers, kind, folder)
    return of_step(work(config, torch.device("cpu"), StopRequest(), Silent(), group))


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train every case, and compare."""
    for name, case in CASES.items():
        if args.only and args.only not in name:
            continue
        for workers in map(int, args.workers.split(",")):
            for group in [group for group in args.groups.split(",") if group in case.groups]:
                with tempfile.TemporaryDirectory() as folder:
                    result = launch_run(case.config(workers, group, folder), Silent())
                sent, mapped = of_step(result)
                yield {
                    "strategy": name,
                    "workers": workers,
                    "group": group,
                    "sent": sent,
                    "mapped": mapped,
                    "formula": case.formula,
                    "expected": case.sent(workers),
                    "right": case.is_right(workers, sent),
                }


def main() -> int:
    """Print the table, or a line of JSON for each row; 1 if any row differs from its formula."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", default="2,4")
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--only", default="", help="strategies whose name contains this text")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not args.json:
        print(f"n = {N:,} bytes; a batch has {BATCH} samples\n")
        print(f"{'strategy':18} {'W':>2} {'group':7} {'sent/n':>8} {'mapped':>7} {'formula/n':>9}  formula")
    wrong = 0
    for row in rows(args):
        wrong += not row["right"]
        if args.json:
            print(json.dumps(row), flush=True)
            continue
        sent, mapped, expected = (row[key] / N for key in ("sent", "mapped", "expected"))
        print(
            f"{row['strategy']:18} {row['workers']:>2} {row['group']:7} {sent:8.4f} {mapped:7.3f} {expected:9.4f}  "
            f"{row['formula']}{'' if row['right'] else '  ✗'}",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
