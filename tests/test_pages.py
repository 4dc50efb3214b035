"""The pages for readers of the code name files and folders that exist, and the map stays one page."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE, LABS = ROOT / "src/shoal", ROOT / "src/shoal_labs"
PAGES = sorted(
    [
        *PACKAGE.rglob("README.md"),
        LABS / "README.md",
        *ROOT.glob("docs/**/*.md"),
        ROOT / "CONTRIBUTING.md",
        *ROOT.glob("README*.md"),
    ]
)
NAMED = re.compile(r"`((?:[\w.-]+/)+(?:[\w-]+\.(?:py|md|toml|txt))?)`")
"""A path in backticks: it has a slash, and ends with one or with the name of a file of ours."""
FOR_USERS = re.compile(
    r"^(runs|reports|checkpoints|tmp|home|dev|proc|your|my_|task|test/|train/|tensorboard/|wandb/|mlflow/|lab[\dN])|NAME|RUN|FOLDER|<|:"
)
"""What users have and the repository has not."""


def exists(path: str, page: Path) -> bool:
    """Whether the repository has it: from its root, in the package, in the tests, or beside the page's subject."""
    places = [
        ROOT,
        ROOT / "src",
        PACKAGE,
        LABS,
        ROOT / "tests",
        page.parent,
        *(folder for package in (PACKAGE, LABS) for folder in package.iterdir() if folder.is_dir()),
    ]
    return any((place / path).exists() for place in places)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_names_paths_that_exist(page):
    named = {path for path in NAMED.findall(page.read_text(encoding="utf-8")) if not FOR_USERS.search(path)}
    assert [path for path in sorted(named) if not exists(path, page)] == []


@pytest.mark.parametrize("page", [page for page in PAGES if {PACKAGE, LABS} & {*page.parents}])
def test_a_page_of_a_room_names_files_that_exist(page):
    named = set(re.findall(r"`(\w+\.py)`", page.read_text(encoding="utf-8")))
    folders = (PACKAGE, LABS, ROOT / "tests")
    assert named <= {path.name for folder in folders for path in folder.rglob("*.py")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_links_to_pages_that_exist(page):
    """And to headings: `page.md#its-heading`."""
    linked = re.findall(r"\]\(([^)#:\s]*)(?:#([\w-]*))?\)", page.read_text(encoding="utf-8"))
    targets = [(page.parent / path if path else page, anchor) for path, anchor in linked]
    assert [path for path, _ in targets if not path.exists()] == []
    assert [anchor for path, anchor in targets if anchor and anchor not in anchors(path)] == []


def anchors(page):
    """The anchors of a page's headings, as hosts of repositories make them."""
    headings = re.findall(r"^#+ (.*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_that_the_package_names_exist_and_are_in_the_wheel():
    texts = (path.read_text(encoding="utf-8") for kind in ("*.py", "*.toml") for path in PACKAGE.rglob(kind))
    named = {page for text in texts for page in re.findall(r"(?<![\w./])docs/[a-z/-]+\.md", text)}
    assert named
    assert [page for page in sorted(named) if not (ROOT / page).is_file()] == []
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
    assert settings["build"]["targets"]["wheel"]["force-include"]["docs"] == f"{PACKAGE.name}/docs"


def test_the_map_is_one_page():
    assert len((ROOT / "docs/architecture.md").read_bytes()) <= 12_000
