"""The autograd lab as a spec for the frame: where each of its parts is."""

from shoal_labs.autograd import document
from shoal_labs.autograd.experiment import measure_all
from shoal_labs.autograd.figures import figures
from shoal_labs.autograd.findings import find
from shoal_labs.autograd.plan import plan_for
from shoal_labs.autograd.tables import tables
from shoal_labs.frame import LabSpec
from shoal_labs.settings import LabSettings

LAB = LabSpec(
    number="autograd",
    settings=LabSettings,
    plan=lambda settings: plan_for(settings.quick, settings.seed),
    measure=measure_all,
    findings=find,
    figures=figures,
    tables=tables,
    principle=document.principle,
    code=lambda _, page: document.code(page),
    set_up=document.set_up,
    machine=lambda _: {"threads": "1"},
    results=document.results,
    closing=document.time_table,
)
