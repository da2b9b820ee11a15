"""nginx of the system on a free port of the loopback: a server that nobody here has written."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")

CONFIG = """
daemon off; worker_processes 2; pid {work}/pid; error_log {work}/error.log; user {user};
events {{ worker_connections 256; }}
http {{
  access_log {work}/access.log; types {{ application/json json; }} default_type application/octet-stream;
  client_body_temp_path {work}/body; proxy_temp_path {work}/proxy; fastcgi_temp_path {work}/fastcgi;
  uwsgi_temp_path {work}/uwsgi; scgi_temp_path {work}/scgi;
  sendfile on; tcp_nopush on; sendfile_max_chunk 2m;
  server {{
    listen 127.0.0.1:{port};
    location / {{ root {folder}; }}
    location /whole/ {{ alias {folder}/; max_ranges 0; }}
    location /slow/ {{ alias {folder}/; limit_rate 150k; sendfile_max_chunk 16k; }}
    location /gzip/ {{ alias {folder}/; gzip on; gzip_types *; gzip_min_length 1; }}
  }}
}}
"""


@contextlib.contextmanager
def nginx(folder: Path, work: Path) -> Iterator[str]:
    """Its URL. `/whole/` ignores Range, `/slow/` takes its time."""
    if PROGRAM is None:
        raise FileNotFoundError("nginx")
    work.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = work / "nginx.conf"
    config.write_text(CONFIG.format(folder=folder, work=work, port=port, user=work.owner()))
    command = [PROGRAM, "-p", str(work), "-c", str(config), "-e", str(work / "error.log")]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as running:
        try:
            _wait(port, running)
            yield f"http://127.0.0.1:{port}"
        finally:
            running.terminate()


def _wait(port: int, running: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while running.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    raise TimeoutError(f"nginx does not listen on {port}")
