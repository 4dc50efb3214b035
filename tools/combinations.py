"""Print docs/en/combinations.md: the tables of refused combinations, from `config/combinations.py`.

    python tools/combinations.py > docs/en/combinations.md

`tests/config/test_combinations.py` compares the page with the table.
"""

import re
from collections.abc import Iterator

from shoal.config.combinations import COMBINATIONS, NEEDS, is_refused
from shoal.config.features import FEATURES

COLUMNS = [name for name in FEATURES if name.startswith(("strategy ", "own strategy", "layout "))]


def page() -> str:
    """The whole page."""
    return "\n".join([*_head(), *_strategies(), *_pairs(), *_needs()])


def _head() -> Iterator[str]:
    yield """# Combinations of settings

`shoal train` refuses settings that cannot be combined before anything starts. Its sentence names both settings, the
reason and the fix; its exit code is 2. `shoal train --help all` lists the same pairs beside each setting.

This page is made from the table that decides (`config/combinations.py`; `python tools/combinations.py >
docs/en/combinations.md`). *Own* is an object of your own, `package.module:name`. Some refusals depend on the model
(batch norm, dropout, complex parameters) or on the machine: they come when a run is built, and are not in the table.

## Strategies and layouts

`–`: refused.
"""


def _strategies() -> Iterator[str]:
    rows = [
        name
        for name, feature in FEATURES.items()
        if (name not in COLUMNS or name.startswith("layout "))
        and (feature.path == "sync.name" or not feature.path.startswith("sync."))
        and any(other in COLUMNS for other in _direct(name))
    ]
    yield f"| | {' | '.join(name.removeprefix('strategy ').removeprefix('layout ') for name in COLUMNS)} |"
    yield f"|---|{'---|' * len(COLUMNS)}"
    for name in rows:
        cells = ("" if name == column else "–" if is_refused(name, column) else "yes" for column in COLUMNS)
        yield f"| {_code(name)} | {' | '.join(cells)} |"


def _pairs() -> Iterator[str]:
    yield "\n## Reasons, and other pairs\n\n| | not with |\n|---|---|"
    for name, row in COMBINATIONS.items():
        by_reason: dict[str, list[str]] = {}
        for other, why in row.items():
            if why or not {name, other} & {*COLUMNS}:
                by_reason.setdefault(why, []).append(_code(other))
        cells = [f"{', '.join(others)}{f': {why}' * bool(why)}" for why, others in by_reason.items()]
        if cells:
            yield f"| {_code(name)} | {'; '.join(cells)} |"


def _needs() -> Iterator[str]:
    yield "\n## Settings that need another one\n\n| | needs | because |\n|---|---|---|"
    for name, (other, why) in NEEDS.items():
        yield f"| {_code(name)} | {_code(other)} | {why} |"


def _direct(name: str) -> set[str]:
    return {*COMBINATIONS.get(name, {})} | {other for other, row in COMBINATIONS.items() if name in row}


def _code(name: str) -> str:
    """Flag and value in code type, other words as they are."""
    return re.sub(r"^--\S+( (?!of|on|below)\S+)?", r"`\g<0>`", name)


if __name__ == "__main__":
    print(page())
