"""What a program does to a run whose store and sockets it reaches, without the secret of the run.

As a program of its own it reads one line of JSON, {"store": [host, port], "sockets": [[host, port], …]}, and attacks
until its input ends. It prints how often it did what.
"""

import contextlib
import itertools
import json
import socket
import struct
import sys
import threading
from datetime import timedelta

import torch.distributed as dist

HUGE_SET = struct.pack("<BIBQ", 0, 0x3C85F7CE, 1, 2**60)
"""To torch's store: a greeting, and a key of 2⁶⁰ bytes."""


class Attack:
    """Forges, overwrites, deletes and replays entries of a store, and sends huge sizes to sockets."""

    def __init__(self, host, port):
        self.store = dist.TCPStore(host, port, is_master=False, timeout=timedelta(seconds=5))
        self.done = dict.fromkeys(("forged", "overwritten", "replayed", "huge"), 0)

    def run(self, sockets, is_over):
        """Attack again and again, until `is_over(seconds)` says yes."""
        store = self.store
        recorded = {key: store.get(key) for key in store.list_keys()}
        for garbage in itertools.cycle([b"", b"{", b"[" * 10_000, b"\x1b[2J", b"x" * (2 << 20)]):
            self._forge()
            for key in store.list_keys():
                store.set(key, garbage)
                self.done["overwritten"] += 1
            for key in store.list_keys()[::2]:
                store.delete_key(key)
            for key, value in recorded.items():
                store.set(key, value)
                self.done["replayed"] += 1
            self._send_huge_sizes(sockets)
            if is_over(0.05):
                return

    def _forge(self):
        """Entries as version 0.1.0 wrote and believed them."""
        for rank, join in itertools.product(range(2), ("", "shoal/0/0/", "shoal/0/0/gloo/")):
            self.store.set(f"{join}refusal", '["\\u001b[2J you are refused", ""]')
            self.store.set(f"{join}meet/refusal", '["you are refused", ""]')
            self.store.set(f"{join}presence/end/{rank}", f'["failed", {rank}, "rank {rank} failed: forged"]')
            self.store.set(f"{join}presence/idle/{rank}", "[1, 100000.0]")
            self.done["forged"] += 4

    def _send_huge_sizes(self, sockets):
        for address in sockets:
            for data in (HUGE_SET, b"\xff" * 4096, b""):
                with contextlib.suppress(OSError), socket.create_connection(address, 1) as stranger:
                    stranger.sendall(data)
                    self.done["huge"] += 1


def main():
    print("ready", flush=True)
    given = json.loads(sys.stdin.readline())
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
    attack = Attack(*given["store"])

    def is_over(seconds):
        print(json.dumps(attack.done), flush=True)
        return over.wait(seconds)

    with contextlib.suppress(dist.DistNetworkError):  # the store ends with the run
        attack.run([tuple(address) for address in given["sockets"]], is_over)


if __name__ == "__main__":
    main()
