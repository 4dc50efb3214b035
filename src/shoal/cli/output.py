"""Files that commands write for the user."""

from pathlib import Path

from shoal.errors import ConfigError


def write_file(path: Path, content: str) -> None:
    """Write a file, whole or not at all."""
    from shoal.events.folder import write_whole

    if is_no_file(path):
        raise ConfigError(f"cannot write {path}: it exists and is not a file", "Choose another name.")
    try:
        write_whole(path, content)
    except OSError as error:
        hint = "Choose another file, in a folder that exists."
        raise ConfigError(f"cannot write {path}: {error.strerror}", hint) from None


def is_no_file(path: Path) -> bool:
    """Whether it is a folder, or a pipe or device, such as /dev/stdout, which a rename would replace."""
    return path.exists() and not path.is_file()
