from types import SimpleNamespace

import pytest

from shoal.report.document import Code, Paragraph
from shoal_labs.catalogue import LABS
from shoal_labs.page.page import opening
from shoal_labs.words import LANGUAGES, load_words


@pytest.mark.parametrize("lang", LANGUAGES)
@pytest.mark.parametrize("lab", LABS.values(), ids=LABS)
@pytest.mark.parametrize("taken", [(), ("single-seed0",)])
def test_the_command_follows_the_sentence_that_announces_it(lab, lang, taken):
    words = load_words(lab.package, lang)
    runs = SimpleNamespace(words=words, earlier="reports/x", taken_over=taken, trained=["a"])
    blocks = opening("shoal lab x --quick", runs, busy=0.4)
    place = blocks.index(Paragraph(words("intro.command")))
    assert blocks[place + 1] == Code("shoal lab x --quick", language="sh")
    assert any("40 %" in block.text for block in blocks)
