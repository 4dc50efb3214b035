"""`--reduction invariant` among real processes: every model, optimizer and strategy with one machine's bits."""

from itertools import product

import invariant_programs
import pytest
from group_worlds import World

COMMON = "--reduction invariant --micro-batch 4 --batch-size 24 --steps 3 --train.test false"
IMAGES = "--data synthetic --data.samples 60 --data.shape 1,28,28"
MODELS = {
    "mlp": f"{IMAGES} --model mlp --model.hidden 300,50",
    "lenet": f"{IMAGES} --model lenet",
    "resnet18": f"{IMAGES} --model resnet18 --model.norm group --model.width 8",
    "transformer": "--data synthetic --data.task text --data.samples 60 --data.shape 16 --model transformer",
}
"""A batch has 6 leaves, and the last of an epoch 3: 60 samples are 24, 24 and 12."""
OPTIMIZERS = {
    "sgd": "--optimizer sgd --momentum 0.9 --clip-norm 0.5",
    "adam": "--optimizer adam",
    "adamw": "--optimizer adamw --clip-norm 0.5",
}
STRATEGIES = {
    "ddp": "--strategy ddp",
    "onecopy": "--strategy onecopy",
    "zero 1": "--strategy zero --strategy.stage 1",
    "zero 2": "--strategy zero --strategy.stage 2 --strategy.unit_mib 0.05",
    "zero 3": "--strategy zero --strategy.stage 3 --strategy.unit_mib 0.05",
}
WORLDS = [("shm", 2), ("shm", 4), ("shm", 8), ("gloo", 2), ("gloo", 4)]


@pytest.fixture(scope="module")
def one_machine(tmp_path_factory):
    """The bits of `single`, by (model, optimizer)."""
    pairs = list(product(MODELS, OPTIMIZERS))
    runs = [f"{COMMON} {MODELS[model]} {OPTIMIZERS[optimizer]}" for model, optimizer in pairs]
    folder = str(tmp_path_factory.mktemp("one"))
    return dict(zip(pairs, invariant_programs.bits_of_runs(None, runs, folder), strict=True))


@pytest.mark.parametrize(("kind", "size"), WORLDS)
def test_same_bits_as_one_machine(tmp_path, one_machine, kind, size):
    shift = WORLDS.index((kind, size))
    everything = enumerate(MODELS), enumerate(OPTIMIZERS), enumerate(STRATEGIES)
    cases = [
        (model, optimizer, strategy)
        for (i, model), (j, optimizer), (k, strategy) in product(*everything)
        # In one world each strategy meets every model; in the others each strategy meets another one than before.
        if (i + k) % 3 == j
        and ((kind, size) == ("shm", 4) or (k + shift) % 4 == i)
        and (kind == "shm" or strategy != "onecopy")
    ]
    runs = [
        f"{COMMON} {MODELS[model]} {OPTIMIZERS[optimizer]} {STRATEGIES[strategy]}"
        for model, optimizer, strategy in cases
    ]
    with World(kind, size) as world:
        outcomes = world.run(invariant_programs.bits_of_runs, runs, str(tmp_path), timeout_s=280)
    assert [outcome.error for outcome in outcomes] == [None] * size, outcomes[0].message
    for outcome in outcomes:
        for case, found in zip(cases, outcome.value, strict=True):
            assert found == one_machine[case[:2]], case


def test_same_bits_after_a_stop_on_other_workers(tmp_path, one_machine):
    flags = f"{COMMON} {MODELS['lenet']} {OPTIMIZERS['adam']}"
    with World("shm", 4) as world:
        first = f"{flags} {STRATEGIES['zero 3']} --steps 1"
        outcomes = world.run(invariant_programs.bits_of_runs, [first], str(tmp_path))
    assert [outcome.error for outcome in outcomes] == [None] * 4, outcomes[0].message
    (stopped,) = tmp_path.iterdir()
    with World("gloo", 2) as world:
        second = f"{flags} {STRATEGIES['ddp']}"
        outcomes = world.run(invariant_programs.bits_of_resumed, second, str(stopped))
    assert [outcome.value for outcome in outcomes] == [one_machine["lenet", "adam"]] * 2
