"""Slow workers as a part of the lab."""

from shoal_labs.optimise.part import Part
from shoal_labs.optimise.straggler import document
from shoal_labs.optimise.straggler.figures import figures
from shoal_labs.optimise.straggler.findings import find
from shoal_labs.optimise.straggler.measure import measure
from shoal_labs.optimise.straggler.plan import StragglerPlan, plan_for
from shoal_labs.optimise.straggler.tables import tables

STRAGGLER = Part(
    plan=plan_for,
    runs=StragglerPlan.runs,
    measure=measure,
    findings=find,
    figures=figures,
    tables=tables,
    principle=document.principle,
    code=document.code,
    set_up=document.set_up,
    results=document.results,
)
