import pytest

from shoal.cli.main import main


def answer(capsys, *words):
    code = main(["lab", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("words", [(), ("--help",), ("1", "--help")])
def test_the_labs_and_flags_are_listed(capsys, words):
    code, out, _ = answer(capsys, *words)
    assert code == 0
    assert "Gradient descent on one machine" in out
    assert "--quick" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("9",), "unknown lab '9'"),
        (("start", "9"), "unknown lab '9'"),
        (("start",), "LAB is required"),
        (("1", "--quik"), "unknown flag '--quik': did you mean '--quick'?"),
        (("1", "--lang", "zhh"), "unknown lang 'zhh': did you mean 'zh'?"),
        (("1", "--data", "minst"), "unknown data set of this lab 'minst': did you mean 'mnist'?"),
        (("1", "--data", "digits", "--data-dir", "x"), "--data-dir has no effect with --data digits"),
        (("1", "--data", "mnist", "--data-dir", "/nowhere"), "/nowhere"),
        (("1", "--seed", "many"), "--seed: expected an integer, got 'many'"),
        (("2", "--workers", "few"), "--workers: expected an integer, got 'few'"),
        (("2", "--solution", "nowhere"), "--solution nowhere is not a folder"),
        (("optimise", "--solution", "."), "`shoal lab optimise` has no --solution"),
        (("1", "--workers", "2"), "`shoal lab 1` has no --workers: it belongs to 2, 3, 4"),
        (("1", "2"), "unexpected argument '2'"),
        (("start", "1", "--quick"), "`shoal lab start` has no --quick"),
        (("check",), "LAB is required"),
        (("check", "1", "--seed", "1"), "`shoal lab check` has no --seed"),
        (("check", "optimise"), "lab optimise has no tasks to check"),
        (("check", "1"), "there is no task1/pytorch/MyOptimizer.py in"),
    ],
)
def test_bad_input_gets_one_sentence_and_nothing_is_written(capsys, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    code, out, err = answer(capsys, *words)
    assert code == 2
    assert sentence in err
    assert "Traceback" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_out_folder_in_use_or_unwritable_is_refused(capsys, tmp_path):
    (tmp_path / "file").write_text("")
    assert "is not empty" in answer(capsys, "1", "--out", str(tmp_path))[2]
    code, _, err = answer(capsys, "1", "--out", str(tmp_path / "file" / "out"))
    assert code == 2
    assert "cannot write the report folder" in err


def test_start_writes_the_skeleton_once(capsys, tmp_path):
    code, out, _ = answer(capsys, "start", "1", "--out", str(tmp_path), "--lang", "zh")
    assert code == 0
    assert str(tmp_path / "task1" / "pytorch" / "MyOptimizer.py") in out.splitlines()
    assert "实验一" in (tmp_path / "task1" / "README.md").read_text(encoding="utf-8")
    code, _, err = answer(capsys, "start", "1", "--out", str(tmp_path))
    assert code == 2
    assert "exists already" in err


def test_check_says_what_is_open_and_fails(capsys, tmp_path):
    answer(capsys, "start", "3", "--out", str(tmp_path))
    code, out, _ = answer(capsys, "check", "3", str(tmp_path / "task3"), "--lang", "zh")
    assert code == 1
    assert out.count("未完成") == 3
    assert "正确 0 项" in out
    assert "Traceback" not in out
