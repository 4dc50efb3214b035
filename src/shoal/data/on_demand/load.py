"""The data set at a path, recognised by what lies there; its samples are read while a run trains."""

from collections.abc import Callable
from pathlib import Path

from shoal.config.sections.data import FilesConfig
from shoal.data.dataset import Augment, DataSet
from shoal.data.holdout import hold_out
from shoal.data.on_demand.pictures import picture_sources
from shoal.data.on_demand.shards import has_tars, shard_sources
from shoal.data.on_demand.source import Source
from shoal.data.on_demand.split import on_demand
from shoal.data.on_demand.tokens import token_sources
from shoal.data.own.files import parts_of
from shoal.data.own.load import data_set
from shoal.errors import ConfigError, DataError


def load_files(config: FilesConfig, seed_of_validation: int) -> DataSet:
    """The data set of a configuration; only a few samples are in memory."""
    if not config.path:
        raise ConfigError("data files needs a path", "For example --data ./photos, or --data.path ./photos.")
    sources = sources_at(config)
    outputs = config.outputs or max((source.outputs or 0 for source in sources.values()), default=0) or None
    splits = {key: on_demand(source, outputs, config.loaders) for key, source in sources.items()}
    if config.augment and splits["train"].inputs.ndim != 4:
        raise ConfigError(f"{config.path} holds no pictures to augment", "Leave --data.augment out.")
    data = data_set(config.path, splits, outputs, Augment() if config.augment else None)
    return hold_out(data, config.validation, seed_of_validation)


def sources_at(config: FilesConfig) -> dict[str, Source]:
    """The splits at a path: *.bin holds tokens, *.txt text, *.tar samples, and class folders hold pictures."""
    path = Path(config.path).expanduser()
    if not path.exists():
        raise DataError(
            f"{path} does not exist", f"Paths are relative to the current directory: {Path.cwd()}"
        )
    for has_form, read in FORMS:
        if has_form(path):
            return read(path, config)
    raise DataError(f"{path} is no folder, no .bin and no .txt file", HINT)


HINT = (
    "It needs FOLDER/CLASS/1.jpg, FOLDER/*.tar, FOLDER/train.bin, FILE.bin or FILE.txt; a function of yours can "
    "return any other torch data set: --data module:function --data.loaders 2."
)

FORMS: list[tuple[Callable[[Path], bool], Callable[[Path, FilesConfig], dict[str, Source]]]] = [
    (
        lambda path: (
            path.suffix in (".bin", ".txt") or any(path.glob("*.bin")) or (path / "train.txt").is_file()
        ),
        lambda path, config: token_sources(
            path, config.path, config.block_size, config.dtype, config.outputs
        ),
    ),
    (
        lambda path: path.is_dir() and has_tars(parts_of(path)["train"]),
        lambda path, config: shard_sources(path, config.path, config.size),
    ),
    (Path.is_dir, lambda path, config: picture_sources(path, config.path, config.size)),
]
"""How each form is recognised, and how it is read."""
