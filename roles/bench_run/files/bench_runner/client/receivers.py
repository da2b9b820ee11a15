"""Taking bytes from a socket with the time at which they came; how good that time is has a name."""

from __future__ import annotations

import os
import platform
import socket
import struct
import time
import weakref
from contextlib import suppress
from typing import Protocol

from bench_runner.client.clocks import ClockPair
from bench_runner.client.lags import Lags

READ_BYTES = 65536
# Linux; Python has no names for them. The new one is the same whatever the size of the machine's time_t.
_SO_TIMESTAMPNS_NEW = 64
_SO_TIMESTAMPNS_OLD = 35
_STAMP = struct.Struct("qq")
_ANCILLARY = socket.CMSG_SPACE(_STAMP.size)
_NS = 1_000_000_000
# The kernel turns stamping on in the background: the first bytes may lack one.
_TRIES = 25
_TRY_AGAIN_S = 0.002


class Receiver(Protocol):
    """`lags`: how long after the stamp this process took the bytes; the clock of its stamps is `clocks`."""

    @property
    def stamps(self) -> str:
        """Named in each result."""
        ...

    @property
    def clocks(self) -> ClockPair: ...

    @property
    def lags(self) -> Lags: ...

    @property
    def unstamped(self) -> int:
        """Reads without a stamp of the kernel's, where there should be one."""
        ...

    def begin(self) -> None:
        """The start of a run: what was before it doesn't count."""

    def prepare(self, sock: socket.socket) -> None:
        """Called once for each socket, before it connects."""

    def __call__(self, sock: socket.socket) -> tuple[bytes, int]: ...


class ReadTimeReceiver:
    """The time at which this process read: late by as much as it was busy, which it can't see itself."""

    stamps = "read_monotonic"

    def __init__(self) -> None:
        self.lags = Lags()
        self.clocks = ClockPair()
        self.unstamped = 0

    def begin(self) -> None:
        self.clocks.begin()

    def prepare(self, sock: socket.socket) -> None:
        """Nothing is needed of the socket."""

    def __call__(self, sock: socket.socket) -> tuple[bytes, int]:
        data = sock.recv(READ_BYTES)
        at_ns = time.monotonic_ns()
        # Where a server leaves Nagle on (llama.cpp's does), a chunk waits until the last one is acknowledged,
        # with a delayed acknowledgement up to 40 ms. The kernel forgets this setting, so it's set each time.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data, at_ns


class KernelReceiver:
    """The time at which the kernel got the bytes, however late this process reads them.

    Bytes that wait together are read together, with the stamp of the last: the parser counts such reads.
    """

    stamps = "kernel_realtime"

    def __init__(self, option: int = _SO_TIMESTAMPNS_NEW) -> None:
        self.lags = Lags()
        self.clocks = ClockPair()
        self.unstamped = 0
        self._option = option
        # While no socket wants stamps the kernel makes none, and it takes its time to begin again.
        holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.prepare(holder)
        weakref.finalize(self, os.close, holder.detach())

    def begin(self) -> None:
        self.lags = Lags()
        self.unstamped = 0
        self.clocks.begin()

    def prepare(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.SOL_SOCKET, self._option, 1)

    def __call__(self, sock: socket.socket) -> tuple[bytes, int]:
        data, ancillary, _, _ = sock.recvmsg(READ_BYTES, _ANCILLARY)
        now_ns = time.monotonic_ns()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)  # the reason: see ReadTimeReceiver
        if not ancillary:
            if data:
                self.unstamped += 1
            return data, now_ns
        seconds, nanoseconds = _STAMP.unpack(ancillary[0][2])
        at_ns = seconds * _NS + nanoseconds - self.clocks.offset_ns
        self.lags.add(now_ns - at_ns)
        return data, at_ns


def best_receiver() -> Receiver:
    """The kernel's stamps where a socket has them and they agree with the clock; else the read's time."""
    if platform.system() == "Linux" and platform.architecture()[0] == "64bit":
        for option in (_SO_TIMESTAMPNS_NEW, _SO_TIMESTAMPNS_OLD):
            with suppress(OSError):  # a kernel without the option
                receiver = KernelReceiver(option)
                if _stamps(receiver):
                    return receiver
    return ReadTimeReceiver()


def _stamps(receiver: KernelReceiver) -> bool:
    """Whether bytes over the loopback come with a stamp that lies between their sending and their reading."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        receiver.prepare(client)
        client.settimeout(1)
        client.connect(server.getsockname())
        with server.accept()[0] as peer:
            for _ in range(_TRIES):
                receiver.unstamped = 0
                sent_ns = time.monotonic_ns()
                peer.sendall(b"x")
                _, at_ns = receiver(client)
                if not receiver.unstamped and sent_ns - 1_000_000 < at_ns <= time.monotonic_ns():
                    receiver.lags = Lags()
                    return True
                time.sleep(_TRY_AGAIN_S)
    return False
