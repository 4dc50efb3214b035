"""The lab on compression as a spec for the frame: its settings and where each of its parts is."""

from dataclasses import dataclass

from shoal import data
from shoal.labs.frame import LabSpec
from shoal.labs.optimise import document
from shoal.labs.optimise.figures import figures
from shoal.labs.optimise.findings import find
from shoal.labs.optimise.measure import measure
from shoal.labs.optimise.plan import Plan, plan_for
from shoal.labs.optimise.tables import tables
from shoal.labs.settings import LabSettings


@dataclass(frozen=True)
class OptimiseSettings(LabSettings):
    """The settings of the lab."""

    workers: int = 2

    @property
    def variant(self) -> str:
        """The number of workers."""
        return f"{self.workers}-workers"


LAB = LabSpec(
    number="optimise",
    settings=OptimiseSettings,
    plan=lambda settings: plan_for(settings.workers, settings.quick, settings.seed),
    subject=lambda plan: {"workers": plan.workers},
    check=lambda plan: data.load(plan.data),
    runs=Plan.runs,
    measure=measure,
    findings=find,
    figures=figures,
    tables=tables,
    principle=document.principle,
    code=document.code,
    set_up=document.set_up,
    results=document.results,
    closing=document.closing_table,
)
