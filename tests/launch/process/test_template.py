"""Workers as copies of a template: what they have of it, and what happens when it is stopped, killed or gone."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from shoal.launch.process import template
from shoal.launch.process.processes import ProcessTask, run
from shoal.launch.process.template import keeping_templates

SAYS = """
import json, os, random, sys, threading
import numpy, torch
says = {
    "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "folder": os.getcwd(),
    "variables": dict(os.environ), "modules": sorted(sys.modules), "path": sys.path, "name": __name__,
    "threads": torch.get_num_threads(), "running": threading.active_count(), "cuda": torch.cuda.is_initialized(),
    "drawn": [random.random(), numpy.random.random(), torch.rand(1).item()],
    "open": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
}
with open(sys.argv[1] + os.environ["RANK"], "w") as file:
    json.dump(says, file)
"""


def task(folder, text, *arguments, threads=0):
    program = folder / "program.py"
    program.write_text(text)
    settings = {"kind": "program", "path": str(program), "arguments": list(arguments), "group": "shm"}
    return ProcessTask(settings, threads=threads)


def said(folder, name="says", workers=2, **options):
    run(task(folder, SAYS, str(folder / name), **options), workers)
    return [json.loads((folder / f"{name}{rank}").read_text()) for rank in range(workers)]


@pytest.fixture
def no_templates(monkeypatch):
    """As in a program that keeps none."""
    monkeypatch.setattr(template, "_kept", None)


def test_a_copy_is_like_a_new_interpreter(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINE", "ü\udcff")
    monkeypatch.syspath_prepend(str(tmp_path / "of mine"))
    sys.modules["shoal_of_this_program"] = sys.modules[__name__]
    copies = said(tmp_path, "copy", threads=2)
    with monkeypatch.context() as without:
        without.delattr(os, "pidfd_open")
        (new,) = said(tmp_path, "new", workers=1, threads=2)
    del sys.modules["shoal_of_this_program"]
    same = ("folder", "path", "name", "threads", "running", "cuda")
    for copy in copies:
        assert {key: copy[key] for key in same} == {key: new[key] for key in same}
        assert copy["variables"].keys() == new["variables"].keys()
        assert copy["variables"]["MINE"] == "ü\udcff"
        assert set(copy["modules"]) >= set(new["modules"])
        assert "shoal_of_this_program" not in copy["modules"]
        assert copy["session"] == copy["pid"]
        assert len(copy["open"]) == len(new["open"])
    assert copies[0]["parent"] == copies[1]["parent"] != os.getpid()
    assert new["parent"] == os.getpid()
    assert len({number for copy in copies for number in copy["drawn"]}) == 6


@pytest.mark.long
def test_templates_are_kept_for_runs_of_a_thread_with_the_same_environment(
    tmp_path, monkeypatch, no_templates
):
    found = []

    def note():
        found.append(said(tmp_path, workers=1)[0]["parent"])

    with keeping_templates():
        note()
        descriptors = len(os.listdir(f"/proc/{found[0]}/fd"))
        thread = threading.Thread(target=note)  # the kernel ends its template with it
        thread.start()
        thread.join()
        note()
        assert len(os.listdir(f"/proc/{found[0]}/fd")) == descriptors, "it keeps nothing of a run"
        monkeypatch.setenv("MKL_NUM_THREADS", "1")
        note()
    first, of_thread, again, other = found
    assert first == again
    assert len({first, of_thread, other}) == 3
    for pid in found:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_one_worker_is_a_new_interpreter_where_no_template_is_kept(tmp_path, no_templates):
    assert said(tmp_path, workers=1)[0]["parent"] == os.getpid()


def test_a_stopped_template_is_continued(tmp_path):
    pid = said(tmp_path)[0]["parent"]
    os.kill(pid, signal.SIGSTOP)
    assert said(tmp_path)[0]["parent"] == pid
    stops = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\n"
    run(task(tmp_path, stops), 2)


def test_asking_all_processes_to_stop_does_not_end_the_template(tmp_path):
    pid = said(tmp_path)[0]["parent"]
    asks = f"import os, signal\nos.kill({pid}, signal.SIGTERM)\nos.kill({pid}, signal.SIGHUP)\n"
    run(task(tmp_path, asks), 2)
    assert said(tmp_path)[0]["parent"] == pid


def test_a_template_that_was_killed_is_replaced(tmp_path):
    pid = said(tmp_path)[0]["parent"]
    os.kill(pid, signal.SIGKILL)
    assert said(tmp_path)[0]["parent"] not in (pid, os.getpid())


def test_a_template_that_dies_ends_its_copies_and_the_run(tmp_path):
    # A worker that starts after that is no copy: its parent is this process, which it must not kill.
    pid = said(tmp_path)[0]["parent"]
    dies = f"import os, signal\nos.getppid() == {pid} and os.kill({pid}, signal.SIGKILL)\nsignal.pause()\n"
    with pytest.raises(Exception, match="was killed by SIGKILL"):
        run(task(tmp_path, dies), 2)


@pytest.mark.long
def test_a_template_that_cannot_load_is_done_without(tmp_path, monkeypatch, no_templates):
    monkeypatch.setattr(template, "__name__", "shoal.no_such_module")
    assert said(tmp_path)[0]["parent"] == os.getpid()


THREAD = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
GPU = "import sys, types\ncuda = types.SimpleNamespace(is_initialized=lambda: True)\n"
GPU += "sys.modules['torch'] = types.SimpleNamespace(cuda=cuda)"


@pytest.mark.parametrize(("before", "makes_copies"), [("", True), (THREAD, False), (GPU, False)])
def test_no_copy_is_made_of_a_template_with_a_thread_or_a_gpu_in_use(before, makes_copies):
    found = empty_template(before)
    assert found.is_loaded() is makes_copies
    found.close()


@pytest.mark.long
def test_a_launcher_that_is_killed_leaves_no_template_and_no_copy(tmp_path):
    (tmp_path / "program.py").write_text(
        "import os, pathlib, signal, sys\nmine = pathlib.Path(sys.argv[1] + os.environ['RANK'])\n"
        "mine.with_suffix('.new').write_text(f'{os.getpid()} {os.getppid()}')\n"
        "mine.with_suffix('.new').rename(mine)\nsignal.pause()\n"
    )
    command = [sys.executable, "-m", "shoal", "launch", "--workers", "2", "program.py", "pids"]
    launcher = subprocess.Popen(command, cwd=tmp_path)
    files = [tmp_path / f"pids{rank}" for rank in range(2)]
    while not all(file.exists() for file in files):
        assert launcher.poll() is None
    launcher.kill()
    launcher.wait()
    for pid in {int(word) for file in files for word in file.read_text().split()}:
        while Path(f"/proc/{pid}").exists() and ") Z" not in Path(f"/proc/{pid}/stat").read_text():
            pass


def empty_template(before=""):
    """A template that loads nothing, which takes no time: for tests that need no copy."""
    program = f"{before}\nfrom shoal.launch.process import template\ntemplate.PRELOADED = ()\ntemplate.main()"
    return template.Template([sys.executable, "-c", program], dict(os.environ))


@pytest.fixture
def made():
    """A template of its own, already loaded."""
    found = empty_template()
    assert found.is_loaded()
    yield found
    found.close()


def test_a_late_answer_is_not_taken_for_the_next_one(made, monkeypatch):
    with monkeypatch.context() as hurried:
        hurried.setattr(template, "LOAD_S", 0.0)
        assert not made.is_loaded()
    assert not made.is_loaded()
    assert made.start((0, 1, 2), ()) is None, "a number of no process"


def test_an_interrupted_request_closes_the_template(made, monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(template.time, "monotonic", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.is_loaded()
    assert made.start((0, 1, 2), ()) is None


def test_a_launcher_with_many_open_files_has_templates():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1500, limits[1]))
    with contextlib.ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(1100):  # `select` takes numbers up to 1023
            opened.enter_context(open(os.devnull))
        found = empty_template()
        opened.callback(found.close)
        assert found.is_loaded()


RUN = """
import os, signal, sys
from shoal.launch.process import template
from shoal.launch.process.processes import ProcessTask, run
{before}
run(ProcessTask({{"kind": "program", "path": sys.argv[1], "arguments": sys.argv[2:], "group": "shm"}}, True), 2)
"""
TELLS = """
import os, signal, sys
with open(sys.argv[1] + os.environ["RANK"], "w") as file:
    ignored = [signal.getsignal(number) is signal.SIG_IGN for number in (signal.SIGCHLD, signal.SIGHUP)]
    print(os.getppid(), ignored, sys.stdout is not None, os.readlink("/proc/self/fd/0"), file=file)
"""


def launched(folder, name, before):
    """What two workers tell: is the launcher their parent, and their signals, streams and standard input."""
    (folder / "tells.py").write_text(TELLS)
    program = RUN.format(before=before)
    command = [sys.executable, "-c", program, str(folder / "tells.py"), str(folder / name)]
    launcher = subprocess.Popen(command)
    assert launcher.wait() == 0
    found = [(folder / f"{name}{rank}").read_text().split(" ", 1) for rank in range(2)]
    return {int(parent) == launcher.pid for parent, _ in found}, {text for _, text in found}


@pytest.mark.long
def test_a_copy_is_like_a_new_interpreter_of_an_unusual_launcher(tmp_path):
    ignores = "for number in (signal.SIGCHLD, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n"
    before = ignores + "os.close(1); os.close(2)\n"
    new = launched(tmp_path, "new", before + "del os.pidfd_open")
    copies = launched(tmp_path, "copy", before)
    assert (new[0], copies[0]) == ({True}, {False})
    assert new[1] == copies[1]
    assert all("[True, True] True" in told and "memfd" in told for told in copies[1])
