"""Detects the death of another rank while this one computes.

A collective operation on MLX's ring fails if a peer's process has ended, but only once it is reached: perhaps after
minutes of playing. So rank 0 holds an additional socket to every other rank. A closed one, or a long silence, means a
lost rank: the next `check` raises, and a process whose main thread does not get there in time is ended.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from legos_train.errors import RankLost

BEAT, GRACE, SILENCE, CONNECT = 1.0, 5.0, 60.0, 30.0
"""Seconds between heartbeats; for the main thread to end by itself; until a peer counts as lost; to connect."""


class Watch:
    """Watches the other ranks: rank 0 watches all of them; the others watch rank 0, which exits if any rank is lost.

    Args:
        share: gives every rank the bytes of rank 0.
        host: the address at which the others reach rank 0.
    """

    def __init__(self, rank: int, size: int, share: Callable[[bytes], bytes], host: str = "127.0.0.1"):
        self.lost: str | None = None
        self._since = 0.0
        self._ended = threading.Event()
        self._peers: dict[socket.socket, int] = (
            self._listen(size, share, host) if rank == 0 else self._call(rank, share)
        )
        self._thread = threading.Thread(target=self._work, name="legos-peers", daemon=True)
        self._thread.start()

    def _listen(self, size: int, share: Callable[[bytes], bytes], host: str) -> dict[socket.socket, int]:
        with socket.create_server((host, 0)) as server:
            server.settimeout(CONNECT)
            secret = secrets.token_hex(16)
            share(json.dumps([host, server.getsockname()[1], secret]).encode())
            peers: dict[socket.socket, int] = {}
            while len(peers) < size - 1:
                try:
                    peer, _ = server.accept()
                    peer.settimeout(CONNECT)
                    word, _, number = peer.recv(64).decode("ascii", "replace").partition(" ")
                except TimeoutError as error:
                    raise RankLost(f"only {len(peers)} of {size - 1} ranks have connected to rank 0") from error
                if word == secret:
                    peers[peer] = int(number)
                else:
                    peer.close()
            return peers

    def _call(self, rank: int, share: Callable[[bytes], bytes]) -> dict[socket.socket, int]:
        host, port, secret = json.loads(share(b""))
        try:
            peer = socket.create_connection((host, port), timeout=CONNECT)
            peer.sendall(f"{secret} {rank}".encode())
        except OSError as error:
            raise RankLost(f"rank 0 cannot be reached at {host}:{port} ({error})") from error
        return {peer: 0}

    def check(self) -> None:
        """Raises RankLost if another rank has been lost."""
        if self.lost is not None:
            raise RankLost(self.lost)

    def _work(self) -> None:
        heard = dict.fromkeys(self._peers, time.monotonic())
        while not self._ended.is_set():
            readable = select.select(list(heard), [], [], BEAT)[0] if heard else []
            if not heard:
                self._ended.wait(BEAT / 4)
            now = time.monotonic()
            for peer in list(heard):
                rank = self._peers[peer]
                try:
                    gone = peer in readable and not peer.recv(4096)
                    peer.sendall(b".")
                except OSError:
                    gone = True
                if gone:
                    self._lose(f"rank {rank} has ended")
                elif peer in readable:
                    heard[peer] = now
                elif now - heard[peer] > SILENCE:
                    gone = True
                    self._lose(f"rank {rank} has not been heard from for {SILENCE:.0f} s")
                if gone:
                    del heard[peer]
            if self.lost is not None and now - self._since > GRACE and not self._ended.is_set():
                print(f"error: {RankLost(self.lost)}", file=sys.stderr, flush=True)
                os._exit(1)  # the main thread waits for a rank that is gone; checkpoints survive any kill

    def _lose(self, what: str) -> None:
        if self.lost is None and not self._ended.is_set():
            self.lost, self._since = what, time.monotonic()

    def close(self) -> None:
        """Stops watching; to the others this rank has ended."""
        self._ended.set()
        for peer in self._peers:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join(BEAT * 3)
        for peer in self._peers:
            peer.close()


def host_of_rank_0() -> str:
    """The address of rank 0: the first one in the ring's host file (`MLX_HOSTFILE`), else this machine's name."""
    file = os.environ.get("MLX_HOSTFILE")
    if not file:
        return socket.gethostname()
    address: str = json.loads(Path(file).read_text())[0][0]
    return address.rpartition(":")[0]
