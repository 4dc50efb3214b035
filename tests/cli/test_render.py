"""`shoal render`: a file that exists stays, settings are checked, the labs' files are rendered ones."""

import pytest
import yaml

from shoal.cli.main import main
from shoal_labs.handout.start import skeleton


def render(*words):
    return main(["render", *map(str, words)])


def test_a_file_is_written_once(tmp_path, capsys):
    words = ("compose", "--nodes", 2, "-o", tmp_path / "compose.yml", "shoal", "train", "quickstart")
    assert render(*words) == 0
    written = (tmp_path / "compose.yml").read_text()
    assert len(yaml.safe_load(written)["services"]) == 2
    assert render(*words) == 2
    assert "it exists" in capsys.readouterr().err
    assert (tmp_path / "compose.yml").read_text() == written
    assert [path.name for path in tmp_path.iterdir()] == ["compose.yml"]


def test_a_program_of_python_is_started_by_python(capsys):
    assert render("kubernetes", "--nodes", 2, "--image", "shoal", "--", "train.py", "--nodes", "x") == 0
    _, job = yaml.safe_load_all(capsys.readouterr().out)
    command = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command == ["python", "-u", "train.py", "--nodes", "x"]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("compose --nodes 0 shoal train", "--nodes"),
        ("compose --nodes 2 --image Bad! shoal train", "--image"),
        ("compose --nodes 2", "COMMAND"),
        ("compose shoal train", "--nodes"),
        ("kubernetes --nodes 2 --image shoal --name A_b shoal train", "--name"),
        ("kubernetes --nodes 2 shoal train", "--image"),
        ("slurm --nodes 2 --time soon shoal train", "--time"),
        ("slurm --nodes 2 --partition x shoal train", "--partition"),
        ("swarm --nodes 2 shoal train", "swarm"),
        ("dockerfile --pip-index ftp://x", "--pip-index"),
        ("compose --nodes 2 shoal train quickstart --workers 2", "--workers"),
        ("compose --nodes 2 shoal train quickstart --rank 0", "--rank"),
        ("compose --nodes 2 shoal train quickstart --epoch 2", "--epoch"),
        ("compose --nodes 3 shoal train quickstart --mesh data=2", "data"),
        ("compose --nodes 3 shoal train quickstart --strategy single", "single"),
        ("compose --nodes 2 --course shoal train quickstart", "--course"),
    ],
)
def test_what_no_cluster_can_run_is_refused_by_name(line, named, capsys):
    assert render(*line.split()) == 2
    printed = capsys.readouterr()
    assert named in printed.err
    assert printed.out == ""


def test_servers_are_among_the_nodes(capsys):
    assert render("compose", "--nodes", 3, "shoal", "train", "quickstart", "--strategy", "server") == 0
    assert len(yaml.safe_load(capsys.readouterr().out)["services"]) == 3


@pytest.mark.parametrize(("lab", "nodes"), [("2", 2), ("4", 3)])
def test_the_compose_file_of_a_lab_is_rendered(lab, nodes, capsys):
    given = next(text for path, text in skeleton(lab, "en").items() if path.name == "docker-compose.yml")
    assert render("compose", "--nodes", nodes, "--course", "model.py") == 0
    assert capsys.readouterr().out == given
