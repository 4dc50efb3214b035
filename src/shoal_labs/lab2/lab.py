"""Lab 2 as a spec for the frame: its settings and where each of its parts is."""

from shoal import data
from shoal_labs.choices import device_fact
from shoal_labs.frame import LabSpec
from shoal_labs.lab2.claims import CLAIMS
from shoal_labs.lab2.content import content, tables
from shoal_labs.lab2.figures import figures
from shoal_labs.lab2.measure import measure
from shoal_labs.lab2.plan import Lab2Plan, plan_for

LAB = LabSpec(
    number="2",
    plan=lambda settings: plan_for(settings.workers, settings.quick, settings.seed),
    subject=lambda plan: {"workers": plan.workers},
    check=lambda plan: data.load(plan.data),
    runs=Lab2Plan.runs,
    measure=measure,
    claims=CLAIMS,
    figures=figures,
    content=content,
    last_table="split",
    machine=lambda measured: device_fact(measured.plan.device),
    tables=tables,
)
