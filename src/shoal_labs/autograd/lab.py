"""The autograd lab as a spec for the frame: where each of its parts is."""

from shoal_labs.autograd.claims import CLAIMS
from shoal_labs.autograd.content import content, tables
from shoal_labs.autograd.experiment import measure_all
from shoal_labs.autograd.figures import figures
from shoal_labs.autograd.plan import plan_for
from shoal_labs.frame import LabSpec

LAB = LabSpec(
    number="autograd",
    plan=lambda settings: plan_for(settings.quick, settings.seed),
    measure=measure_all,
    claims=CLAIMS,
    figures=figures,
    content=content,
    last_table="time",
    machine=lambda _: {"threads": "1"},
    tables=tables,
)
