"""Make the font with which figures are labelled in Chinese: a subset of Noto Sans CJK, small enough for the package.

    python tools/subset_font.py /usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc

Debian's `fonts-noto-cjk` has that file. The subset has the characters of our Chinese texts, and the 3,755 most frequent
ones of GB 2312, so that a new sentence rarely needs a new font. The licence, the SIL Open Font License, is beside it.
"""

import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTCollection, TTFont

SOURCES = Path(__file__).resolve().parents[1] / "src" / "shoal"
TARGET = SOURCES / "report" / "fonts" / "ShoalCJK-Regular.otf"
FAMILY = "Shoal CJK"
"""A changed font must not have the name of the original."""
POSTSCRIPT = "ShoalCJK-Regular"
SIMPLIFIED = "Noto Sans CJK SC"


def characters() -> set[str]:
    """What the font has to have."""
    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("zh.toml")]
    rows, cells = range(0xB0, 0xD8), range(0xA1, 0xFF)
    frequent = (bytes([row, cell]).decode("gb2312", "ignore") for row in rows for cell in cells)
    ascii_letters = map(chr, range(0x20, 0x7F))
    punctuation = "，。、；：？！（）《》“”‘’…—·％×÷±→←≤≥≈−"
    return {letter for text in [*texts, *frequent, *ascii_letters, punctuation] for letter in text}


def main(collection: str) -> None:
    """Write the subset."""
    fonts = TTCollection(collection).fonts
    font: TTFont = next(font for font in fonts if font["name"].getBestFamilyName() == SIMPLIFIED)
    options = subset.Options()
    options.hinting = False
    options.layout_features = []
    options.notdef_outline = True
    options.drop_tables += ["vhea", "vmtx", "VORG", "BASE", "GPOS", "GSUB"]
    subsetter = subset.Subsetter(options)
    subsetter.populate(unicodes=[ord(letter) for letter in characters()])
    subsetter.subset(font)
    names = font["name"]
    for record in list(names.names):
        name = {1: FAMILY, 4: FAMILY, 6: POSTSCRIPT, 16: FAMILY}.get(record.nameID)
        if name:
            names.setName(name, record.nameID, record.platformID, record.platEncID, record.langID)
    top = font["CFF "].cff
    top.fontNames = [POSTSCRIPT]
    top.topDictIndex[0].FullName = top.topDictIndex[0].FamilyName = FAMILY
    TARGET.parent.mkdir(exist_ok=True)
    font.save(TARGET)
    sys.stdout.write(
        f"{TARGET}: {len(font.getBestCmap() or ()):,} characters, {TARGET.stat().st_size:,} bytes\n"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
