"""The fingerprint of a safetensors file, without torch: finds damage to the weights of a run before they are used."""

import hashlib
import json
from pathlib import Path
from typing import Any

from shoal.errors import CheckpointError
from shoal.events.folder import RunFolder, resume_command
from shoal.files import open_file

DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "complex64": "C64",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
"""The names of torch's dtypes in the safetensors format."""
_TORCH = {code: f"torch.{name}" for name, code in DTYPES.items()}
_CHUNK = 2**22


def check_weights(path: Path) -> bool:
    """Refuse `model.safetensors` of a finished run if it differs from the `weights_sha256` of the result.

    False if there is nothing to compare it with: no finished run is beside the file, or one without a fingerprint.
    """
    folder = RunFolder(path.parent)
    expected = folder.finished_result().get("weights_sha256") if path.name == folder.model.name else None
    if expected is None:
        return False
    try:
        actual = weights_sha256_of(path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise CheckpointError(f"cannot read weights from {path}: {error}") from None
    if actual != expected:
        raise CheckpointError(
            f"{path} is damaged: the sha256 of its weights is {actual}, but {folder.result.name} has {expected}",
            f"Use a checkpoint of the run, or write the weights again: {resume_command(folder.path)}",
        )
    return True


def weights_sha256_of(path: Path) -> str:
    """`weights_sha256` of the tensors in a file: names, kinds, shapes and every bit, in the order of their names."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, Any] = json.loads(file.read(min(size, 2**28)))
        header.pop("__metadata__", None)
        for name, about in sorted(header.items()):
            digest.update(f"model.{name} {_TORCH[about['dtype']]} {tuple(about['shape'])}\n".encode())
            start, end = about["data_offsets"]
            file.seek(8 + size + start)
            while start < end:
                chunk = file.read(min(_CHUNK, end - start))
                if not chunk:
                    raise ValueError(f"'{name}' is cut short")
                digest.update(chunk)
                start += len(chunk)
    return digest.hexdigest()
