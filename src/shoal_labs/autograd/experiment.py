"""Everything the lab measures, in the order of the report."""

from collections.abc import Mapping
from dataclasses import dataclass

from shoal_labs.autograd.caching import Caching, measure_caching
from shoal_labs.autograd.chains import Chain, measure_chains
from shoal_labs.autograd.course import Branch, Course, run_branch, run_course
from shoal_labs.autograd.networks import Network, measure_network
from shoal_labs.autograd.plan import NETWORKS, AutogradPlan
from shoal_labs.runs import Runs
from shoal_labs.timing.contest import one_thread


@dataclass(frozen=True)
class AutogradMeasurements:
    """All numbers of the report."""

    plan: AutogradPlan
    course: Course
    branch: Branch
    networks: Mapping[str, Network]
    caching: Caching
    chains: tuple[Chain, ...]


def measure_all(plan: AutogradPlan, runs: Runs) -> AutogradMeasurements:
    """Run every experiment, on one thread."""
    with one_thread():
        runs.say("progress.course")
        course, branch = run_course(plan.seed), run_branch()
        networks: dict[str, Network] = {}
        for name in NETWORKS:
            runs.say("progress.network", network=name, rounds=plan.rounds)
            found = networks[name] = measure_network(name, plan)
            runs.say("progress.step", dynamic=found.step.ms("dynamic"), static=found.step.ms("static"))
        runs.say("progress.caching")
        caching = measure_caching(plan)
        runs.say("progress.chains")
        return AutogradMeasurements(plan, course, branch, networks, caching, measure_chains(plan))
