"""Every line of docs/en/library.md runs."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parent.parent / "docs/en/library.md"


@pytest.mark.timeout(120)
def test_the_blocks_are_one_program(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    exec(compile(code, str(PAGE), "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert re.search(r"20 steps, \d+% right, weights in runs/", printed)
    assert "after 6 steps: completed" in printed
    assert "unknown model 'lenett': did you mean 'lenet'?" in printed
