"""What users may write: every flag, setting and public name of the committed list, and no other."""

import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_no_flag_setting_or_public_name_is_lost_or_new():
    promised = (ROOT / "tests" / "interface.txt").read_text().splitlines()
    found = runpy.run_path(str(ROOT / "tools" / "interface.py"))["lines"]()
    lost, new = sorted({*promised} - {*found}), sorted({*found} - {*promised})
    assert (lost, new) == ([], []), "if this is meant: python tools/interface.py > tests/interface.txt"
