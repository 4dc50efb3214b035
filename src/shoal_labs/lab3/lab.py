"""Lab 3 as a spec for the frame: its settings and where each of its parts is."""

from shoal_labs.choices import device_fact
from shoal_labs.frame import LabSpec
from shoal_labs.lab3.claims import CLAIMS
from shoal_labs.lab3.content import content, tables
from shoal_labs.lab3.figures import figures
from shoal_labs.lab3.loading_svg import loading_svg
from shoal_labs.lab3.measure import measure
from shoal_labs.lab3.plan import Lab3Plan, plan_for
from shoal_labs.lab3.seen import check_divisions
from shoal_labs.page.pictures import Svg

LAB = LabSpec(
    number="3",
    plan=lambda settings: plan_for(settings.workers, settings.quick, settings.seed),
    subject=lambda plan: {"workers": plan.workers},
    check=check_divisions,
    runs=Lab3Plan.runs,
    measure=measure,
    claims=CLAIMS,
    figures=figures,
    drawings={"loading": Svg(loading_svg)},
    content=content,
    last_table="training",
    machine=lambda measured: device_fact(measured.plan.device),
    tables=tables,
)
