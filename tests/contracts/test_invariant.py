"""With `--reduction invariant` no bit of the weights or the loss depends on the number of workers or the strategy."""

import functools
import tempfile
from pathlib import Path

import pytest
from invariant_cases import MLP, bits, run

from shoal.errors import ShoalError
from shoal.events.folder import RunFolder

STRATEGIES = {
    "naive": "--strategy naive",
    "ddp": "--strategy ddp",
    "onecopy": "--strategy onecopy",
    "zero 1": "--strategy zero --strategy.stage 1",
    "zero 2": "--strategy zero --strategy.stage 2",
    "zero 3": "--strategy zero --strategy.stage 3 --strategy.unit_mib 0.001",
}
ADAM = f"{MLP} --optimizer adam --clip-norm 0.05"
SGD = f"{MLP} --optimizer sgd --momentum 0.9 --weight-decay 0.01"
ADAMW = f"{MLP} --optimizer adamw"
OWN = "--model invariant_cases:Sometimes --optimizer adam"
CASES = [
    *(("ddp", workers, SGD) for workers in (2, 4, 8)),
    *((name, 4, ADAM) for name in STRATEGIES),
    ("zero 3", 8, ADAMW),
    # What only some micro-batches reach, and random numbers.
    *((name, 4, OWN) for name in ("naive", "ddp", "onecopy", "zero 2")),
]


@functools.cache
def one_machine(flags):
    with tempfile.TemporaryDirectory() as folder:
        return bits(run(folder, flags))


@pytest.mark.parametrize(("strategy", "workers", "flags"), CASES)
def test_same_bits_as_one_machine(tmp_path, strategy, workers, flags):
    unused = " --strategy.unused zero" * (flags == OWN and strategy != "naive")
    result = run(tmp_path, f"{flags} {STRATEGIES[strategy]}{unused} --workers {workers}")
    assert bits(result) == one_machine(flags)


def test_without_it_the_bits_differ(tmp_path):
    # Otherwise the tests here would show nothing.
    assert bits(run(tmp_path, f"{SGD} --workers 4 --strategy ddp --reduction fastest")) != one_machine(SGD)


def test_same_bits_after_a_stop_with_another_number_of_workers(tmp_path):
    # Two of the six steps: the next batch has 2 leaves, for 8 workers.
    part = run(tmp_path, f"{ADAM} {STRATEGIES['zero 3']} --workers 2 --steps 2")
    rest = run(tmp_path, f"{ADAM} {STRATEGIES['onecopy']} --workers 8", resumed=RunFolder(Path(part.run)))
    assert (rest.steps, bits(rest)) == (6, one_machine(ADAM))


@pytest.mark.parametrize("workers", [1, 2])
def test_running_statistics_are_refused(tmp_path, workers):
    flags = f"--model invariant_cases:Counting --workers {workers}" + " --strategy ddp" * (workers > 1)
    with pytest.raises(ShoalError, match="buffers that training changes: 'seen'") as caught:
        run(tmp_path, flags)
    assert caught.value.exit_code == 2
