"""`shoal lab start`: the student's skeleton, in the shape of the course's hand-out, cut from our solution."""

from importlib import resources
from pathlib import Path, PurePosixPath

from shoal.kit.base import ConfigError
from shoal.kit.page import write_files
from shoal_labs.catalogue import LABS, lab_of
from shoal_labs.handout.assemble import assembled
from shoal_labs.handout.regions import cut, keep, tasks
from shoal_labs.handout.translate import in_chinese
from shoal_labs.words import Words, load_words

TASK = {"en": "Task {name}: {sentence}", "zh": "任务 {name}：{sentence}"}


def skeleton(number: str, lang: str) -> dict[PurePosixPath, str | bytes]:
    """The student's files: the solution with its tasks cut out, what to do with them, and the data they need."""
    package, words = lab_of(number).package, load_words(lab_of(number).package, lang)
    names = [name for source in _sources(number).values() for name in tasks(source)]
    listed = "\n".join(
        f"{count}. `{name}`: {words(f'task.{name}')}" for count, name in enumerate(names, start=1)
    )
    readme = (resources.files(package) / "readme" / f"{lang}.md").read_text(encoding="utf-8")
    files: dict[PurePosixPath, str | bytes] = {**unsolved(number, words)}
    files[PurePosixPath(f"task{number}/README.md")] = readme.replace("{tasks}", listed)
    return {**_digits(number), **files}


def unsolved(number: str, words: Words) -> dict[PurePosixPath, str]:
    """The files of the hand-out with their tasks cut out, in the language of the lab's words."""
    package = lab_of(number).package
    sentences = _under("task.", package, words.lang)
    files = {path: cut(source, sentences, TASK[words.lang]) for path, source in _sources(number).items()}
    if words.lang == "zh":
        # `check_sampler.py` says the same as `shoal lab check`.
        own, theirs = (_under("check.sampler_", package, each) for each in ("en", "zh"))
        found = {own[key]: theirs[key] for key in own}
        files = {path: in_chinese(text, found) for path, text in files.items()}
    return files


def solution(number: str) -> dict[PurePosixPath, str | bytes]:
    """Our solution in the same shape."""
    return {**_digits(number), **{path: keep(source) for path, source in _sources(number).items()}}


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


def _under(prefix: str, package: str, lang: str) -> dict[str, str]:
    """The sentences of a lab whose keys have this prefix, by the rest of the key."""
    sentences = load_words(package, lang).sentences
    return {key.removeprefix(prefix): text for key, text in sentences.items() if key.startswith(prefix)}


def _sources(number: str) -> dict[PurePosixPath, str]:
    """The student's files with the marks of their tasks."""
    package = f"{lab_of(number).package}.solution"
    paths = map(PurePosixPath, lab_of(number).hand_out)
    texts = {path: (resources.files(package) / path.name).read_text(encoding="utf-8") for path in paths}
    return {path: assembled(text, package) if path.suffix == ".py" else text for path, text in texts.items()}


def _digits(number: str) -> dict[PurePosixPath, str | bytes]:
    """The files of the digits that the package carries, where a lab wants them."""
    place = lab_of(number).data_folder
    files = (resources.files("shoal.data") / "digits").iterdir() if place else ()
    return {PurePosixPath(place, file.name): file.read_bytes() for file in files if file.name.endswith(".gz")}
