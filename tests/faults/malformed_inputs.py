"""Malformed inputs: flags and recipes (`tests/cli/malformed.py`), weights files, run folders, comparisons, variables.

All of them must be refused with exit code 2 and one sentence: no traceback, no hang, nothing left behind.
"""

import json
import os
import struct

from malformed import DIGITS, draw

MODEL = "--model mlp --model.hidden 8 --data synthetic --data.samples 20 --data.shape 4 --data.classes 3 --device cpu"
MODEL = [*MODEL.split(), "--threads", "1"]
RIGHT = {
    "layers.0.weight": ([8, 4], 32),
    "layers.0.bias": ([8], 8),
}


def refused(stage, chance):
    """An input that must be refused."""
    source = chance.choice(
        [flags, flags, flags, weights_file, weights_file, run_folder, run_folder, variables, comparison]
    )
    words, environment = source(stage.folder, chance)
    stage.about = f"{source.__name__}: shoal {' '.join(map(repr, words))[:200]} {environment or ''}"
    program = stage.shoal(*words, **environment)
    _, said = stage.ends(program, 2, "error", within_s=30)
    stage.must(len(said) < 3000, "a short message", f"{len(said)} characters: {said[:300]}")
    stage.must("\x1b" not in said and "\0" not in said, "no control characters", repr(said[:300]))
    stage.outcome = said.splitlines()[0][:150] if said else ""


def flags(folder, chance):
    """Flags and recipes."""
    words, recipe = draw(chance.randrange(10**9), 0)
    if recipe is not None:
        (folder / "drawn.toml").write_bytes(recipe)
    return ["drawn.toml" if word == "RECIPE" else word for word in words], {}


def header(entries, length=None, data=b""):
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape, start, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def weights_file(folder, chance):
    """A file in the place of weights."""
    path = folder / "weights.safetensors"
    size = chance.choice([2**31, 2**40, 2**62, 2**63 - 1, 2**64 - 1])
    settings = chance.choice(
        [
            "",
            "model = 5",
            "[model]\nname = 'os:system'",
            "[model]\nname = 'sys:exit'",
            f"x = {'[' * 3000}{']' * 3000}",
            f"seed = {DIGITS}",
            "[model]\nname = '\\u0000'",
            "[model]\nname = 'mlp'\nhidden = [99999999999]",
            "\x1b[2J = 1",
            "[data]\nname = 'synthetic'\nsamples = 1000000000000000",
        ]
    )
    files = [
        b"",
        b"\0" * 7,
        chance.randbytes(100),
        b"<html>not found</html>",
        header({}),
        header(b"[]"),
        header(b"{"),
        header(b"{" * 5000),
        header(b'{"a":' * 3000 + b"1" + b"}" * 3000),
        header({"w": entry([1], 0, 4)}, length=size),
        header({"w": entry([1], 0, 4)}),
        header({"w": entry([size], 0, 4)}, data=b"\0" * 4),
        header({"w": entry([size, size], 0, 4)}, data=b"\0" * 4),
        header({"w": entry([-1], 0, 4)}, data=b"\0" * 4),
        header({"w": entry([1], 4, 0)}, data=b"\0" * 4),
        header({"w": entry([1], 0, size)}, data=b"\0" * 4),
        header({"w": entry([1], 0, 4, "F33")}, data=b"\0" * 4),
        header({"w": entry([1], 0, 4), "v": entry([1], 0, 4)}, data=b"\0" * 4),
        header({"w": entry([1], 0, 4)}, data=b"\0" * 4),
        header({"w": {"dtype": "F32"}}),
        header({"w": 5}),
        header({"\x1b[2J\0": entry([1], 0, 4)}, data=b"\0" * 4),
        header({"é" * 10000: entry([1], 0, 4)}, data=b"\0" * 4),
        header({"__metadata__": 5}),
        header({"__metadata__": {"shoal": 5}}),
        header({"__metadata__": {"shoal": settings}}),
        header({"__metadata__": {"shoal": settings}, "w": entry([1], 0, 4)}, data=b"\0" * 4),
    ]
    kind = chance.randrange(len(files) + 4)
    if kind < len(files):
        path.write_bytes(files[kind])
    elif kind == len(files):
        os.mkfifo(path)
    elif kind == len(files) + 1:
        path.symlink_to("/dev/zero")
    elif kind == len(files) + 2:
        path.mkdir()
    named = chance.choice([[], MODEL])
    return ["evaluate", path.name, *named], {}


