"""Chinese labels need neither an installed font nor matplotlib's list of fonts."""

import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from fontTools.ttLib import TTFont

from shoal.report.canvas import CHINESE_FONT, chinese_font

FOLDER = resources.files("shoal.report") / "fonts"
WORDS = sorted(Path(str(resources.files("shoal"))).rglob("zh.toml"))


@pytest.fixture(scope="module")
def font():
    return TTFont(str(FOLDER / "ShoalCJK-Regular.otf"))


@pytest.mark.parametrize("path", WORDS, ids=lambda path: path.parts[-3])
def test_the_font_has_every_chinese_character_that_we_write(font, path):
    """If this fails, run tools/subset_font.py."""
    written = {letter for letter in path.read_text(encoding="utf-8") if letter >= "\u2e80"}
    assert written - set(map(chr, font.getBestCmap())) == set()


def test_the_font_is_small_has_a_name_of_its_own_and_its_licence_beside_it(font):
    assert (FOLDER / "ShoalCJK-Regular.otf").stat().st_size < 1_000_000
    assert font["name"].getBestFamilyName() == CHINESE_FONT
    assert "SIL OPEN FONT LICENSE Version 1.1" in (FOLDER / "OFL.txt").read_text(encoding="utf-8")


def test_labels_are_drawn_on_a_machine_without_fonts(tmp_path):
    """In a fresh process whose list of fonts is empty: every character has a glyph, so nothing is warned about."""
    program = """
import warnings
from matplotlib import font_manager
font_manager.fontManager.ttflist = [e for e in font_manager.fontManager.ttflist if e.name == "DejaVu Sans"]
from shoal.report.canvas import axes_of, chinese_font, painted
def paint(figure, columns):
    (axis,) = axes_of(figure, 1, columns)
    axis.set_title("每步用时（毫秒）")
warnings.simplefilter("error")
warnings.filterwarnings = lambda *_, **__: None
drawing = painted(paint, lambda *_: 2.0, font=chinese_font())
assert drawing.png.startswith(b"\\x89PNG") and drawing.pdf.startswith(b"%PDF")
"""
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


def test_the_font_is_registered_once():
    assert chinese_font() == chinese_font() == CHINESE_FONT
