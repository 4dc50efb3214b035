"""`shoal train --help`, whole and by section."""

import pytest

from shoal.cli.main import main


@pytest.mark.parametrize(
    ("section", "there", "elsewhere"),
    [
        ("optimizer", "--optimizer.momentum", "--model.hidden"),
        ("model", "--model.hidden", "--optimizer.momentum"),
        ("strategy", "--pipeline.schedule", "--model.hidden"),
    ],
)
def test_one_section(section, there, elsewhere, capsys):
    assert main(["train", "--help", section]) == 0
    page = capsys.readouterr().out
    assert there in page
    assert elsewhere not in page


def test_an_unknown_section(capsys):
    assert main(["train", "--help", "optimiser"]) == 2
    assert "unknown section 'optimiser': did you mean 'optimizer'" in capsys.readouterr().err


def test_the_whole_page_has_every_section(capsys):
    assert main(["train", "--help"]) == 0
    page = capsys.readouterr().out
    assert "[optimizer]" in page
    assert "[model]" in page
