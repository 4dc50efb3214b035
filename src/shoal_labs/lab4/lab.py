"""Lab 4 as a spec for the frame: its settings and where each of its parts is."""

from dataclasses import dataclass

from shoal.data import load
from shoal_labs.frame import LabSpec
from shoal_labs.lab4 import document
from shoal_labs.lab4.figures import figures
from shoal_labs.lab4.findings import find
from shoal_labs.lab4.measure import measure
from shoal_labs.lab4.plan import Lab4Plan, plan_for
from shoal_labs.lab4.tables import tables
from shoal_labs.settings import WorkersSettings


@dataclass(frozen=True)
class Lab4Settings(WorkersSettings):
    """The settings of lab 4."""

    workers: int = 3
    """Workers among which the model is divided."""


LAB = LabSpec(
    number="4",
    settings=Lab4Settings,
    plan=lambda settings: plan_for(settings.workers, settings.quick, settings.seed),
    subject=lambda plan: {"workers": plan.workers},
    check=lambda plan: load(plan.data),
    runs=Lab4Plan.runs,
    measure=measure,
    findings=find,
    figures=figures,
    tables=tables,
    principle=document.principle,
    code=lambda _, page: document.code(page),
    set_up=document.set_up,
    results=document.results,
    closing=document.result_table,
)
