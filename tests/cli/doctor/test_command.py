import json
import subprocess
import sys

import pytest

from shoal.cli.doctor import checks, command
from shoal.cli.doctor.checks import Check
from shoal.cli.main import main

LONG = "word " * 30
FOUND = [
    Check("python", "OK", "3.11.7"),
    Check("namespaces", "WARN", LONG.strip(), "sudo apt install " + "package " * 20 + "| cat"),
    Check("port", "FAIL", "none", "sudo ip link set lo up"),
]


def test_text_keeps_to_the_width_but_never_breaks_a_command():
    lines = command.as_text(FOUND, width=60, colour=False).splitlines()
    assert all(len(line) <= 60 for line in lines if "→" not in line)
    assert any(line.strip() == f"→ {FOUND[1].repair}" for line in lines)
    assert lines[-1] == "1 OK, 1 WARN, 1 FAIL"
    assert [line[:4].strip() for line in lines if line[:4].strip() in ("OK", "WARN", "FAIL")] == [
        "OK",
        "WARN",
        "FAIL",
    ]


def test_colour_changes_the_colour_alone():
    plain, coloured = (command.as_text(FOUND, width=80, colour=colour) for colour in (False, True))
    assert "\033[" not in plain
    for code in ("\033[32m", "\033[33m", "\033[1;31m", "\033[0m"):
        assert code in coloured
        coloured = coloured.replace(code, "")
    assert coloured == plain


def test_json_holds_every_field():
    shown = json.loads(command.as_json(FOUND))
    assert shown["status"] == "FAIL"
    assert shown["checks"][2] == {
        "name": "port",
        "status": "FAIL",
        "found": "none",
        "repair": "sudo ip link set lo up",
    }


def test_markdown_is_a_table_whose_cells_stay_cells():
    rows = [line for line in command.as_markdown(FOUND).splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(FOUND)
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)


@pytest.mark.parametrize(("status", "code"), [("OK", 0), ("WARN", 0), ("FAIL", 1)])
def test_only_a_failure_changes_the_exit_code(monkeypatch, capsys, status, code):
    monkeypatch.setattr(checks, "checks", lambda: [Check("port", status, "…")])
    assert main(["doctor"]) == code
    assert capsys.readouterr().out.startswith(status)


def test_run_prints_what_was_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(checks, "checks", lambda: FOUND)
    main(["doctor", "--json"])
    assert json.loads(capsys.readouterr().out)["status"] == "FAIL"
    main(["doctor", "--markdown"])
    assert "| FAIL | port | none |" in capsys.readouterr().out
    assert main(["doctor", "--jsn"]) == 2
    assert "unknown flag '--jsn': did you mean '--json'?" in capsys.readouterr().err


def test_importing_the_doctor_imports_nothing_heavy():
    """It must run where torch is broken: that is what it is for."""
    program = "import sys, shoal.cli.doctor.command; print([n for n in ('torch', 'numpy', 'rich') if n in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.strip() == "[]"


def test_a_machine_without_torch_gets_a_report(tmp_path):
    """A torch that cannot be imported stands first on the path; the doctor names it and goes on."""
    (tmp_path / "torch.py").write_text("raise ImportError('libfoo.so.1: cannot open shared object file')")
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); "
        f"from shoal.cli.main import main; sys.exit(main(['doctor', '--json']))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.returncode == 1, answer.stderr
    found = {check["name"]: check for check in json.loads(answer.stdout)["checks"]}
    assert "libfoo.so.1" in found["torch"]["found"]
    assert found["torch"]["status"] == "FAIL"
    assert "until torch can be imported" in found["data"]["found"]
    assert found["folder"]["status"] == "OK"
