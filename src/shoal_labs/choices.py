"""What the user chooses of a lab's plan: the data set, the number of samples, the device."""

from dataclasses import fields, replace
from typing import Any, TypeVar

import torch

from shoal.kit.base import ConfigError, unknown
from shoal.kit.settings import DigitsConfig, FashionMnistConfig, MnistConfig
from shoal_labs.settings import LabSettings

Plan = TypeVar("Plan")

DATA: dict[str, type[DigitsConfig] | type[MnistConfig] | type[FashionMnistConfig]] = {
    "digits": DigitsConfig,
    "mnist": MnistConfig,
    "fashion-mnist": FashionMnistConfig,
}


def with_choices(plan: Plan, settings: LabSettings) -> Plan:
    """The plan with the user's data set, number of samples and device in place of its own."""
    known = {field.name for field in fields(plan)}  # pyright: ignore[reportArgumentType]
    changes: dict[str, Any] = {}
    device, data = settings.given("device"), settings.given("data")
    if device and "device" in known:
        if device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("--device cuda, but torch sees no GPU on this machine", "Use --device cpu.")
        changes["device"] = device
    own: Any = getattr(plan, "data", None)
    if (
        own is not None
        and data
        and (data != own.name or settings.given("data_dir") or settings.given("samples"))
    ):
        changes["data"] = _data(own, settings)
    return replace(plan, **changes) if changes else plan  # pyright: ignore[reportCallIssue, reportArgumentType, reportUnknownVariableType]


def _data(own: Any, settings: LabSettings) -> DigitsConfig | MnistConfig | FashionMnistConfig:
    """The user's data set: as many samples, and as large a part of them held out, as in the lab's own."""
    name, folder = settings.given("data"), settings.given("data_dir")
    if name not in DATA:
        raise ConfigError(unknown("data set of this lab", name, DATA))
    options: dict[str, Any] = {
        "samples": settings.given("samples") or own.samples,
        "validation": own.validation,
    }
    if folder:
        if name == "digits":
            raise ConfigError(
                "--data-dir has no effect with --data digits, which are part of the package",
                f"Choose the data set in {folder}: --data mnist or --data fashion-mnist.",
            )
        options["dir"] = str(folder)
    return DATA[name](**options)


def device_fact(device: str) -> dict[str, str]:
    """The device for the report's table of the machine; nothing for the CPU, which the table names anyway."""
    return {"device": torch.cuda.get_device_name()} if device == "cuda" else {}
