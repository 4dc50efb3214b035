"""`shoal launch`: its own options stand before the program, and mistakes are one sentence."""

import pytest

from shoal.cli.main import main


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "PROGRAM is required"),
        (["--workers", "2"], "PROGRAM is required"),
        (["program.py"], "--workers is required"),
        (["program.py", "--workers=2"], "--workers must come before program.py"),
        (["--workers", "0", "program.py"], "--workers: expected an integer ≥ 1, got 0"),
        (["--wokers", "2", "program.py"], "did you mean '--workers'?"),
        (["--workers"], "--workers needs a value"),
        (["--launcher", "thread", "program.py"], "did you mean 'threads'?"),
        (["--workers", "2", "nowhere.py"], "cannot read the program nowhere.py"),
    ],
)
def test_what_the_user_can_mend_is_a_sentence(capsys, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    assert main(["launch", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_as_threads_every_rank_has_names_of_its_own_and_the_programs_arguments(capsys, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, torch, shoal\n"
        "if __name__ == '__main__':\n"
        "    group = shoal.join()\n"
        "    total = torch.tensor(group.rank + 1)\n"
        "    group.all_reduce(total).wait()\n"
        "    sys.stdout.write(f'{group.rank} of {group.size}: {total} {sys.argv[1:]}\\n')\n"
        "    sys.exit(0)\n"
    )
    assert main(["launch", "--workers=2", "--launcher=threads", str(program), "--workers", "9"]) == 0
    said = sorted(capsys.readouterr().out.splitlines())
    assert said == [f"{rank} of 2: 3 ['--workers', '9']" for rank in range(2)]


def test_as_threads_the_first_failure_stands_in_a_box_and_its_code_is_kept(capsys, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import shoal\ngroup = shoal.join()\nif group.rank: exit(7)\ngroup.barrier().wait()\n")
    assert main(["launch", "--workers", "2", "--launcher", "threads", str(program)]) == 7
    said = capsys.readouterr().err
    assert "│ rank 1 of 2 failed: SystemExit: 7" in said
    assert f"│ at {program}:3" in said


@pytest.mark.parametrize("launcher", ["threads", "processes"])
def test_the_limit_of_a_silent_worker_can_be_set(capfd, tmp_path, launcher):
    program = tmp_path / "program.py"
    program.write_text(
        "import shoal, time\n"
        "group = shoal.join()\n"
        "while group.rank: time.sleep(0.01)\n"
        "group.barrier().wait()\n"
    )
    assert main(["launch", "--workers", "2", "--launcher", launcher, "--timeout", "2", str(program)]) == 2
    said = capfd.readouterr().err
    assert "alive, but has made no progress for 2" in said
    assert "`shoal launch --timeout`" in said


def test_threads_are_not_profiled(capsys, tmp_path):
    assert main(["launch", "--profile", "--launcher", "threads", "--workers", "2", str(tmp_path)]) == 2
    assert "--profile records processes" in capsys.readouterr().err
