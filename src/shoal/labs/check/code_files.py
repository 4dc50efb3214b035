"""The files of a student's folder that hold code."""

from pathlib import Path


def code_files(folder: Path) -> list[Path]:
    """In the order of their names, and real files only.

    Editors leave links to nowhere, such as Emacs' .#model.py; a pipe would never end.
    """
    return sorted(path for path in folder.glob("*.py") if path.is_file())
