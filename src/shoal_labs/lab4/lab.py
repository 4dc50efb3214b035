"""Lab 4 as a spec for the frame: its settings and where each of its parts is."""

from shoal.kit.division import data_load as load
from shoal_labs.frame import LabSpec
from shoal_labs.lab4.claims import CLAIMS
from shoal_labs.lab4.content import content, tables
from shoal_labs.lab4.figures import figures
from shoal_labs.lab4.measure import measure
from shoal_labs.lab4.plan import Lab4Plan, plan_for

LAB = LabSpec(
    number="4",
    plan=lambda settings: plan_for(settings.workers, settings.quick, settings.seed),
    subject=lambda plan: {"workers": plan.workers},
    check=lambda plan: load(plan.data),
    runs=Lab4Plan.runs,
    measure=measure,
    claims=CLAIMS,
    figures=figures,
    content=content,
    last_table="comparison",
    tables=tables,
)
