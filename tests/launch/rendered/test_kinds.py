"""The files are what their tools read: structure, names and the place of each worker."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from shoal.errors import ConfigError
from shoal.launch.rendered.kinds import compose, dockerfile, kubernetes, slurm

ROOT = Path(__file__).parents[3]
COMMAND = ["shoal", "train", "quickstart", "--name", '第一 $run\'s "x"']


def of_compose(nodes=3, **changes):
    given = {"image": "MIRROR.cn:5000/shoal:1", "port": 12378, "gpu": False, "course": False} | changes
    return compose(COMMAND, nodes, **given)


def of_kubernetes(nodes=3, **changes):
    given = {
        "image": "r/shoal:1",
        "port": 29500,
        "gpu": False,
        "name": "shoal",
        "claim": "runs",
        "file": "job.yml",
    }
    return kubernetes(COMMAND, nodes, **(given | changes))


def test_each_service_of_compose_is_one_worker_and_node01_is_the_master():
    services = yaml.safe_load(of_compose())["services"]
    assert list(services) == ["node01", "node02", "node03"]
    places = [service["environment"] for service in services.values()]
    assert [place["RANK"] for place in places] == ["0", "1", "2"]
    assert {(place["WORLD_SIZE"], place["MASTER_ADDR"], place["MASTER_PORT"]) for place in places} == {
        ("3", "node01", "12378")
    }
    assert {service["image"] for service in services.values()} == {"MIRROR.cn:5000/shoal:1"}


def test_the_secret_of_compose_is_a_file():
    found = yaml.safe_load(of_compose())
    name, secret = next(iter(found["secrets"].items()))
    assert secret == {"file": "./run.secret"}
    for service in found["services"].values():
        assert service["secrets"] == [name]
        assert service["environment"]["SHOAL_SECRET_FILE"] == f"/run/secrets/{name}"


def test_each_container_has_a_gpu_of_its_own():
    services = yaml.safe_load(of_compose(gpu=True))["services"].values()
    devices = [service["deploy"]["resources"]["reservations"]["devices"][0] for service in services]
    assert [device["device_ids"] for device in devices] == [["0"], ["1"], ["2"]]
    assert all("deploy" not in service for service in yaml.safe_load(of_compose())["services"].values())


@pytest.mark.parametrize(("gpu", "course"), [(True, False), (False, True)])
@pytest.mark.skipif(not shutil.which("docker-compose"), reason="docker-compose is not installed")
def test_docker_compose_takes_the_file(gpu, course, tmp_path):
    (tmp_path / "compose.yml").write_text(of_compose(gpu=gpu, course=course), encoding="utf-8")
    done = subprocess.run(
        ["docker-compose", "--file", "compose.yml", "config"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    command = yaml.safe_load(done.stdout)["services"]["node02"]["command"]
    assert [word.replace("$$", "$") for word in command][: len(COMMAND)] == COMMAND


@pytest.mark.parametrize("gpu", [False, True])
def test_kubernetes_takes_the_job_and_its_service(gpu):
    import kubernetes_validate  # here: GPU machines collect these tests without it

    service, job = yaml.safe_load_all(of_kubernetes(gpu=gpu))
    for resource in (service, job):
        kubernetes_validate.validate(resource, "1.32", strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert [word.replace("$$", "$") for word in container["command"]] == COMMAND
    assert ("resources" in container) == gpu


def test_the_pods_of_a_job_find_rank_0_by_the_name_that_its_service_gives_it():
    service, job = yaml.safe_load_all(of_kubernetes(4))
    pods, name = job["spec"]["template"]["spec"], job["metadata"]["name"]
    environment = {each["name"]: each.get("value") for each in pods["containers"][0]["env"]}
    assert environment["MASTER_ADDR"] == f"{name}-0.{pods['subdomain']}"
    assert pods["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": name}
    assert (job["spec"]["completions"], job["spec"]["parallelism"], environment["WORLD_SIZE"]) == (4, 4, "4")
    assert environment["RANK"] is None  # from the index
    volumes = {volume["name"]: volume for volume in pods["volumes"]}
    assert {mount["name"] for mount in pods["containers"][0]["volumeMounts"]} == set(volumes)
    assert volumes["secret"]["secret"]["defaultMode"] == 0o400


@pytest.mark.parametrize("name", ["A", "a_b", "1a", "a-", "a.b", "a" * 62])
def test_a_name_that_no_pod_can_have_is_refused(name):
    with pytest.raises(ConfigError, match="no name for a Job of 3 pods"):
        of_kubernetes(name=name)
    of_kubernetes(name="a" * 61)


@pytest.mark.parametrize("name", ["null", "on", "yes"])
def test_a_name_that_yaml_reads_as_something_else_stays_a_name(name):
    service, job = yaml.safe_load_all(of_kubernetes(name=name, claim=name))
    assert service["metadata"]["name"] == job["spec"]["template"]["spec"]["subdomain"] == name


def test_bash_takes_the_script_of_slurm():
    script = slurm(COMMAND, 2, 4, 8, True, "shoal", "01:00:00", "job.sbatch")
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True).stderr == ""
    found = dict(re.findall(r"^#SBATCH --([\w-]+)=(\S+)$", script, re.MULTILINE))
    assert (found["nodes"], found["ntasks-per-node"], found["cpus-per-task"]) == ("2", "4", "8")
    assert found["gpus-per-node"] == "4"


def test_the_image_gets_every_file_that_the_package_is_built_from():
    lines = dockerfile("Dockerfile", "python:3.11-slim", False, None, None).splitlines()
    copied = {path for line in lines if line.startswith("COPY") for path in line.split()[1:-1]}
    assert all((ROOT / path).exists() for path in copied)
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = built["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {built["project"]["readme"], *built["project"]["license-files"], *wheel["force-include"]}
    needed |= {path.partition("/")[0] for path in wheel["packages"]}
    assert needed | {"pyproject.toml", "constraints.txt"} == copied


def test_mirrors_are_in_the_image():
    text = dockerfile(
        "Dockerfile", "MIRROR/library/python:3.11-slim", False, "https://pip.cn/simple", "https://t.cn"
    )
    assert "\nFROM MIRROR/library/python:3.11-slim\n" in text
    assert " --index-url https://pip.cn/simple --extra-index-url https://t.cn " in text
    assert "NVIDIA" not in text
    assert "NVIDIA" in dockerfile("Dockerfile", "python", True, None, None)
