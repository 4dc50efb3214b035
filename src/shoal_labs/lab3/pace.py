"""How fast every division was, from runs that took turns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from shoal.compare.comparison import ComparedRun, compare
from shoal.report.findings import Measured, inside_run
from shoal_labs.lab3.plan import ALL_CORES, BATCH_SIZE, ONE_CORE, Lab3Plan, timed_name
from shoal_labs.runs import Runs
from shoal_labs.timing.turns import round_name, train_in_turns


@dataclass(frozen=True)
class Pace:
    """How fast a run was, and where its time went."""

    rounds_ms: tuple[float, ...]
    """Milliseconds per sample of the median step, round by round."""
    against_all_cores: float
    """How many times as fast as one process on all cores."""
    against_one_core: float
    own: float
    """Parts of the time, means over the workers: own work (data, forward, backward, update, the loop itself)."""
    move: float
    wait: float

    @property
    def sample_ms(self) -> Measured:
        """Milliseconds per sample, over the rounds."""
        return inside_run(self.rounds_ms)

    @property
    def samples_per_s(self) -> float:
        """Of the median step."""
        return 1e3 / self.sample_ms.value

    @property
    def step_ms(self) -> Measured:
        """A whole step."""
        return self.sample_ms.scaled(BATCH_SIZE)

    @property
    def communication(self) -> float:
        """The part of the time in which a worker moved bytes or waited for others."""
        return self.move + self.wait


Paces = Mapping[str, Pace]
"""By division, or by one of the other ways that are timed."""


def timed_in_turns(plan: Lab3Plan, runs: Runs, workers: int) -> Paces:
    """Make the timed runs of one number of workers, and read them."""
    configs, rounds = plan.timed(workers), plan.rounds_of(workers)
    label, most = runs.words("progress.timed", workers=workers), plan.size.most * rounds
    rounds = train_in_turns(runs, configs, rounds, label, most=most)
    paths = [runs.path(round_name(name, number)) for name in configs for number in range(rounds)]
    entries = compare(paths).entries
    found = {name: entries[i * rounds : (i + 1) * rounds] for i, name in enumerate(configs)}
    times = {name: tuple(1e3 * each.sample_s.value for each in made) for name, made in found.items()}
    ways = {name: name.removeprefix("timed-").removesuffix(f"-{workers}w") for name in configs}
    alone = {cores: inside_run(times[timed_name(cores, workers)]).value for cores in (ALL_CORES, ONE_CORE)}
    return {way: _pace(times[name], found[name], alone) for name, way in ways.items()}


def _pace(rounds_ms: tuple[float, ...], made: Sequence[ComparedRun], alone: Mapping[str, float]) -> Pace:
    sample_ms = inside_run(rounds_ms).value
    shares = {part: fmean(each.shares[part] for each in made) for part in made[0].shares}
    return Pace(
        rounds_ms,
        alone[ALL_CORES] / sample_ms,
        alone[ONE_CORE] / sample_ms,
        shares["compute"] + shares["other"],
        shares["move"],
        shares["wait"],
    )
