"""A server that speaks like SGLang 0.5.23 and breaks on demand: faults a real engine can't be made to show.

Replies are shaped after recordings of the real one. As a program it is a process that can crash; in a test's
own process it is a thread. A fault applies to completions whose max_tokens lies within its bounds.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # as a program it lies in no package

from tests.sim.sglang_faults import Behaviour, Fault, behaviour_from, die, load, log, prefill_line
from tests.sim.sglang_http import Handler, count_tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Behaviour", "Fault", "SimServer", "count_tokens"]


class SimServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.warm_at = time.monotonic() + behaviour.warm_s
        self.stopping = threading.Event()
        self.prompt_tokens = self.generated = self.reading = 0
        self.dying = False
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address

    def fault_for(self, output: int) -> Fault | None:
        with self._lock:
            for fault in self.behaviour.faults:
                if fault.min_output <= output <= fault.max_output:
                    fault.seen += 1
                    if fault.after < fault.seen <= fault.after + fault.times:
                        return fault
        return None

    @contextmanager
    def reading_a_prompt(self, tokens: int) -> Iterator[None]:
        prefill_line(tokens)
        with self._lock:
            self.reading += 1
            self.prompt_tokens += tokens
        try:
            yield
        finally:
            with self._lock:
                self.reading -= 1

    def count(self, generated: int) -> None:
        with self._lock:
            self.generated += generated

    def die(self, connection: socket.socket) -> None:
        if self.behaviour.death.how == "slow":
            # The port is refused before the process is gone, and the client's connection ends at once.
            self.dying = True
            self.shutdown()
            self.socket.close()
            connection.shutdown(socket.SHUT_RDWR)
        die(self.behaviour.death)

    def handle_error(self, *_: object) -> None:
        """A client that goes away is what half of these tests are about."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--behaviour", default="{}", help="JSON of Behaviour")
    options = parser.parse_args()
    behaviour = behaviour_from(json.loads(options.behaviour))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    load(behaviour.load_s)
    if behaviour.crash_loading:
        sys.stderr.write("RuntimeError: CUDA out of memory. Tried to allocate 20.00 GiB\n")
        sys.exit(1)
    with SimServer(options.port, behaviour) as server:
        if behaviour.keep_port_s:
            # An orphaned scheduler: it holds the listening socket, and is in no control group of the unit.
            subprocess.Popen(
                ["sleep", str(behaviour.keep_port_s)], pass_fds=[server.fileno()], start_new_session=True
            )
        log(f"INFO:     Uvicorn running on http://127.0.0.1:{options.port} (Press CTRL+C to quit)", "")
        if not behaviour.warm_s:
            log("The server is fired up and ready to roll!", "")
        server.serve_forever(0.05)
        while server.dying:
            time.sleep(1)


if __name__ == "__main__":
    main()
