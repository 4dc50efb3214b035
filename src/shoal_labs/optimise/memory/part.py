"""Memory as a part of the lab."""

from shoal_labs.optimise.memory import document
from shoal_labs.optimise.memory.figures import figures
from shoal_labs.optimise.memory.findings import find
from shoal_labs.optimise.memory.measure import measure
from shoal_labs.optimise.memory.plan import plan_for
from shoal_labs.optimise.memory.tables import tables
from shoal_labs.optimise.part import Part

MEMORY = Part(
    plan=plan_for,
    takes_data=False,  # its transformer needs sequences
    measure=measure,
    findings=find,
    figures=figures,
    tables=tables,
    principle=document.principle,
    code=document.code,
    set_up=document.set_up,
    results=document.results,
)
