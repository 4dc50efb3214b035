"""The server of the live page, on a real socket: who is answered, and what comes when."""

import http.client
import json
import re
import socket
from contextlib import ExitStack, contextmanager

import pytest
from growing import Growing

from shoal.errors import ConfigError
from shoal.watch.address import listener, new_token, url_of
from shoal.watch.page import LivePage
from shoal.watch.server import MOST_STREAMS, serving

TIMEOUT_S = 60


class Reader:
    """What one page does."""

    def __init__(self, port, token):
        self.port, self.token = port, token

    def ask(self, path="", method="GET", token=None, **headers):
        """The status, the headers and the text; the path is sent as it is, below the secret."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        token = self.token if token is None else token
        skip = "Host" in headers
        connection.putrequest(method, f"/{token}/{path}", skip_host=skip, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        text = "" if path == "events" and response.status == 200 else response.read().decode()
        return response.status, dict(response.headers.items()), text

    @contextmanager
    def events(self):
        """The events of the stream, one after another: their kind and their content."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT_S) as connection:
            connection.sendall(f"GET /{self.token}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            with connection.makefile("rb") as lines:
                status = lines.readline()
                assert b" 200 " in status, status
                while lines.readline().strip():
                    pass
                yield self._parsed(lines)

    @staticmethod
    def _parsed(lines):
        kind = "message"
        for line in lines:
            name, _, content = line.decode().strip().partition(": ")
            if name == "event":
                kind = content
            elif name.startswith("data"):
                yield kind, json.loads(content) if content else None
                kind = "message"


@pytest.fixture
def folder(tmp_path):
    made = Growing(tmp_path / "run", workers=2)
    made.begin()
    made.steps(0, 45)
    return made


@contextmanager
def served(path):
    listening, token = listener(), new_token()
    with serving(LivePage(path, None, "en"), listening, token):
        yield Reader(listening.getsockname()[1], token)


@pytest.fixture
def reader(folder):
    with served(folder.path) as reader:
        yield reader


def is_one_plain_line(answer, *statuses):
    status, headers, text = answer
    plain = headers["content-type"].startswith("text/plain")
    return status in statuses and plain and text.count("\n") == 1 and text.startswith(str(status))


def test_the_page_shows_the_run_without_its_script_and_loads_nothing_from_outside(reader):
    status, headers, page = reader.ask()
    assert status == 200
    assert "45 of 100" in page
    assert page.count("<svg") >= 3
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", page)
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.replace("style-src-attr 'unsafe-inline'", "")
    assert (headers["cache-control"], headers["referrer-policy"]) == ("no-store", "no-referrer")
    for name, kind in {
        "page.css": "text/css",
        "watch.js": "text/javascript",
        "timeline.js": "text/javascript",
    }.items():
        status, headers, text = reader.ask(name)
        assert (status, headers["content-type"].split(";")[0]) == (200, kind)
        assert text


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "127.0.0.1.evil.example",
        "localhost.evil",
        "",
        "[::1]",
        "127.0.0.1@evil",
    ],
)
def test_a_foreign_host_is_refused(reader, host):
    assert is_one_plain_line(reader.ask(Host=host), 403, 400)


def test_an_ssh_tunnel_may_have_another_port(reader):
    assert reader.ask(Host="localhost:9999")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_can_only_be_read(reader, method):
    answer = reader.ask(method=method, Origin="https://evil.example", Content_Length="0")
    assert is_one_plain_line(answer, 403)
    assert not any(name.startswith("access-control") for name in answer[1])


def test_another_site_may_not_embed_it(reader):
    assert is_one_plain_line(reader.ask(Sec_Fetch_Site="cross-site"), 403)


@pytest.mark.parametrize("token", ["", "wrong", "%00", "%C3%BC", "%FF", "a" * 5000])
def test_without_the_secret_nothing_is_shown(reader, token):
    assert is_one_plain_line(reader.ask(token=token), 403)


@pytest.mark.parametrize(
    "path",
    [
        "../config.toml", "..%2fconfig.toml", "%2e%2e/config.toml", "%2e%2e%2fconfig.toml", "..%5cconfig.toml",
        "%252e%252e%252fconfig.toml", "....//config.toml", "..%c0%afconfig.toml", "/etc/passwd", "page.css/../x",
        "page.css%00", "events/", "none",
    ],
)  # fmt: skip
def test_no_path_leads_to_a_file(reader, path):
    assert is_one_plain_line(reader.ask(path), 404, 403)


def test_names_and_logs_are_text(tmp_path):
    folder = Growing(tmp_path / "<script>alert(1)<script>")
    folder.begin(host="<img src=x onerror=alert(2)>")
    folder.steps(0, 3)
    folder.write(0, {"event": "failed", "error": "</ol><script>alert(3)</script>\x1b[2J"})
    (folder.path / "worker.rank0.log").write_text("<script>alert(4)</script>\n")
    with served(folder.path) as reader:
        page = reader.ask()[2]
        with reader.events() as events:
            _, parts = next(events)
    for text in (page, *parts.values()):
        assert not re.search(r"<script>|<img|\x1b", text)
    assert "&lt;script&gt;alert(4)" in page


def test_events_bring_what_changed(folder):
    with served(folder.path) as reader, reader.events() as events:
        kind, first = next(events)
        assert kind == "message"
        assert {"state", "loss", "workers", "timeline", "log"} <= first.keys()
        folder.steps(45, 50)
        _, changed = next(events)
        assert "50 of 100" in changed["state"]
        assert "timeline" not in changed  # step 40 is still the newest with spans
        folder.end()
        assert "finished" in next(events)[1]["state"]


def test_an_open_page_learns_that_the_command_has_ended(folder):
    with ExitStack() as stack:
        reader = stack.enter_context(served(folder.path))
        with reader.events() as events:
            next(events)
            folder.end()
            stack.close()
            found = list(events)
    assert any("finished" in parts.get("state", "") for kind, parts in found if kind == "message")
    assert found[-1] == ("end", None)


def test_two_hundred_pages_are_answered_at_once_and_a_few_may_stay(reader):
    refused = []
    streams = [socket.create_connection(("127.0.0.1", reader.port), timeout=TIMEOUT_S) for _ in range(200)]
    try:
        for stream in streams:
            stream.sendall(f"GET /{reader.token}/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        statuses = [stream.recv(15).split()[1] for stream in streams]
        refused = [status for status in statuses if status == b"403"]
        assert statuses.count(b"200") == MOST_STREAMS
        assert len(refused) == 200 - MOST_STREAMS
        assert reader.ask()[0] == 200
    finally:
        for stream in streams:
            stream.close()


def test_a_port_in_use_is_one_sentence():
    with listener() as taken, pytest.raises(ConfigError, match="cannot listen"):
        listener(taken.getsockname()[1])


def test_the_address_has_a_secret():
    with listener() as listening:
        assert len({new_token() for _ in range(3)}) == 3
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", url_of(listening, new_token()))