def run_folder(folder, chance):
    """A folder in the place of a run: of other content, of other kinds of files, or of nothing."""
    path = folder / "run"
    path.mkdir()
    texts = [
        b"",
        b"seed = ",
        b"\xff\xfe",
        b"seed = 'one'",
        b"[model]\nname = 'os:system'",
        b"[model]\nname = 'nothing'",
        f"x = {'[' * 3000}{']' * 3000}".encode(),
        f"seed = {DIGITS}".encode(),
        b"# Written by shoal. sha256 of the lines below: 00\nseed = 1\n",
        b'[model]\nname = "mlp"\nhidden = [99999999999]\n',
        b'[output]\nname = "../../evil"\n',
        b"[launch]\nworkers = 1000000000\n",
        b"\0",
        b"a" * 1000,
    ]
    config = path / "config.toml"
    way = chance.choice(["text", "text", "text", "fifo", "folder", "device", "nothing"])
    if way == "text":
        config.write_bytes(chance.choice(texts))
    elif way == "fifo":
        os.mkfifo(config)
    elif way == "folder":
        config.mkdir()
    elif way == "device":
        config.symlink_to("/dev/zero")
    if chance.choice([True, False]):
        manifest = chance.choice(
            [b"", b"{}", b"[]", b'{"format": 2}', b"{" * 5000, b'{"format": 1e400}', b"null"]
        )
        saved = path / "checkpoints" / chance.choice(["step-000003", "step-٣", f"step-{'9' * 200}", "step-"])
        saved.mkdir(parents=True)
        (saved / "manifest.json").write_bytes(manifest)
    events = chance.choice(
        [b"", b"{}\n", b"[]\n" * 3, b'{"event": "step"}\n', b'{"event": 5}\n{"event": []}\n', b"\xff\n"]
    )
    (path / "events.rank0.jsonl").write_bytes(events)
    result = chance.choice(
        [b"", b"[]", b"{}", b'{"status": "completed"}', b'{"status": 5, "steps": "x"}', b"NaN", b"{" * 9999]
    )
    (path / "result.json").write_bytes(result)
    words = chance.choice(
        [["train", "--resume", "run"], ["evaluate", "run"], ["compare", "run"], ["compare", "run", "run"]]
    )
    return words, {}


def variables(folder, chance):
    """Variables of the environment."""
    limit = chance.choice(
        ["soon", "nan", "inf", "-1", "0", "1e300", "1e-400", "٣", DIGITS, "\x1b[2J", "1_0 0"]
    )
    number = chance.choice(["x", "-1", "", "1.5", DIGITS, "\x1b[2J", "2"])
    several = [
        {"RANK": number, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"},
        {
            "RANK": "0",
            "WORLD_SIZE": number if number != "2" else "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "1",
        },
        {"RANK": "0"},
        {
            "RANK": "0",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": chance.choice(["x", "99999", "-5", DIGITS]),
        },
        {
            "RANK": "0",
            "WORLD_SIZE": "2",
            "MASTER_ADDR": chance.choice(["no such host", "\x1b[2J", "a" * 5000, "é" * 70]),
            "MASTER_PORT": "1",
        },
        {"SHOAL_TIMEOUT_S": limit},
    ]
    words = [
        "--strategy",
        "naive",
        "--workers",
        "2",
        "--launcher",
        "threads",
        *MODEL,
        "--quiet",
        "--steps",
        "1",
    ]
    return ["train", *words], chance.choice(several)


def comparison(folder, chance):
    """Comparisons, and recipes that refer to each other."""
    texts = [
        "recipe = 5",
        "recipe = 'nowhere'",
        "recipe = 'quickstart'\nvariants = 5",
        "recipe = 'quickstart'\n[variants]\na = 5",
        "recipe = 'quickstart'\n[variants]\na = ['--nothing', '1']",
        "recipe = 'quickstart'\n[variants]\na = '--epochs=x'",
        "recipe = 'quickstart'\n[variants]\n'../../evil' = '--epochs=1'",
        "recipe = 'quickstart'\n[variants]\n'\\u001b[2J' = 1",
        "recipe = 'a.toml'\n[variants]\na = ''",
        f"x = {'[' * 3000}{']' * 3000}",
        f"recipe = {DIGITS}",
        "\0",
    ]
    (folder / "a.toml").write_text(chance.choice(texts))
    return [chance.choice(["compare", "train"]), "a.toml"], {}
