"""Pruning as a part of the lab."""

from shoal_labs.optimise.part import Part
from shoal_labs.optimise.pruning import document
from shoal_labs.optimise.pruning.figures import figures
from shoal_labs.optimise.pruning.findings import find
from shoal_labs.optimise.pruning.measure import measure
from shoal_labs.optimise.pruning.plan import plan_for
from shoal_labs.optimise.pruning.tables import tables

PRUNING = Part(
    plan=plan_for,
    measure=measure,
    findings=find,
    figures=figures,
    tables=tables,
    principle=document.principle,
    code=document.code,
    set_up=document.set_up,
    results=document.results,
)
