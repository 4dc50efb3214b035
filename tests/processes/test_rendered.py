"""What rendered files say, started as real processes: the weights of `--workers N` on one machine."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from launching import environment, free_port

from shoal.cli.main import main

pytestmark = pytest.mark.long
TRAIN = "train quickstart --data.samples 200 --steps 4 --threads 1 --device cpu --strategy ddp --quiet"
SHOAL = [sys.executable, "-m", "shoal"]
NO_PLACE = re.compile("RANK|WORLD_SIZE|MASTER_|LOCAL_|SLURM")


def outside(**changes):
    """The environment of a process that no launcher has started."""
    return {
        name: value for name, value in environment(**changes).items() if not NO_PLACE.match(name)
    } | changes


def trained(folder, name):
    return json.loads((folder / "runs" / name / "result.json").read_text())["weights_sha256"]


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The weights of two workers that one command starts."""
    folder = tmp_path_factory.mktemp("reference")
    words = [*SHOAL, *TRAIN.split(), "--workers", "2", "--name", "reference"]
    subprocess.run(words, cwd=folder, env=outside(), check=True, timeout=100)
    return trained(folder, "reference")


def render(*words):
    assert main(["render", *map(str, words), "shoal", *TRAIN.split(), "--name", "rendered"]) == 0


def test_the_services_of_a_compose_file_train_one_model(tmp_path, reference):
    """Without docker: names of services and the path of the secret are this machine's."""
    file, secret, port = tmp_path / "compose.yml", tmp_path / "run.secret", free_port()
    render("compose", "--nodes", 2, "--port", port, "--output", file)
    first = re.search(r"^# First, once: (.*)$", file.read_text(), re.MULTILINE)
    subprocess.run(["bash", "-c", first[1]], cwd=tmp_path, check=True)
    here = {"node01": "127.0.0.1", "/run/secrets/run_secret": str(secret)}
    workers = []
    for service in yaml.safe_load(file.read_text())["services"].values():
        variables = {name: here.get(value, value) for name, value in service["environment"].items()}
        words = [*SHOAL, *service["command"][1:]]
        workers.append(subprocess.Popen(words, cwd=tmp_path, env=outside(**variables)))
    try:
        assert [worker.wait(100) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
    assert trained(tmp_path, "rendered") == reference


NEEDED = ("slurmctld", "slurmd", "sbatch", "munged", "unshare", "runuser")
HAS_SLURM = os.geteuid() == 0 and all(map(shutil.which, NEEDED))
SRUN = """#!{python}
import os, subprocess, sys
nodes, workers = int(os.environ["SLURM_NNODES"]), int(os.environ["SLURM_NTASKS_PER_NODE"])
words = sys.argv[1:]
while words[0].startswith("--"):
    del words[0]
tasks = []
for rank in range(nodes * workers):
    place = dict(PROCID=rank, LOCALID=rank % workers, NODEID=rank // workers, STEP_NUM_TASKS=nodes * workers,
                 STEP_TASKS_PER_NODE=f"{{workers}}(x{{nodes}})", STEP_NODELIST="localhost", STEP_ID=0)
    variables = {{f"SLURM_{{name}}": str(value) for name, value in place.items()}}
    tasks.append(subprocess.Popen(words, env=os.environ | variables))
sys.exit(max([task.wait() for task in tasks]))
"""


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)


@pytest.mark.skipif(HAS_SLURM, reason="Slurm itself is here, which the next test asks")
def test_a_script_of_slurm_trains_one_model_under_a_stand_in_for_srun(tmp_path, reference):
    """The stand-in starts as many tasks as the lines #SBATCH ask for, with Slurm's variables."""
    script, programs = tmp_path / "job.sbatch", tmp_path / "bin"
    render("slurm", "--nodes", 1, "--workers", 2, "--output", script)
    programs.mkdir()
    executable(programs / "srun", SRUN.format(python=sys.executable))
    executable(programs / "shoal", f'#!/bin/sh\nexec {shlex.join(SHOAL)} "$@"\n')
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", script.read_text(), re.MULTILINE))
    job = {"SLURM_NNODES": asked["nodes"], "SLURM_NTASKS_PER_NODE": asked["ntasks-per-node"]}
    job |= {"SLURM_JOB_ID": str(os.getpid()), "PATH": f"{programs}:{os.environ['PATH']}"}
    subprocess.run(["bash", script], cwd=tmp_path, env=outside(**job), check=True, timeout=100)
    assert trained(tmp_path, "rendered") == reference
    assert not list(tmp_path.glob(".secret-*"))


CONFIGURATION = """
ClusterName=test
SlurmctldHost=localhost
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=16821 CPUs=1
NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=16822 CPUs=1
PartitionName=all Nodes=n1,n2 Default=YES
"""
IN_A_NAMESPACE = """
set -e
ip link set lo up
ip link add v0 type veth peer name v1  # names are resolved only where an address is not loopback's
ip addr add 10.9.9.1/24 dev v0
ip link set v0 up
printf "127.0.0.1 localhost\n10.9.9.1 n1 n2\n" > hosts
mount --bind hosts /etc/hosts
mount -t tmpfs none /run
mkdir /run/munge
chown munge:munge /run/munge
runuser -u munge -- munged --force
slurmctld -D > controller.log 2>&1 &
slurmd -D -N n1 > n1.log 2>&1 &
slurmd -D -N n2 > n2.log 2>&1 &
until sinfo --noheader --states=idle --format=%D | grep -qx 2; do sleep 0.2; done
sbatch job.sbatch
while squeue --noheader | grep -q .; do sleep 0.2; done  # sbatch --wait looks more and more rarely
"""


@pytest.mark.timeout(300)
@pytest.mark.skipif(not HAS_SLURM, reason="it needs root and Debian's slurm-wlm")
def test_slurm_itself_trains_one_model(tmp_path, reference):
    """Controller and two nodes in a network of their own; when the shell ends, the kernel ends all of them."""
    isolated = ["unshare", "--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*isolated, "true"], capture_output=True).returncode:
        pytest.skip("namespaces are not permitted here")
    configuration = tmp_path / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(folder=tmp_path))
    (tmp_path / "state").mkdir()
    render("slurm", "--nodes", 2, "--output", tmp_path / "job.sbatch")
    paths = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    variables = outside(SLURM_CONF=str(configuration), PATH=paths)
    words = [*isolated, "bash", "-c", IN_A_NAMESPACE]
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=250)
    said = "".join(path.read_text() for path in tmp_path.glob("slurm-*.out"))
    assert (tmp_path / "runs/rendered/result.json").exists(), done.stderr + said
    assert trained(tmp_path, "rendered") == reference
    assert not list(tmp_path.glob(".secret-*"))
