"""What the tests of pages share: axe's findings, and a connection that can be cut."""

import contextlib
import select
import socket
import threading
from importlib import resources

SCREENS = {"desktop": (1280, 800, "light"), "night": (1280, 800, "dark"), "phone": (390, 844, "light"),
           "phone at night": (390, 844, "dark")}  # fmt: skip
"""Width, height and theme."""


def violations(tab):
    """The serious findings of axe about a page."""
    script = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
    tab.evaluate(script)
    found = tab.evaluate("axe.run()")["violations"]
    return [
        (each["id"], [node["html"][:120] for node in each["nodes"][:3]])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


class Cable:
    """Passes connections on to a port, until it is cut; it can be mended."""

    def __init__(self, target):
        self.target, self.port = target, 0
        self._open: set[socket.socket] = set()
        self.mend()

    def mend(self):
        self._listening = socket.create_server(("127.0.0.1", self.port))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def cut(self):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self, listening):
        with contextlib.suppress(OSError):
            while True:
                near, _ = listening.accept()
                far = socket.create_connection(("127.0.0.1", self.target))
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()

    def _pass_on(self, *both):
        self._open.update(both)
        with contextlib.suppress(OSError), both[0], both[1]:
            while True:
                for ready in select.select(both, [], [])[0]:
                    content = ready.recv(65536)
                    if not content:
                        return
                    both[ready is both[0]].sendall(content)
