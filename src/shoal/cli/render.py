"""`shoal render`: files that start a run elsewhere: docker compose, Slurm, Kubernetes, and an image for them."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

from shoal.cli import text
from shoal.cli.command import Command, CommandGroup, Given
from shoal.config.flags import Flags
from shoal.config.kinds import AtLeast, AtMost, Matching
from shoal.config.sections.values import Count
from shoal.errors import ConfigError
from shoal.launch.rendered import kinds
from shoal.launch.rendered.quoting import checked

Nodes = Annotated[int, AtLeast(1), AtMost(999)]
WorkerPort = Annotated[int, AtLeast(1), AtMost(65535)]
Image = Annotated[str, Matching(r"[a-z0-9][\w./:@-]*", "registry/name:tag", "IMAGE")]
Url = Annotated[str, Matching(r"https?://[^\s'\"\\$`;&|<>()]+", "https://host/path", "URL")]
Name = Annotated[str, Matching(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", "letters, digits and inner dashes")]
ClusterName = Annotated[str, Matching(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", "small letters, digits and dashes")]
Time = Annotated[str, Matching(r"(\d+-)?\d+(:\d\d){0,2}", "hours:minutes:seconds", "HH:MM:SS")]
PYTHON_IMAGE, COURSE_IMAGE, OWN_IMAGE = "python:3.11-slim", "pytorch/pytorch:latest", "shoal"
TORCH_FOR_CPU = "https://download.pytorch.org/whl/cpu"
PLACE = ("rank", "world_size", "master", "master_addr", "master_port")
"""The flags of `shoal train` that give one worker its place."""


@dataclass(frozen=True, kw_only=True)
class RenderFlags(Flags):
    """Where the text goes, and whether there are GPUs."""

    ALIASES: ClassVar = {"output": ("-o",)}

    output: Path | None = None
    """Write to this file, which must not exist; otherwise to standard output."""
    gpu: bool = False
    """For NVIDIA GPUs: one for each worker."""


@dataclass(frozen=True, kw_only=True)
class DockerfileFlags(RenderFlags):
    """Where the image gets its parts."""

    image_base: Image = PYTHON_IMAGE
    """Image to start from; a mirror's name goes before it: MIRROR/library/python:3.11-slim."""
    pip_index: Url | None = None
    """Index of Python packages in the place of PyPI: a mirror."""
    torch_index: Url | None = None
    """Index with builds of torch (without --gpu, by default those for the CPU of download.pytorch.org)."""


@dataclass(frozen=True, kw_only=True)
class NodesFlags(RenderFlags):
    """How many nodes."""

    nodes: Nodes
    """Number of nodes: machines, containers or pods."""


@dataclass(frozen=True, kw_only=True)
class ComposeFlags(NodesFlags):
    """The containers."""

    image: Image | None = None
    """Image of the containers (default shoal, with --course pytorch/pytorch:latest)."""
    port: WorkerPort = kinds.COURSE_PORT
    """Port of rank 0, at which the workers meet."""
    course: bool = False
    """COMMAND is a script of the course: each node gets --n_devices, --rank, --master_addr and --master_port."""


@dataclass(frozen=True, kw_only=True)
class SlurmFlags(NodesFlags):
    """The job."""

    workers: Count = 1
    """Workers of each node."""
    cores: Count = 1
    """CPU cores of each worker."""
    name: Name = "shoal"
    """Name of the job."""
    time: Time = "01:00:00"
    """Time limit of the job."""


@dataclass(frozen=True, kw_only=True)
class KubernetesFlags(NodesFlags):
    """The Job."""

    image: Image
    """Image of the pods, under a name from which the cluster can pull it."""
    port: WorkerPort = 29500
    """Port of rank 0, at which the workers meet."""
    name: Name = "shoal"
    """Name of the Job, its Service and its Secret."""
    claim: ClusterName = "shoal"
    """PersistentVolumeClaim of the folder in which the workers run; all of them write to it."""


def _dockerfile(given: Given[DockerfileFlags]) -> int:
    """Print a Dockerfile that makes an image with shoal from a checkout of it.

    Start with:  shoal render dockerfile --output Dockerfile
    """
    flags = given.flags
    torch_index = flags.torch_index or (None if flags.gpu else TORCH_FOR_CPU)
    file = _file(flags, "Dockerfile")
    return _put(flags, kinds.dockerfile(file, flags.image_base, flags.gpu, flags.pip_index, torch_index))


