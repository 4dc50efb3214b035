"""No text of others moves a cursor, sets a title or reorders a line."""

import pytest

from shoal.api.display import Plain
from shoal.cli import text
from shoal.compare.watch import PlainWatch
from shoal.errors import ShoalError, WorkerError
from shoal.printable import printable
from shoal.report.document import Code, Document, Paragraph
from shoal.report.html import to_html
from shoal.report.markdown import to_markdown

HOSTILE = "\x1b]0;owned\x07 \x1b[2J\r \x9b31m \u202egnp.exe \x00 \x7f \udcff"
BAD = set(HOSTILE) - set("]0;owned[2J 31mgnp.exe")


def test_every_control_character_is_escaped_and_other_scripts_are_not():
    for code in (*range(9), *range(11, 32), *range(127, 160)):
        assert printable(chr(code)).isascii()
        assert printable(chr(code)).isprintable()
    assert printable("精度 é ✓ 👍🏽 \n\t") == "精度 é ✓ 👍🏽 \n\t"


@pytest.mark.parametrize(
    "shown",
    [
        lambda: text.show(HOSTILE),
        lambda: text.warn(HOSTILE),
        lambda: text.error(ShoalError(HOSTILE, HOSTILE)),
        lambda: text.error(WorkerError(HOSTILE, HOSTILE, 1, HOSTILE)),
        lambda: text.caution(HOSTILE, UserWarning),
    ],
)
@pytest.mark.parametrize("terminal", [True, False])
def test_the_command_line(shown, terminal, capsys, monkeypatch):
    import sys

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    shown()
    said = "".join(capsys.readouterr())
    assert "\\x1b]0;owned\\x07" in said
    for ours in ("\033[0m", "\033[1;31m", "\033[1;33m"):
        said = said.replace(ours, "")
    assert not BAD & set(said)


def test_displays_and_pages(capsys):
    import sys

    Plain(sys.stdout).say(HOSTILE)
    PlainWatch(sys.stdout).say(HOSTILE)
    document = Document(HOSTILE, "en", [Paragraph(HOSTILE), Code(HOSTILE)])
    for said in (capsys.readouterr().out, to_html(document), to_markdown(document)):
        assert not BAD & set(said)
        assert "\\x1b" in said
