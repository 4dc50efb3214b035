"""Gradients and optimizer state: a step after backward, inside it, with state in 8 bits; peak memory and time.

    python bench/memory_optimizer.py [--layers 20] [--width 1000] [--batch 32] [--rounds 11] [--json]

One thread, an mlp of 20 M parameters in layers of 1 M, Adam, the strategy `single` as a run builds it. Memory is what
the process has more at the peak of training than before the model was built, as the kernel counts it. With Ψ parameters
a plain step takes 16Ψ bytes, a step inside backward 12Ψ and one layer's gradient, with 8 bits 6Ψ and one layer's, with
bf16 parameters, too, 4Ψ.
"""

import gc
from collections.abc import Callable
from dataclasses import replace

import torch

from common import Target, interleave, options, report
from shoal.comm.alone import alone
from shoal.comm.traced import traced
from shoal.config.schema import RunConfig
from shoal.config.sections.data import SyntheticConfig
from shoal.config.sections.memory import MemoryConfig
from shoal.config.sections.model import MlpConfig
from shoal.config.sections.optimizer import AdamConfig
from shoal.config.sections.train import TrainConfig
from shoal.strategies.strategy import Share
from shoal.training.build import build
from shoal.training.memory.peak import PeakMemory, warm_up

PLAIN, INSIDE, IN_8_BITS, IN_BF16 = "plain Adam", "step in backward", "+ 8-bit state", "+ bf16 parameters"
SETTINGS = {
    PLAIN: MemoryConfig(),
    INSIDE: MemoryConfig(step_in_backward=True),
    IN_8_BITS: MemoryConfig(step_in_backward=True, state_bits=8),
    IN_BF16: MemoryConfig(step_in_backward=True, state_bits=8, parameters="bf16"),
}
MOST = {INSIDE: 0.85, IN_8_BITS: 0.45}
"""The part of plain Adam's peak that each may have."""
CPU = torch.device("cpu")


def run_of(layers: int, width: int, batch: int) -> RunConfig:
    """The run as it is without any technique."""
    return RunConfig(
        device="cpu",
        threads=1,
        data=SyntheticConfig(samples=max(64, batch), shape=(1, 10, width // 10)),
        model=MlpConfig(hidden=(width,) * layers),
        optimizer=AdamConfig(),
        train=TrainConfig(batch_size=batch),
    )


def step_of(config: RunConfig) -> Callable[[], None]:
    """One step of training, on the same samples every time."""
    run = build(config, CPU, traced(alone()))
    batch = run.data.batch(run.data.train, torch.arange(run.batch_size))

    def step() -> None:
        run.strategy.step(Share([batch], run.batch_size, run.batch_size), 1e-4)

    return step


def peak_of(config: RunConfig) -> int:
    """Bytes at the peak of three steps."""
    gc.collect()
    peak = PeakMemory(CPU)
    step = step_of(config)
    step()  # allocates the state
    peak.restart()  # forgets what building the model took for a moment
    for _ in range(2):
        step()
    return peak.read()


def memory(configs: dict[str, RunConfig], as_json: bool) -> bool:
    """Whether every peak is as low as promised."""
    peaks = {name: peak_of(config) for name, config in configs.items()}
    met = True
    for name, peak in peaks.items():
        part, most = peak / peaks[PLAIN], MOST.get(name)
        met = met and (most is None or part <= most)
        if not as_json:
            verdict = "      " if most is None else "met   " if part <= most else "MISSED"
            limit = "" if most is None else f" (at most {most})"
            print(f"{verdict}   {name}: {peak / 2**20:,.1f} MiB, {part:.3f} of plain Adam's{limit}")
    return met


def main() -> int:
    """Measure; 1 when a target is missed."""
    parser = options("A step after backward, inside it, and with state in 8 bits.", rounds=11)
    parser.add_argument("--layers", type=int, default=20, help="hidden layers (default %(default)s)")
    parser.add_argument("--width", type=int, default=1000, help="width of each (default %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="samples of a step (default %(default)s)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    plain = run_of(args.layers, args.width, args.batch)
    warm_up(CPU)
    # Replaced one setting at a time: parameters in bf16 set the precision, too.
    configs = {name: replace(plain, memory=memory) for name, memory in SETTINGS.items()}
    met = memory(configs, args.json)
    of = {name: step_of(config) for name, config in configs.items()}
    title = f"a step of an mlp with {args.layers} layers of {args.width}², {args.batch} samples"
    targets = [Target(INSIDE, PLAIN, at_most=1.05)]
    return 0 if report(title, interleave(of, args.rounds), PLAIN, targets, args.json) and met else 1


if __name__ == "__main__":
    raise SystemExit(main())
