import os
import warnings

import pytest

from shoal.comm.join import WorkerAddress, own_place
from shoal.comm.rendezvous.jobs import PlaceNotice, job_of, take_job
from shoal.errors import JoinError

SLURM = {
    "SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6", "SLURM_LOCALID": "1", "SLURM_NODEID": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3)", "SLURM_STEP_NODELIST": "gpu[07-08],login", "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}  # fmt: skip
MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
KUBERNETES = {"JOB_COMPLETION_INDEX": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "job-0.job", "MASTER_PORT": "5"}


@pytest.fixture
def environment(monkeypatch):
    """Sets the variables of this process, which afterwards has its own again."""

    def set_variables(variables):
        for name in {*os.environ} - {"PATH", "HOME"}:
            if name.startswith(("SLURM", "OMPI", "PMI", "MPI", "JOB_", "MASTER", "RANK", "WORLD", "LOCAL")):
                monkeypatch.delenv(name)
        for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
            monkeypatch.setenv(name, "")  # so that what the test's subject sets is undone, too
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


@pytest.mark.parametrize(
    ("variables", "place", "local"),
    [
        (SLURM, (5, 6, "gpu07"), ("1", "2")),
        (OPEN_MPI, (1, 2, "127.0.0.1"), ("1", "2")),
        (MPICH, (1, 2, "127.0.0.1"), ("1", "2")),
        (KUBERNETES, (1, 2, "job-0.job"), (None, None)),
    ],
)
def test_each_kind_of_job_gives_a_place(environment, variables, place, local):
    environment(variables)
    found = own_place()
    assert found is not None
    assert (found.rank, found.size, found.host) == place
    assert (os.environ.get("LOCAL_RANK"), os.environ.get("LOCAL_WORLD_SIZE")) == local


def test_workers_of_one_job_meet_at_one_port_and_other_jobs_at_another(environment):
    ports = []
    for change in ({"SLURM_PROCID": "0"}, {}, {"SLURM_JOB_ID": "4712"}):
        found = job_of(SLURM | change)
        assert found is not None
        ports.append(found[1]["MASTER_PORT"])
    assert ports[0] == ports[1] != ports[2]
    assert all(1024 < int(port) < 32768 for port in ports)


def test_what_the_user_sets_counts_more(environment):
    environment(SLURM | {"MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "7"})
    assert own_place() == WorkerAddress(5, 6, "10.0.0.7", 7)
    environment(MPICH | {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "8"})
    assert own_place() == WorkerAddress(0, 4, "a", 8)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        SLURM | {"SLURM_STEP_NUM_TASKS": "1"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4"},  # a batch script that srun did not start
        {"JOB_COMPLETION_INDEX": "0"},  # a Kubernetes Job whose pods do not work together
    ],
)
def test_a_process_by_itself_has_no_place(environment, variables):
    environment(variables)
    assert own_place() is None
    assert "RANK" not in os.environ


@pytest.mark.parametrize("change", [{"PMI_SIZE": "4"}, {"MPI_LOCALNRANKS": ""}])
def test_a_job_that_does_not_name_rank_0s_machine(change):
    with pytest.raises(JoinError, match="MPI started"):
        job_of(MPICH | change)


def test_rank_0_alone_says_what_was_found(environment):
    environment(MPICH | {"PMI_RANK": "0"})
    with pytest.warns(PlaceNotice, match=r"MPI: .* rank 0 of 2 workers, 2 on this machine"):
        take_job()
    environment(MPICH)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        take_job()
