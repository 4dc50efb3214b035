"""The files: an image, services of docker compose, a script for Slurm's sbatch, a Job of Kubernetes.

Every worker finds its place in its environment (`comm/rendezvous/jobs.py`): RANK, WORLD_SIZE and MASTER_ADDR, or
Slurm's variables. The course's scripts get theirs by flags.
"""

import os
import re
import shlex
from collections.abc import Sequence

from shoal.errors import ConfigError
from shoal.launch.rendered.quoting import checked, filled, yaml_list, yaml_word

COURSE_PORT = 12378
"""The port in the course's hand-out."""
LONGEST_NAME = 63
"""Characters of a label in DNS, which the name of a pod is."""


def dockerfile(file: str, base: str, gpu: bool, pip_index: str | None, torch_index: str | None) -> str:
    """An image with shoal, made in a checkout of it; with torch for the CPU if `torch_index` has such builds."""
    given = {"--index-url": pip_index, "--extra-index-url": torch_index}
    options = " ".join(f"{flag} {url}" for flag, url in given.items() if url)
    return filled("Dockerfile", file=file, base=base, gpu=gpu, torch_index=torch_index, pip_options=options)


def compose(command: Sequence[str], nodes: int, image: str, port: int, gpu: bool, course: bool) -> str:
    """Services node01 … nodeN, each one worker in a container of its own, which see this folder as /workspace.

    With `course`, the command gets the flags of the course's scripts, and no variable; else the variables of torchrun
    and the file of a secret, which must belong to the user that the containers run as: the one that renders.
    """
    services = ""
    for rank in range(nodes):
        words = checked(command)
        if course:
            flags = {"n_devices": nodes, "rank": rank} | ({"gpu": 0} if gpu else {})
            flags |= {"master_addr": "node01", "master_port": port}
            words += [f"--{name}={value}" for name, value in flags.items()]
        node = f"node{rank + 1:02}"
        values = {"node": node, "rank": rank, "first": rank == 0, "command": yaml_list(words)}
        services += filled("service.yml", **values, course=course, gpu=gpu) + "\n" * (rank < nodes - 1)
    return filled(
        "compose.yml",
        nodes=nodes,
        course=course,
        image=yaml_word(image),
        user=f"{os.getuid()}:{os.getgid()}",
        command=yaml_list(checked(command)),
        port=port,
        services=services.rstrip(),
    )


def slurm(
    command: Sequence[str], nodes: int, workers: int, cores: int, gpu: bool, name: str, time: str, file: str
) -> str:
    """A script for sbatch; srun starts the workers, which find their places in Slurm's variables."""
    words = shlex.join(checked(command))
    return filled(
        "job.sbatch",
        command=words, nodes=nodes, workers=workers, cores=cores, gpu=gpu, name=name, time=time, file=file,
    )  # fmt: skip


def kubernetes(
    command: Sequence[str], nodes: int, image: str, port: int, gpu: bool, name: str, claim: str, file: str
) -> str:
    """An Indexed Job with a pod for each worker, and the headless Service through which the pods have names."""
    last = f"{name}-{nodes - 1}"
    if not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name) or len(last) > LONGEST_NAME:
        raise ConfigError(
            f"--name '{name}' is no name for a Job of {nodes} pods",
            f"Use letters a to z, digits and inner dashes, a letter first, {LONGEST_NAME - len(last) + len(name)} at "
            "most: each pod gets a name in DNS.",
        )
    return filled(
        "job.yml",
        command=yaml_list(checked(command)), nodes=nodes, image=yaml_word(image), port=port, gpu=gpu, name=name,
        claim=claim, file=file,
    )  # fmt: skip
