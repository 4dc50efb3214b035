"""Half of the channels: the forward pass of lenet and resnet18 against the whole networks, one thread.

    python bench/prune.py [--batch 64] [--rounds 21] [--json]
    python bench/prune.py --accuracy [--seeds 0,1,2,3]     also: accuracy on the digits after one epoch of fine-tuning

`--accuracy` trains lenet with its default settings, and prunes it to a fifth of its weights and to half of its
channels, as `shoal prune` does. It takes a minute for each seed.
"""

import contextlib
import copy
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from common import Target, interleave, options, report
from shoal.cli.main import main as shoal
from shoal.config.sections.prune import ChannelsConfig
from shoal.models.lenet import lenet
from shoal.models.resnet18 import resnet18
from shoal.prune.channels.choose import choose_channels
from shoal.prune.channels.shrink import shrink

MOST_LOST = {"--sparsity 0.8": 0.005, "--structured --sparsity 0.5": 0.01}
"""The accuracy that each way of pruning may lose after one epoch of fine-tuning."""


def halved(model: nn.Module, inputs: Tensor) -> nn.Module:
    """The model with half of the channels of every layer, those along residual connections included."""
    smaller = copy.deepcopy(model)
    shrink(smaller, choose_channels(smaller, ChannelsConfig(sparsity=0.5)), inputs[:2])
    return smaller


def forward(model: nn.Module, inputs: Tensor) -> Callable[[], None]:
    """One forward pass in evaluation mode."""
    model.eval()

    def work() -> None:
        with torch.inference_mode():
            model(inputs)

    return work


def speed(batch: int, rounds: int, as_json: bool) -> bool:
    """Whether the halved networks are as fast as promised."""
    met = True
    for name, model, shape, at_least in (
        ("lenet", lenet(), (1, 28, 28), 1.4),
        ("resnet18", resnet18(), (3, 32, 32), 2.5),
    ):
        inputs = torch.randn(batch, *shape)
        cases = {name: forward(model, inputs), f"{name}, half": forward(halved(model, inputs), inputs)}
        repeats = 20 if name == "lenet" else 1
        several = {case: _repeated(work, repeats) for case, work in cases.items()}
        title = f"forward pass of {batch} samples, times {repeats}"
        targets = [Target(name, f"{name}, half", at_least=at_least)]
        met = report(title, interleave(several, rounds), name, targets, as_json) and met
    return met


def _repeated(work: Callable[[], None], times: int) -> Callable[[], None]:
    def several() -> None:
        for _ in range(times):
            work()

    return several


def accuracy(seed: int) -> bool:
    """Whether one epoch of fine-tuning recovers what pruning has lost."""
    met = True
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        where = ["--runs-dir", folder, "--name", base.name, "--seed", str(seed)]
        _run(["train", "--model", "lenet", "--threads", "1", "--json", *where])
        for flags, most in MOST_LOST.items():
            result = json.loads(_run(["prune", str(base), *flags.split(), "--threads", "1", "--json"]))
            before, pruned, tuned = (result[when]["accuracy"] for when in ("before", "pruned", "fine_tuned"))
            size, smaller = (result[when]["num_bytes"] for when in ("before", "pruned"))
            lost = before - tuned
            met = met and lost <= most
            print(
                f"{'met   ' if lost <= most else 'MISSED'}   seed {seed}: shoal prune {flags}: {before:.2%}, "
                f"pruned {pruned:.2%}, fine-tuned {tuned:.2%} (at most {most:.1%} lost); {size:,} → {smaller:,} bytes",
                flush=True,
            )
    return met


def _run(words: list[str]) -> str:
    """The last line that a command of shoal writes to standard output."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        if shoal(words) != 0:
            raise SystemExit(f"shoal {' '.join(words)} failed")
    return written.getvalue().splitlines()[-1]


def main() -> int:
    """Measure; 1 when a target is missed."""
    parser = options("Half of the channels against the whole network.", rounds=21)
    parser.add_argument(
        "--batch", type=int, default=64, help="samples of a forward pass (default %(default)s)"
    )
    parser.add_argument("--accuracy", action="store_true", help="also measure accuracy after fine-tuning")
    parser.add_argument(
        "--seeds", default="0", help="seeds of --accuracy, with commas between (default %(default)s)"
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = [speed(args.batch, args.rounds, args.json)]
    found += [accuracy(int(seed)) for seed in args.seeds.split(",") if args.accuracy]
    return 0 if all(found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
