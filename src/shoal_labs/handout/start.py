"""`shoal lab start`: the student's skeleton, in the shape of the course's hand-out, cut from our solution."""

from collections.abc import Mapping
from importlib import resources
from pathlib import Path, PurePosixPath

from shoal.errors import ConfigError
from shoal.report.folder import write_files
from shoal_labs.catalogue import LABS, lab_of
from shoal_labs.handout.regions import cut, keep, tasks
from shoal_labs.handout.translate import in_chinese
from shoal_labs.words import Words, load_words


def skeleton(number: str, lang: str) -> dict[PurePosixPath, str | bytes]:
    """The student's files: the solution with its tasks cut out, what to do with them, and the data they need."""
    words = load_words(lab_of(number).package, lang)
    names = [name for source in _sources(number).values() for name in tasks(source)]
    listed = "\n".join(
        f"{count}. `{name}`: {words.sentences[f'task.{name}']}" for count, name in enumerate(names, start=1)
    )
    readme = {PurePosixPath(f"task{number}/README.md"): words("task.readme", tasks=listed) + "\n"}
    return {**_digits(lab_of(number).data_folder), **unsolved(number, words), **readme}


def unsolved(number: str, words: Words) -> dict[PurePosixPath, str]:
    """The files of the hand-out with their tasks cut out, in the language of the lab's words."""
    sentences = {
        key.removeprefix("task."): text for key, text in words.sentences.items() if key.startswith("task.")
    }
    files = {path: cut(source, sentences) for path, source in _sources(number).items()}
    if words.lang == "zh":
        files = {path: in_chinese(text) if path.suffix == ".py" else text for path, text in files.items()}
    return files


def solution(number: str) -> dict[PurePosixPath, str | bytes]:
    """Our solution in the same shape."""
    files = {path: keep(source) for path, source in _sources(number).items()}
    return {**_digits(lab_of(number).data_folder), **files}


def start(number: str, folder: Path, lang: str) -> list[Path]:
    """Write the skeleton; files that exist are not touched, and then nothing is written at all."""
    if not lab_of(number).hand_out:
        raise ConfigError(
            f"lab {number} has no tasks to hand out",
            f"Labs with a skeleton: {', '.join(name for name, lab in LABS.items() if lab.hand_out)}.",
        )
    files = skeleton(number, lang)
    taken = [folder / name for name in files if (folder / name).exists()]
    if taken:
        raise ConfigError(
            f"{taken[0]} exists already: it may hold your work, so nothing was written",
            "Choose another folder with --out.",
        )
    write_files(folder, files)
    return [folder / name for name in files]


def first_task(number: str) -> PurePosixPath:
    """The file with the first task."""
    return next(path for path, source in _sources(number).items() if tasks(source))


def _sources(number: str) -> Mapping[PurePosixPath, str]:
    package = f"{lab_of(number).package}.solution"
    folder = resources.files(package)
    # Inside the package the files import each other by their full name; beside each other in a folder, by the short.
    return {
        path: (folder / path.name).read_text(encoding="utf-8").replace(f"from {package}.", "from ")
        for path in map(PurePosixPath, lab_of(number).hand_out)
    }


def _digits(place: str) -> dict[PurePosixPath, bytes]:
    """The files of the digits that the package carries, where a lab wants them."""
    files = (resources.files("shoal.data") / "digits").iterdir() if place else ()
    return {PurePosixPath(place, file.name): file.read_bytes() for file in files if file.name.endswith(".gz")}
