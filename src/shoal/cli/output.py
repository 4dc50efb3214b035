"""Files that commands write for the user."""

from pathlib import Path

from shoal.errors import ConfigError


def write_file(path: Path, content: str) -> None:
    """Write a file, whole or not at all."""
    from shoal.events.folder import write_whole

    if is_device_or_folder(path):
        raise ConfigError(f"cannot write {path}: it exists and is not a file", "Choose another name.")
    try:
        write_whole(path, content)
    except OSError as error:
        hint = "Choose another file, in a folder that exists."
        raise ConfigError(f"cannot write {path}: {error.strerror}", hint) from None


def is_device_or_folder(path: Path) -> bool:
    """Whether it exists and is no file: a folder, or a pipe or device that a rename would replace, as /dev/stdout."""
    return path.exists() and not path.is_file()
