"""Published data sets in miniature, with a catalogue of their own sums, and a mirror on loopback to fetch them from."""

import gzip
import hashlib
import http.server
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from shoal.data.sources.catalogue import CATALOGUE, Archive, Catalogue, DataFile, Entry
from shoal.data.sources.formats import RECORD_BYTES, encode_idx


def file_of(name: str, content: bytes) -> DataFile:
    return DataFile(name, len(content), hashlib.sha256(content).hexdigest())


def idx_contents(seed: int, train: int = 30, test: int = 20) -> dict[str, bytes]:
    generator = torch.Generator().manual_seed(seed)
    contents: dict[str, bytes] = {}
    for part, count in (("train", train), ("t10k", test)):
        pictures = torch.randint(0, 256, (count, 4, 5), dtype=torch.uint8, generator=generator)
        labels = (torch.arange(count) % 10).to(torch.uint8)
        contents[f"{part}-images-idx3-ubyte"] = bytes(encode_idx(pictures))
        contents[f"{part}-labels-idx1-ubyte"] = bytes(encode_idx(labels))
    return contents


def cifar_contents() -> dict[str, bytes]:
    generator = torch.Generator().manual_seed(3)
    contents: dict[str, bytes] = {}
    for name in (*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"):
        records = torch.randint(0, 256, (6, RECORD_BYTES), dtype=torch.uint8, generator=generator)
        records[:, 0] %= 10
        contents[name] = records.numpy().tobytes()
    return contents


def tar_of(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


@dataclass
class Published:
    """The data sets in miniature: what their files hold, and the catalogue that pins them."""

    contents: dict[str, dict[str, bytes]]
    archive: bytes
    catalogue: Catalogue = field(init=False)

    def __post_init__(self) -> None:
        entries: dict[str, Entry] = {}
        for name, contents in self.contents.items():
            real = CATALOGUE[name]
            files = tuple(file_of(file, content) for file, content in contents.items())
            entries[name] = Entry(name, real.sentence, real.credit, files, real.subfolders)
        summed = file_of("cifar-10-binary.tar.gz", self.archive)
        archive = Archive(summed.name, summed.size, summed.sha256, "cifar-10-batches-bin")
        cifar = entries["cifar10"]
        entries["cifar10"] = Entry(
            cifar.name, cifar.sentence, cifar.credit, cifar.files, cifar.subfolders, archive=archive
        )
        self.catalogue = entries

    def write(self, name: str, folder: Path, packed: bool = False) -> Path:
        """The files of a data set, in a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in self.contents[name].items():
            if packed:
                (folder / f"{file}.gz").write_bytes(gzip.compress(content))
            else:
                (folder / file).write_bytes(content)
        return folder


@pytest.fixture
def published() -> Published:
    contents = {"mnist": idx_contents(1), "fashion-mnist": idx_contents(2), "cifar10": cifar_contents()}
    members = {f"cifar-10-batches-bin/{name}": content for name, content in contents["cifar10"].items()}
    readme = {"cifar-10-batches-bin/readme.html": b"<html>about</html>"}
    return Published(contents, tar_of({"../evil": b"evil", **readme, **members, "/tmp/evil": b"evil"}))


@pytest.fixture(autouse=True)
def no_data_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees, or writes into, the data folders of the user who runs it."""
    monkeypatch.delenv("SHOAL_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@dataclass
class Mirror:
    """A server on loopback: `answers` maps a path to (status, promised length, body)."""

    address: str
    answers: dict[str, tuple[int, int, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def serve(self, path: str, body: bytes, status: int = 200, promised: int | None = None) -> None:
        self.answers[f"/{path}"] = (status, len(body) if promised is None else promised, body)


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            status, promised, body = served.answers.get(self.path, (404, 0, b""))
            self.send_response(status)
            self.send_header("Content-Length", str(promised))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Mirror(f"http://127.0.0.1:{server.server_port}/")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def make_tar():
    return tar_of
