"""Gradient compression as a part of the lab."""

from shoal_labs.optimise.compression import document
from shoal_labs.optimise.compression.figures import figures
from shoal_labs.optimise.compression.findings import find
from shoal_labs.optimise.compression.measure import measure
from shoal_labs.optimise.compression.plan import CompressionPlan, plan_for
from shoal_labs.optimise.compression.tables import tables
from shoal_labs.optimise.part import Part

COMPRESSION = Part(
    plan=plan_for,
    runs=CompressionPlan.runs,
    measure=measure,
    findings=find,
    figures=figures,
    tables=tables,
    principle=document.principle,
    code=document.code,
    set_up=document.set_up,
    results=document.results,
)
