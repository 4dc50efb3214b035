"""How tests and package correspond: a test file names the module it tests, and no module is dead code."""

import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src"
PACKAGE, LABS = SOURCE / "shoal", SOURCE / "shoal_labs"
ACROSS_ROOMS = {"browser", "contracts", "processes", "examples", "faults", "findings"}
"""Folders whose tests are not of one module, like the files directly in tests/."""
COMMENT = re.compile(r"(?m)#.*$")
DOTTED = re.compile(r"\bshoal(_labs)?(\.\w+)+")
FROM = re.compile(r"(?m)\bfrom (shoal[\w.]*) import (\([^)]*\)|.*$)")
MADE = re.compile(r'import_module\(\s*f"([^"]*)"')
"""`import_module(f"{package}.check")` may import several."""
BRACED = re.compile(r"(\{[^}]*\})")


def module_name(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path, SOURCE): path
    for package in (PACKAGE, LABS)
    for path in package.rglob("*.py")
    if path.stem.isidentifier()
}
"""Modules by name; a file whose name cannot be imported is a program."""


def imports(path: Path) -> Iterator[str]:
    """Everything a file names of the package outside comments: imports, also inside functions, modules in strings.

    Found in the text: to parse every file takes ten times as long.
    """
    text = COMMENT.sub("", path.read_text())
    yield from (found.group() for found in DOTTED.finditer(text))
    for package, names in FROM.findall(text):
        yield package
        yield from (f"{package}.{name}" for name in re.findall(r"\w+", names))
    for written in MADE.findall(text):
        parts = (r"[\w.]+" if part.startswith("{") else re.escape(part) for part in BRACED.split(written))
        pattern = re.compile("".join(parts))
        yield from filter(pattern.fullmatch, MODULES)


def named_modules(path: Path) -> set[str]:
    """The modules of the package that a file names, with the packages that contain them."""
    found: set[str] = set()
    for name in imports(path):
        parts = name.split(".")
        found.update(".".join(parts[:length]) for length in range(1, len(parts) + 1))
    return found & MODULES.keys()


def reached_by_tests() -> set[str]:
    waiting = {module for path in TESTS.rglob("*.py") for module in named_modules(path)}
    waiting |= {"shoal.__main__", "shoal_labs.__main__"}  # `python -m shoal`
    waiting.add("shoal_labs.command.command")  # an entry point
    reached: set[str] = set()
    while waiting:
        module = waiting.pop()
        reached.add(module)
        waiting |= named_modules(MODULES[module]) - reached
    return reached


def names_a_module(test: Path) -> bool:
    """Whether `tests/ROOM/test_X.py` or `test_X_topic.py` has a module or package `shoal/ROOM/X`, or `shoal_labs/X`."""
    room, *inner = test.parent.relative_to(TESTS).parts
    folder = LABS.joinpath(*inner) if room == "labs" else PACKAGE.joinpath(room, *inner)
    words = test.stem.removeprefix("test_").split("_")
    candidates = ["_".join(words[:length]) for length in range(1, len(words) + 1)]
    return any((folder / f"{name}.py").is_file() or (folder / name).is_dir() for name in candidates)


def test_a_test_file_names_the_module_that_it_tests():
    nameless = [
        str(test.relative_to(TESTS.parent))
        for test in sorted(TESTS.rglob("test_*.py"))
        if test.parent != TESTS
        and test.relative_to(TESTS).parts[0] not in ACROSS_ROOMS
        and not names_a_module(test)
    ]
    assert not nameless, "no module for these tests:\n" + "\n".join(nameless)


def test_every_room_has_tests():
    rooms = sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file())
    without = [room for room in rooms if not any((TESTS / room).rglob("test_*.py"))]
    assert not without, f"no tests for the rooms {', '.join(without)}"


def test_every_module_is_imported_by_a_test_directly_or_indirectly():
    dead = sorted(MODULES.keys() - reached_by_tests())
    assert not dead, "no test imports these modules, directly or indirectly:\n" + "\n".join(dead)


def test_a_folder_of_more_than_fifteen_modules_says_why():
    """In its `__init__`, in a sentence that begins with these words."""
    crowded = [
        str(folder.relative_to(SOURCE))
        for folder in sorted({path.parent for path in MODULES.values()})
        if sum(path.stem != "__init__" for path in folder.glob("*.py")) > 15
        and "More than fifteen modules, because " not in (folder / "__init__.py").read_text()
    ]
    assert not crowded, f"divide these folders, or give the reason in `__init__.py`: {', '.join(crowded)}"


def test_the_loop_which_is_read_first_needs_few_modules():
    import grimp  # here: GPU machines collect these tests without the linters

    graph = grimp.build_graph("shoal", exclude_type_checking_imports=False)
    assert len(graph.find_upstream_modules("shoal.training.loop")) <= 80
