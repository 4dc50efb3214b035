"""Lab 1 as a spec for the frame: its settings and where each of its parts is."""

from typing import Any, cast

from shoal import data
from shoal.kit.base import ConfigError, unknown
from shoal.kit.settings import BuiltInDataConfig, from_tree
from shoal_labs.frame import LabSpec
from shoal_labs.lab1.claims import CLAIMS
from shoal_labs.lab1.content import content, tables
from shoal_labs.lab1.figures import figures
from shoal_labs.lab1.measure import measure
from shoal_labs.lab1.plan import DATA, FULL_VALIDATION, QUICK_SAMPLES, QUICK_VALIDATION, plan_for
from shoal_labs.settings import Lab1Settings


def data_config(settings: Lab1Settings) -> BuiltInDataConfig:
    """The data set as a run's settings name it."""
    if settings.data not in DATA:
        raise ConfigError(unknown("data set of this lab", settings.data, DATA))
    if settings.data_dir and settings.data == "digits":
        raise ConfigError(
            "--data-dir has no effect with --data digits, which are part of the package",
            f"Choose the data set in {settings.data_dir}: --data mnist or --data fashion-mnist.",
        )
    validation = QUICK_VALIDATION if settings.quick else FULL_VALIDATION
    options: dict[str, Any] = {"name": settings.data, "validation": validation}
    if settings.data_dir:
        options["dir"] = str(settings.data_dir)
    if settings.quick:
        options["samples"] = QUICK_SAMPLES
    return cast(BuiltInDataConfig, from_tree({"data": options}).data)


LAB = LabSpec(
    number="1",
    plan=lambda settings: plan_for(data_config(settings), settings.quick, settings.seed),
    subject=lambda plan: {"data": plan.data.name},
    check=lambda plan: data.load(plan.data),
    measure=measure,
    claims=CLAIMS,
    figures=figures,
    content=content,
    last_table="results",
    machine=lambda measured: {"device": str(measured.series["sgd"].runs[0].result["device"])},
    tables=tables,
)
