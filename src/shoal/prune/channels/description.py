"""`model.json`: a shrunk network as data, and the network rebuilt from it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from shoal import models
from shoal.config.custom import from_file, trusted
from shoal.config.read import from_tree
from shoal.config.schema import RunConfig
from shoal.config.write import flat
from shoal.errors import CheckpointError, ShoalError
from shoal.files import read_text
from shoal.prune.channels.widths import Widths, resize

FORMAT = 1


@dataclass(frozen=True)
class ModelDescription:
    """What a network is built from: the model's settings and shapes, and the widths that differ from it."""

    model: dict[str, Any]
    """The settings of the model, by name."""
    seed: int
    input_shape: tuple[int, ...]
    outputs: int
    widths: Widths
    format: int = FORMAT

    @classmethod
    def of(
        cls, config: RunConfig, input_shape: tuple[int, ...], outputs: int, widths: Widths
    ) -> "ModelDescription":
        """The description of a run's network."""
        model = {
            path.removeprefix("model."): setting
            for path, setting in flat(config).items()
            if path.startswith("model.")
        }
        return cls(model, config.seed, input_shape, outputs, widths)

    def to_json(self) -> str:
        """As text; the widths are first, for people."""
        record = asdict(self)
        return json.dumps({"widths": record.pop("widths"), **record}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, source: Path) -> "ModelDescription":
        """From text; a CheckpointError names the source if it is not a description."""
        try:
            record: dict[str, Any] = json.loads(text)
            if record["format"] != FORMAT:
                raise CheckpointError(
                    f"{source} has format {record['format']}; this version of shoal reads {FORMAT}"
                )
            widths = {str(name): dict(sizes) for name, sizes in dict(record["widths"]).items()}
            shape = tuple(int(size) for size in record["input_shape"])
            model = {str(key): setting for key, setting in dict(record["model"]).items()}
            return cls(model, int(record["seed"]), shape, int(record["outputs"]), widths)
        except ShoalError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CheckpointError(f"{source} does not describe a network: {error!r}") from None


def rebuild(path: Path | str, trust_code: bool = False) -> nn.Module:
    """The network that a `model.json` describes, ready for `load_state_dict`.

    A model of the user's own, package.module:function, is built only with `trust_code`. The program `model.py` beside
    the file does the same without shoal.
    """
    path = Path(path)
    try:
        text = read_text(path)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from None
    described = ModelDescription.from_json(text, path)
    tree = {"model": described.model}
    config = from_tree(trusted(tree) if trust_code else from_file(tree))
    model = models.build(config.model, described.input_shape, described.outputs, described.seed)
    resize(model, described.widths)
    return model
