"""A feature of a run: something that its settings may ask for, and that cannot be combined with everything.

Rows name the features that a strategy, a layout or another feature refuses. `features.py` lists all features,
`combinations.py` all rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from shoal.config.sections.values import Custom

Row = Mapping[str, str]
"""The features that something cannot be combined with, and why; an empty text if the names say it."""

Settings = Mapping[str, Any]
"""The settings of a run by their paths, its sections by their names, and the sizes of the mesh as `mesh.AXIS`.

What only data or functions of the user's own show stands there under the name of its feature."""


def settings_of(config: Any, axes: Mapping[str, int]) -> dict[str, Any]:
    """The settings of a run. A function of the user's own has no settings that we know."""
    found: dict[str, Any] = {f"mesh.{axis}": size for axis, size in axes.items()}
    for field in fields(config):
        value = found[field.name] = getattr(config, field.name)
        if isinstance(value, Custom):
            found[f"{field.name}.name"] = value.name
        elif is_dataclass(value):
            found |= {f"{field.name}.{each.name}": getattr(value, each.name) for each in fields(value)}
    return found


Asked = Callable[[Settings], str | bool]
"""Whether a run asks for a feature: yes or no, or the feature as the user wrote it."""


@dataclass(frozen=True)
class Feature:
    """Something that a run may ask for."""

    name: str
    """How tables call it."""
    path: str
    """The setting, or the section, that asks for it."""
    flags: str
    """An example: flags of a run that asks for it."""
    without: str
    """The fix, as a command to the user: how to do without it."""
    asked: Asked
    part_of: str = ""
    """A wider feature of which it is a case: what refuses that one refuses this one, too."""

    def shown(self, settings: Settings) -> str:
        """The feature as the user wrote it, such as `--clip-norm 1`; empty if the run does not ask for it."""
        asked = self.asked(settings)
        return asked if isinstance(asked, str) else self.name * asked


def given(
    flag: str, path: str, neutral: Any, example: str = "", base: str = "", part_of: str = ""
) -> Feature:
    """A setting that is given: it differs from its neutral value."""

    def asked(settings: Settings) -> str:
        value = settings.get(path, neutral)
        return "" if value == neutral else f"{flag} {text(value)}".strip()

    return Feature(flag, path, f"{base} {flag} {example}".strip(), f"leave {flag} out", asked, part_of)


def chosen(flag: str, path: str, value: Any, otherwise: Any, base: str = "", part_of: str = "") -> Feature:
    """One value of a setting, and another to use instead."""
    name = f"{flag} {value}"
    return Feature(
        name,
        path,
        f"{base} {name}".strip(),
        f"use {flag} {otherwise}",
        lambda settings: settings.get(path) == value,
        part_of,
    )


def text(value: Any) -> str:
    """A value as the user writes it; the flag alone says true."""
    if isinstance(value, bool):
        return ""
    if isinstance(value, tuple):
        return ",".join(map(str, value))  # pyright: ignore[reportUnknownArgumentType]
    return f"{value:g}" if isinstance(value, float) else str(value)


def refused(*features: str, why: str = "") -> Row:
    """A row in which all features have one reason."""
    return dict.fromkeys(features, why)


SHARES = refused(
    "--partition", "--balance", "--bottleneck share", why="it does not divide batches among workers"
)
OWN_ENGINES = refused("--engine tape", "--engine static")
"""Our engines keep graphs and parameters in memory of their own choice."""
DIVIDED_WEIGHTS: Row = {
    "--exchange": "it sums slices of the gradients itself",
    "--fault stale": "no worker has all weights to itself",
    **OWN_ENGINES,
}
DIVIDED_MODEL: Row = {
    **refused("--bottleneck", "--fault", why="conditions apply to a worker's gradients of whole batches"),
    "--balance": "",
    **OWN_ENGINES,
}
