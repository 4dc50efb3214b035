"""Which labs there are. Names only: a lab's own modules, and torch with them, are imported when it is used."""

from typing import NamedTuple

from shoal.kit.base import ConfigError, unknown


class Lab(NamedTuple):
    """A lab: its package, the line that `shoal lab` shows, and what it hands out."""

    package: str
    summary: str
    hand_out: tuple[str, ...] = ()
    """The student's files in the course's shape; the last part of each is its name in the lab's `solution` package."""
    data_folder: str = ""
    """Where the digits are laid beside them, for programs that use torch alone."""


LABS: dict[str, Lab] = {
    "1": Lab(
        "shoal_labs.lab1",
        "Gradient descent on one machine: GD, SGD and Adam on handwritten digits.",
        ("task1/pytorch/MyOptimizer.py", "task1/pytorch/model.py"),
        "task1/pytorch/data",
    ),
    "2": Lab(
        "shoal_labs.lab2",
        "Communication and aggregation: collectives, bottlenecks, a bad worker.",
        ("task2/dist_utils.py", "task2/model.py", "task2/model-mp.py", "task2/docker-compose.yml"),
        "task2/data",
    ),
    "3": Lab(
        "shoal_labs.lab3",
        "Data parallelism: every division of the data against one machine, and two wrong samplers.",
        ("task3/sampler.py", "task3/dist_utils.py", "task3/model.py", "task3/check_sampler.py"),
        "task3/data",
    ),
    "4": Lab(
        "shoal_labs.lab4",
        "Model parallelism: RPC, every pipeline schedule and tensor parallelism against one machine.",
        ("task4/dist_utils.py", "task4/model.py", "task4/docker-compose.yml"),
        "task4/data",
    ),
    "autograd": Lab(
        "shoal_labs.autograd",
        "Automatic differentiation: a tape, a static graph, and what each of them costs.",
        ("taskautograd/tape.py",),
    ),
    "optimise": Lab(
        "shoal_labs.optimise",
        "Optimisation: gradient compression by link, slow workers, pruning, memory; gains and costs of each.",
    ),
}


def lab_of(number: str) -> Lab:
    """The lab of a number or a name."""
    if number not in LABS:
        raise ConfigError(unknown("lab", number, LABS), "`shoal lab` lists the labs.")
    return LABS[number]
