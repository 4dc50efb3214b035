"""Activations of a 12-layer transformer: kept, recomputed, or in a file; memory and time of forward and backward.

    python bench/memory.py [--batch 16] [--rounds 11] [--json]

One thread. Memory is what the process has more at the peak of a pass than before it, as the kernel counts it:
activations and whatever operations need for a moment. Pages of files are not memory of the process.
"""

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch.nn import functional as F

from common import Target, interleave, options, report
from shoal.models.transformer import Transformer, transformer
from shoal.training.memory.checkpointing import checkpoint_blocks
from shoal.training.memory.offloading import OffloadedActivations
from shoal.training.memory.peak import PeakMemory

LAYERS, WIDTH, LENGTH = 12, 128, 128
PLAIN, RECOMPUTED, IN_FILE = "all kept", "checkpoint 1", "offload file"
MOST_LEFT = {RECOMPUTED: 0.35, IN_FILE: 0.2}
"""The part of the activations that may still be in memory."""
CPU = torch.device("cpu")


def network() -> Transformer:
    """The same one in every case."""
    torch.manual_seed(0)
    return transformer((LENGTH,), layers=LAYERS, width=WIDTH)


def cases(batch: int) -> dict[str, Callable[[], None]]:
    """Forward and backward, with activations kept in three ways."""
    text = torch.randint(256, (batch, LENGTH), generator=torch.Generator().manual_seed(1))
    plain, recomputed, offloaded = network(), network(), network()
    checkpoint_blocks(recomputed, 1)
    activations = OffloadedActivations("file", CPU, offloaded.parameters())

    def pass_of(model: Transformer, saving: Callable[[], object] = nullcontext) -> Callable[[], None]:
        def work() -> None:
            with saving():  # pyright: ignore[reportGeneralTypeIssues]
                loss = F.cross_entropy(model(text).flatten(0, 1), text.flatten())
            loss.backward()

        return work

    return {
        PLAIN: pass_of(plain),
        RECOMPUTED: pass_of(recomputed),
        IN_FILE: pass_of(offloaded, activations.saving),
    }


def peak_of(work: Callable[[], None]) -> int:
    """Bytes that a pass has more at its peak than before it; gradients are there already."""
    work()
    peak = PeakMemory(CPU)
    work()
    return peak.read()


def memory(of: dict[str, Callable[[], None]], as_json: bool) -> bool:
    """Whether as few activations are in memory as promised."""
    peaks = {name: peak_of(work) for name, work in of.items()}
    met = True
    for name, most in MOST_LEFT.items():
        left = peaks[name] / peaks[PLAIN]
        met = met and left <= most
        if not as_json:
            print(
                f"{'met   ' if left <= most else 'MISSED'}   {name}: {peaks[name] / 2**20:,.1f} MiB of "
                f"{peaks[PLAIN] / 2**20:,.1f} MiB, {left:.3f} (at most {most})"
            )
    return met


def main() -> int:
    """Measure; 1 when a target is missed."""
    parser = options("Activations kept, recomputed, or in a file.", rounds=11)
    parser.add_argument("--batch", type=int, default=16, help="texts of a pass (default %(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    of = cases(args.batch)
    met = memory(of, args.json)
    title = f"forward and backward, transformer of {LAYERS} layers, {args.batch} texts of {LENGTH}"
    targets = [Target(RECOMPUTED, PLAIN, at_most=1.4)]
    return 0 if report(title, interleave(of, args.rounds), PLAIN, targets, args.json) and met else 1


if __name__ == "__main__":
    raise SystemExit(main())
