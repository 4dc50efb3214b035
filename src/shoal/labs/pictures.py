"""A lab's figures, drawn in the report's language, or in English where no font has its letters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from shoal.labs.words import Words, load_words
from shoal.report.document import Block, Figure, Paragraph
from shoal.report.figures import Drawing, chinese_font

Draw = Callable[[Words, str | None], Drawing | str]
"""Given the words of the labels and the font to write them with, a drawing; or a picture as SVG."""


@dataclass(frozen=True)
class Pictures:
    """The figures by name, drawn."""

    drawings: Mapping[str, Drawing | str]
    in_english: bool
    """Whether their labels are English for want of a font."""

    def figure(self, name: str, caption: str, alt: str, wide: bool = False) -> Figure:
        """The block that shows a figure."""
        drawing = self.drawings[name]
        if isinstance(drawing, str):
            return Figure(_place(name, "svg"), drawing.encode(), caption, alt, wide)
        return Figure(_place(name, "png"), drawing.png, caption, alt, wide)

    def note(self, words: Words) -> list[Block]:
        """Why the labels are English, where they are."""
        return [Paragraph(words("figure.in_english"))] if self.in_english else []

    def files(self) -> dict[PurePosixPath, str | bytes]:
        """Every figure: what the page shows, and a PDF for papers."""
        files: dict[PurePosixPath, str | bytes] = {}
        for name, drawing in self.drawings.items():
            if isinstance(drawing, str):
                files[_place(name, "svg")] = drawing
            else:
                files |= {_place(name, "png"): drawing.png, _place(name, "pdf"): drawing.pdf}
        return files


def draw_all(package: str, words: Words, draws: Mapping[str, Draw]) -> Pictures:
    """Draw a lab's figures. An SVG is written with the reader's own fonts, a drawing with the ones found here."""
    font = chinese_font() if words.lang == "zh" else None
    in_english = words.lang == "zh" and font is None
    labels = load_words(package, "en") if in_english else words
    return Pictures({name: draw(labels, font) for name, draw in draws.items()}, in_english)


def _place(name: str, kind: str) -> PurePosixPath:
    return PurePosixPath(f"figures/{name}.{kind}")
