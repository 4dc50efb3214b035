"""An agent's connection with its launcher, and the lines that workers print."""

import base64
import json
import os

import pytest

from shoal.launch.hosts.agent import Channel, LauncherGoneError, Output


@pytest.fixture
def channel():
    """The agent's channel, the launcher's descriptor to write to, and the one to read from."""
    (from_launcher, to_agent), (to_read, to_launcher) = os.pipe(), os.pipe()
    yield Channel(from_launcher, to_launcher), to_agent, to_read
    os.close(from_launcher)
    os.close(to_launcher)
    os.close(to_read)


def test_messages_that_come_together_are_all_kept(channel):
    agent, launcher, _ = channel
    os.write(launcher, b'{"port": 1}\n{"rank": 0, "signal": 2}\n{"ra')
    assert agent.next() == {"port": 1}
    assert list(agent.waiting) == [{"rank": 0, "signal": 2}]
    os.write(launcher, b'nk": 1}\n')
    assert [agent.next(), agent.next()] == [{"rank": 0, "signal": 2}, {"rank": 1}]
    os.close(launcher)
    with pytest.raises(LauncherGoneError):
        agent.next()


def test_output_is_sent_in_whole_lines(channel):
    agent, launcher, heard = channel
    os.close(launcher)
    output = Output(3, 2)
    for text, is_over, expected in (
        (b"one\ntw", False, b"one\n"),
        (b"o\n\xff", False, b"two\n"),
        (b"", True, b"\xff"),
    ):
        os.write(output.write_end, text)
        output.pass_on(agent, is_over)
        message = json.loads(os.read(heard, 1000))
        assert base64.b64decode(message.pop("text")) == expected
        assert message == {"kind": "printed", "rank": 3, "stream": 2}
    os.close(output.write_end)
    output.close()
