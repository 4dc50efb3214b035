"""Where a worker finds the secret of its run, and what it refuses."""

import os
import subprocess
import sys
import warnings

import pytest

from shoal.comm.rendezvous import secret
from shoal.comm.rendezvous.secret import (
    UnauthenticatedStoreWarning,
    inheritable,
    run_secret,
    warn_without_secret,
)
from shoal.errors import ConfigError

SECRET = "correct horse battery staple"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    return path


def test_a_file_and_a_variable_give_the_same_secret(file):
    assert run_secret({"SHOAL_SECRET_FILE": str(file)}) == run_secret({"SHOAL_SECRET": SECRET})


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o660, 0o644])
def test_a_file_that_others_can_read_or_write_is_refused_with_the_fix(file, mode):
    file.chmod(mode)
    with pytest.raises(ConfigError, match=f"can be used by other users .mode {mode:o}.") as caught:
        run_secret({"SHOAL_SECRET_FILE": str(file)})
    assert caught.value.hint == f"chmod 600 {file}"


def test_a_file_of_another_user_is_refused(file, monkeypatch):
    owner = file.stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    if owner == 0:
        os.chown(file, 4711, -1)
    with pytest.raises(ConfigError, match="belongs to another user"):
        run_secret({"SHOAL_SECRET_FILE": str(file)})


WRONG = {
    "short": ("too short", "holds 9 bytes; a secret has 16 to 4096"),
    "long": ("x" * 5000, "holds more bytes; a secret has 16 to 4096"),
    "empty": ("", "holds 0 bytes"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_secret_of_another_size_is_refused(file, case):
    text, sentence = WRONG[case]
    file.write_text(text)
    with pytest.raises(ConfigError, match=sentence):
        run_secret({"SHOAL_SECRET_FILE": str(file)})


def test_no_file_a_folder_a_pipe_and_two_secrets_are_refused(file, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    for path in (tmp_path / "none", tmp_path, pipe):
        with pytest.raises(ConfigError, match=f"cannot read SHOAL_SECRET_FILE={path}: "):
            run_secret({"SHOAL_SECRET_FILE": str(path)})
    with pytest.raises(ConfigError, match="both SHOAL_SECRET_FILE and SHOAL_SECRET are set"):
        run_secret({"SHOAL_SECRET_FILE": str(file), "SHOAL_SECRET": SECRET})


def test_a_process_takes_the_secret_from_a_descriptor_and_leaves_none_to_its_children():
    program = (
        "import os, sys\nfrom shoal.comm.rendezvous.secret import receive, run_secret\nreceive(int(sys.argv[1]))\n"
        "assert not os.path.exists(f'/proc/self/fd/{sys.argv[1]}')\nprint(run_secret({}).decode())"
    )
    before = os.listdir("/proc/self/fd")
    with inheritable(SECRET.encode()) as descriptor:
        command = [sys.executable, "-c", program, str(descriptor)]
        done = subprocess.run(command, pass_fds=[descriptor], capture_output=True, text=True, check=False)
    assert done.stdout == f"{SECRET}\n", done.stderr
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("host", ["10.0.0.1", "192.168.1.7", "fe80::1%eth0", "2001:db8::1"])
def test_an_address_that_others_reach_without_a_secret_is_a_warning_that_names_the_fix(monkeypatch, host):
    monkeypatch.delenv("SHOAL_SECRET", raising=False)
    with pytest.warns(
        UnauthenticatedStoreWarning, match=f"meet at {host} without a secret.*SHOAL_SECRET_FILE"
    ):
        warn_without_secret(host)


@pytest.mark.parametrize(("host", "given"), [("127.0.0.1", ""), ("::1", ""), ("10.0.0.1", SECRET)])
def test_loopback_and_a_secret_are_no_reason_to_warn(monkeypatch, host, given):
    monkeypatch.setattr(secret, "_handed_over", None)
    monkeypatch.setenv("SHOAL_SECRET", given)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_without_secret(host)
