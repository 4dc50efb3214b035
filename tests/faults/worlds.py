"""How the runs of trials are started: by which launcher, strategy and group, with how many workers."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

EPOCHS, SAMPLES, BATCH = 6, 100, 32
STEPS = EPOCHS * -(-SAMPLES // BATCH)
DATA = (
    f"--data synthetic --data.samples {SAMPLES} --data.shape 1,4,4 --data.classes 3 --batch-size {BATCH} "
    f"--epochs {EPOCHS} --threads 1 --device cpu "
)
SMALL = (DATA + "--checkpoint-every 3 --model misbehaving:net").split()
PLAN = Path(__file__).with_name("tensor_plan.toml")
FORKS = "import shoal.launch.run as run\nrun.LAUNCHERS['processes'] = run.training.by_forks"
"""Before a command: its worker processes are copies of it, which have loaded torch already."""


@dataclass(frozen=True)
class World:
    """A run of whole copies of `misbehaving:net`."""

    launcher: str
    strategy: str
    group: str
    workers: int
    is_exact: bool = True
    """Whether two runs have the same weights."""
    logs_every_step: bool = True
    """Whether rank 0 has an event for every step."""

    settings: ClassVar = SMALL
    steps: ClassVar = STEPS
    samples: ClassVar = EPOCHS * SAMPLES
    """Of all epochs."""
    before: ClassVar = ""
    """Python that the command runs first."""

    def __str__(self):
        group = f" over {self.group}" if self.launcher in ("processes", "forks", "hand") else ""
        return f"{self.strategy}, {self.workers} × {self.launcher}{group}"

    @property
    def size(self):
        """All processes or threads, also those that do not train."""
        return self.workers

    @property
    def words(self):
        if self.launcher == "single":
            return ["--strategy", "single"]
        words = ["--strategy", self.strategy]
        if self.launcher == "hand":
            return [*words, "--group", self.group]
        words += ["--workers", str(self.workers), "--launcher", self.launcher]
        return words + (["--group", self.group] if self.launcher == "processes" else [])

    @property
    def undisturbed(self):
        """How the same run is made without a fault: as threads, which give the same bits as processes."""
        launcher = "single" if self.strategy == "single" else "threads"
        return World(launcher, self.strategy, "", self.workers)

    @property
    def resumed(self):
        """(flags, Python to run first) of the command that resumes the run."""
        return ([] if self.launcher == "single" else ["--launcher", "threads"]), ""


def draw_world(chance, *launchers, strategies=("naive", "ddp", "dp", "zero", "onecopy")):
    launcher = chance.choice(launchers)
    if launcher == "single":
        return World("single", "single", "", 1)
    strategy = chance.choice(strategies)
    # One copy of the weights needs shared memory.
    group = "shm" if strategy == "onecopy" else chance.choice(["shm", "gloo"])
    # Gloo sums three workers in an order of its own: other bits than threads.
    more = chance.choice([2, 2, 3])
    workers = more if launcher == "threads" or (launcher, group) == ("hand", "shm") else 2
    return World(launcher, strategy, group, workers)


HELD_OUT = 20
"""Samples of the validation set: each epoch ends with an evaluation."""


@dataclass(frozen=True)
class PlacedWorld(World):
    """A run of `misbehaving:blocks` by any strategy, whose fault has a place: a pass, a write, an evaluation."""

    options: str = ""
    """Further flags of the strategy."""
    servers: int = 0
    passes: int = 1
    """Forward passes of a worker in a step."""
    replicas: int = 0
    """Copies of the model; 0: one on each worker."""

    settings: ClassVar = (DATA + "--validation 0.2 --checkpoint-every 4 --model misbehaving:blocks").split()
    steps: ClassVar = EPOCHS * -(-(SAMPLES - HELD_OUT) // BATCH)
    samples: ClassVar = EPOCHS * (SAMPLES - HELD_OUT)

    def __str__(self):
        return f"{super().__str__()} {self.options}".rstrip()

    @property
    def before(self):
        return FORKS if self.launcher == "forks" else ""

    @property
    def size(self):
        return self.workers + self.servers

    @property
    def words(self):
        words = ["--strategy", self.strategy, *self.options.split()]
        if self.launcher != "hand":
            words += ["--launcher", "processes" if self.launcher == "forks" else self.launcher]
        if self.launcher != "hand" and "--mesh" not in words:
            words += ["--workers", str(self.workers)]
        return words + (["--group", self.group] if self.launcher != "threads" else [])

    @property
    def undisturbed(self):
        return replace(self, launcher="threads" if self.launcher == "threads" else "forks")

    @property
    def resumed(self):
        if self.launcher == "threads":
            return ["--launcher", "threads"], ""
        return ["--launcher", "processes"], FORKS

    @property
    def goes_on_without_a_worker(self):
        return "on_lost continue" in self.options

    def ranks_at(self, place):
        """The ranks that come to this place in every step, evaluation or save."""
        if place in ("building", "writing"):
            return range(self.size)
        if self.strategy == "rpc":  # with three workers or more, rank 0 has no layers
            return range(0 if self.workers == 2 else 1, self.workers)
        if place == "evaluation":  # the copies divide the batches, and there is one
            return range(self.workers // (self.replicas or self.workers))
        return range(self.workers)


CUTS = {2: "2", 3: "1,2", 4: "1,2,3"}


def _pipeline(chance, launcher, group):
    workers = chance.choice([2, 3, 4])
    schedule = chance.choice(["1f1b", "gpipe", "zero-bubble"])
    options = f"--pipeline.cut {CUTS[workers]} --pipeline.schedule {schedule}"
    return PlacedWorld(launcher, "pipeline", group, workers, options=options, passes=4, replicas=1)


def _mesh(chance, launcher, group):
    options = "--mesh data=2,pipeline=2 --pipeline.cut 2"
    strategy = chance.choice(["pipeline", "pipeline+zero"])
    return PlacedWorld(launcher, strategy, group, 4, options=options, passes=4, replicas=2)


def _tensor(chance, launcher, group):
    options = f"--tensor.plan {PLAN}"
    return PlacedWorld(launcher, "tensor", group, chance.choice([2, 4]), options=options, replicas=1)


def _zero(chance, launcher, group):
    options = f"--strategy.stage {chance.choice([1, 2, 3])}"
    return PlacedWorld(launcher, "zero", group, chance.choice([2, 3, 4]), options=options)


def _local(chance, launcher, group):
    options = "--strategy.every 5" + chance.choice(["", " --strategy.overlap 2"])
    return PlacedWorld(launcher, "local", group, chance.choice([2, 3]), options=options)


def _onecopy(chance, launcher, group):
    del group  # one copy of the weights needs shared memory
    return PlacedWorld(launcher, "onecopy", "shm", chance.choice([2, 3, 4]))


def _rpc(chance, launcher, group):
    launcher = "forks" if launcher == "threads" else launcher  # torch has one agent in each process
    return PlacedWorld(launcher, "rpc", group, chance.choice([2, 3, 4]))


def _server(chance, launcher, group):
    mode = chance.choice(["bsp", "ssp", "asp", "hogwild"])
    return PlacedWorld(
        launcher,
        "server",
        "shm" if mode == "hogwild" else group,
        chance.choice([2, 3]),
        options=f"--strategy.mode {mode}",
        servers=int(mode != "hogwild"),
        is_exact=mode == "bsp",
        logs_every_step=mode != "asp",
    )


def _server_that_goes_on(chance, launcher, group):
    del group
    return PlacedWorld(
        "forks" if launcher == "threads" else launcher,
        "server",
        "shm",
        chance.choice([2, 3]),
        options=f"--strategy.mode {chance.choice(['asp', 'ssp'])} --strategy.on_lost continue",
        servers=1,
        is_exact=False,
        logs_every_step=False,
    )


STRATEGIES = (
    _pipeline,
    _mesh,
    _tensor,
    _zero,
    _local,
    _onecopy,
    _rpc,
    _server,
    _server,
    _server_that_goes_on,
)


def draw_placed_world(chance, *launchers):
    """A strategy that divides a model, its state or the roles of its workers."""
    draw = chance.choice(STRATEGIES)
    return draw(chance, chance.choice(launchers), chance.choice(["shm", "gloo"]))
