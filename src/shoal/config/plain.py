"""A RunConfig as plain data (dictionaries, lists, numbers, texts), for another process.

The values were parsed and checked when the config was made. They are rebuilt as they are: nothing is parsed again.
"""

from dataclasses import asdict
from typing import Annotated, Any, cast, get_args, get_origin

from shoal.config.custom import check_consent
from shoal.config.kinds import by_name, choices, kinds_of
from shoal.config.schema import RunConfig
from shoal.config.sections.values import Custom


def to_plain(config: RunConfig) -> dict[str, Any]:
    """The config as data that JSON can hold. The other process cannot ask for consent, so it is required here."""
    check_consent(config)
    return asdict(config)


def from_plain(data: dict[str, Any]) -> RunConfig:
    """The config that `to_plain` was given, also after a detour through JSON.

    >>> config = RunConfig(seed=3)
    >>> from_plain(to_plain(config)) == config
    True
    """
    return _rebuilt(RunConfig, data)


def _rebuilt(kind: Any, value: Any) -> Any:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    options = choices(kind)
    if options and isinstance(value, dict):
        settings = cast(dict[str, Any], value)
        otherwise = Custom if Custom in options else options[0]
        schema = by_name(options).get(settings.get("name", ""), otherwise)
        return schema(**{key: _rebuilt(kinds_of(schema)[key], item) for key, item in settings.items()})
    if isinstance(value, list | tuple):
        item_kind = get_args(kind)[0] if get_origin(kind) is tuple else None
        return tuple(_rebuilt(item_kind, item) for item in value)
    return value