def _compose(given: Given[ComposeFlags]) -> int:
    """Print a compose.yml with one worker in each of the services node01, node02, …

    COMMAND is `shoal train …` or a program of your own, which finds its place by `shoal.join()`, torch's `env://` or,
    with --course, by the flags of the course's scripts. The containers see the folder of the file as /workspace.

        shoal render compose --nodes 2 --output compose.yml shoal train quickstart --strategy ddp
        shoal render compose --nodes 3 --course --output docker-compose.yml model.py
    """
    flags, command = given.flags, _command(given.words, given.flags.nodes)
    if flags.course and command[0] == "shoal":
        raise ConfigError(
            "--course is for the course's scripts, and the command is shoal", "Leave out --course."
        )
    image = flags.image or (COURSE_IMAGE if flags.course else OWN_IMAGE)
    return _put(flags, kinds.compose(command, flags.nodes, image, flags.port, flags.gpu, flags.course))


def _slurm(given: Given[SlurmFlags]) -> int:
    """Print a script for sbatch, in which srun starts the workers of all nodes.

    COMMAND is `shoal train …` or a program of your own that calls `shoal.join()`.

        shoal render slurm --nodes 2 --workers 4 --output job.sbatch shoal train quickstart --strategy ddp
    """
    flags = given.flags
    command, file = _command(given.words, flags.nodes * flags.workers), _file(flags, "job.sbatch")
    job = (flags.nodes, flags.workers, flags.cores, flags.gpu, flags.name, flags.time, file)
    return _put(flags, kinds.slurm(command, *job))


def _kubernetes(given: Given[KubernetesFlags]) -> int:
    """Print an Indexed Job with one worker in each pod, and the headless Service that gives the pods names.

    COMMAND is `shoal train …` or a program of your own, which finds its place by `shoal.join()` or torch's `env://`.

        shoal render kubernetes --nodes 4 --image REGISTRY/shoal --output job.yml shoal train quickstart --strategy ddp
    """
    flags = given.flags
    command, file = _command(given.words, flags.nodes), _file(flags, "job.yml")
    job = (flags.nodes, flags.image, flags.port, flags.gpu, flags.name, flags.claim, file)
    return _put(flags, kinds.kubernetes(command, *job))


def _command(words: Sequence[str], workers: int) -> Sequence[str]:
    """The command of a worker; settings of `shoal train` are checked here, and not when the cluster starts it."""
    command = checked(words)
    if command[0].endswith(".py"):
        return ["python", "-u", *command]  # -u: what it prints is seen at once
    if command[:2] == ["shoal", "train"]:
        _check_training(command[2:], workers)
    return command


def _check_training(words: Sequence[str], workers: int) -> None:
    from shoal.cli.train import COMMAND
    from shoal.config.read import path_of, read

    training = COMMAND.parse(words)
    if training is None:
        raise ConfigError("`shoal train --help` trains nothing", "Leave out --help.")
    given = [name for name in PLACE if getattr(training.flags, name) is not None]
    given += [flag for flag in training.settings if path_of(flag.partition("=")[0]) == "launch.workers"]
    if given:
        name = given[0].partition("=")[0].lstrip("-").replace("_", "-")
        raise ConfigError(
            f"--{name} has no place in the command: the file says which worker is which",
            f"Leave it out: there are {workers} workers, which the flags before the command decide.",
        )
    recipe = training.words[0] if training.words else None
    if training.flags.resume is None:
        servers = read(recipe, training.settings).num_servers
        read(recipe, [*training.settings, f"--workers={workers - servers}"])


def _file(flags: RenderFlags, default: str) -> str:
    """The file's name in the comments that say how to use it."""
    return shlex.quote(checked([flags.output.name])[0]) if flags.output else default


def _put(flags: RenderFlags, content: str) -> int:
    if flags.output is None:
        text.show(content.rstrip())
    else:
        text.write_new_file(flags.output, content)
        text.show(f"wrote {flags.output}; its first lines say how to use it")
    return 0


WORDS = "COMMAND …"
COMMAND = CommandGroup(
    "render",
    "Print a file that starts a run elsewhere: docker compose, Slurm, Kubernetes, or an image for them.",
    {
        "compose": Command("render compose", _compose, ComposeFlags, words=WORDS, stop_at_word=True),
        "slurm": Command("render slurm", _slurm, SlurmFlags, words=WORDS, stop_at_word=True),
        "kubernetes": Command(
            "render kubernetes", _kubernetes, KubernetesFlags, words=WORDS, stop_at_word=True
        ),
        "dockerfile": Command("render dockerfile", _dockerfile, DockerfileFlags),
    },
    kind="kind",
)
