"""A lab's figures, labelled in the report's language."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from shoal.kit.figures import Drawing, font_for, for_page
from shoal.kit.page import Figure
from shoal_labs.words import Words


@dataclass(frozen=True)
class Svg:
    """A picture as SVG, labelled by the words given; it uses the reader's fonts."""

    draw: Callable[[Words], str]


Draw = Callable[[Words, str | None], Drawing] | Svg
"""Makes a drawing from the words of the labels and the font to write them with, where it is not the usual one."""


@dataclass(frozen=True)
class Pictures:
    """The figures by name, drawn."""

    drawings: Mapping[str, Drawing | str]

    def figure(self, name: str, caption: str, alt: str) -> Figure:
        """The block that shows a figure."""
        drawing = self.drawings[name]
        if isinstance(drawing, str):
            return Figure(_place(name, "svg"), for_page(drawing), caption, alt)
        return Figure(_place(name, "png"), drawing.wide_svg, caption, alt, drawing.narrow_svg)

    def files(self) -> dict[PurePosixPath, str | bytes]:
        """Every figure: what the page shows, and a PDF for papers."""
        files: dict[PurePosixPath, str | bytes] = {}
        for name, drawing in self.drawings.items():
            if isinstance(drawing, str):
                files[_place(name, "svg")] = drawing
            else:
                files |= {_place(name, "png"): drawing.png, _place(name, "pdf"): drawing.pdf}
        return files


def draw_all(words: Words, draws: Mapping[str, Draw]) -> Pictures:
    """Draw a lab's figures."""
    font = font_for(words.lang)
    return Pictures(
        {
            name: draw.draw(words) if isinstance(draw, Svg) else draw(words, font)
            for name, draw in draws.items()
        }
    )


def _place(name: str, kind: str) -> PurePosixPath:
    return PurePosixPath(f"figures/{name}.{kind}")
