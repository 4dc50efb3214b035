"""The live page of real runs: what a browser would read, and that the page ends with the command."""

import json
import re
import signal
import subprocess
import urllib.request

import pytest
from launching import command, environment, flags, wait_until, workers_of

LIMIT_S = 100


def parts_of(url):
    """What the stream of a page sends, event by event: the kind, and the parts."""
    with urllib.request.urlopen(f"{url}events", timeout=LIMIT_S) as lines:
        kind = "message"
        for line in lines:
            name, _, content = line.decode().strip().partition(": ")
            if name == "event":
                kind = content
            elif name.startswith("data"):
                yield kind, json.loads(content) if content else {}
                kind = "message"


def started(*words):
    process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               env=environment())  # fmt: skip
    url = process.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]+/", url), url
    return process, url


def is_answered(url):
    try:
        return urllib.request.urlopen(url, timeout=LIMIT_S).status == 200
    except OSError:
        return False


@pytest.mark.long
def test_a_run_is_followed_from_its_first_step_to_its_end(tmp_path):
    process, url = started("train", *flags(tmp_path, "--workers 2 --validation 0.2 --epochs 60"), "--watch")
    states, kinds = [], []
    for kind, parts in parts_of(url):
        kinds.append(kind)
        states += re.findall(r"<dd>(\w+)</dd>", parts.get("state", ""))[:1]
        if "workers" in parts:
            rows = parts["workers"]
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, output
    assert kinds[-1] == "end"
    assert states[-1] == "finished"
    assert rows.count("<tr>") == 3


@pytest.mark.long
def test_ctrl_c_ends_the_run_and_its_page(tmp_path):
    process, url = started("train", *flags(tmp_path, "--workers 2 --epochs 100000"), "--watch")
    stream = parts_of(url)
    next(stream)
    wait_until(lambda: len(workers_of(process.pid)) == 2)
    process.send_signal(signal.SIGINT)
    rest = list(stream)
    output, _ = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130, output
    assert rest[-1][0] == "end"
    assert any("stopped" in parts.get("state", "") for _, parts in rest)


@pytest.mark.long
def test_a_launcher_that_is_killed_takes_its_page_along(tmp_path):
    process, url = started("train", *flags(tmp_path, "--workers 2 --epochs 100000"), "--watch")
    stream = parts_of(url)
    next(stream)
    process.kill()
    process.wait(LIMIT_S)
    list(stream)  # ends: the server is gone
    wait_until(lambda: not is_answered(url))
    process.stdout.close()


@pytest.mark.long
def test_the_page_of_a_finished_run_stays_until_ctrl_c(tmp_path):
    name = ("--name", "it")
    subprocess.run(
        command("train", *flags(tmp_path), *name), check=True, capture_output=True, env=environment()
    )
    process, url = started("watch", str(tmp_path / "it"))
    page = urllib.request.urlopen(url, timeout=LIMIT_S).read().decode()
    assert "finished" in page
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
