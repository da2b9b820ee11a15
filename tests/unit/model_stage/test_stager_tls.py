"""TLS as it is met: an authority that is not known, one that is, and a proxy in between."""

import socket
import ssl
import subprocess
import threading

import pytest
from model_stager.errors import NoSourceError
from model_stager.request import SourceSpec

from tests.sim.faulty_http import Fault
from tests.sim.hub import HubServer, Model

from .conftest import needed, published
from .network import files_server, request_of, staged


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """Its own authority, for the loopback."""
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=tests"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    made = subprocess.run(command, capture_output=True, check=False)
    assert made.returncode == 0, made.stderr.decode()
    return folder


def over_tls(server, certificate):
    """The server's URL, once its listening socket speaks TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return server.url.replace("http://", "https://")


@pytest.fixture
def server(files, tmp_path):
    with files_server(files, tmp_path) as server:
        yield server


@pytest.fixture
def url(server, certificate):
    return over_tls(server, certificate)


def test_an_authority_that_is_not_known_is_named_with_the_way_out(url, root):
    with pytest.raises(NoSourceError, match=r"certificate of 127\.0\.0\.1:\d+ can't be trusted .*SSL_CERT"):
        staged(request_of(root, SourceSpec("http", url=f"{url}/tiny")))


def test_the_hubs_authority_is_held_to_the_same(files, root, certificate):
    with HubServer(Model(files)) as hub:
        url = over_tls(hub, certificate)
        with pytest.raises(NoSourceError, match=r"certificate of https://127\.0\.0\.1:.* can't be trusted"):
            staged(request_of(root, SourceSpec("hub", url=url)))


def test_an_authority_that_is_added_is_believed(url, root, files, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    request = request_of(root, SourceSpec("http", url=f"{url}/tiny"))

    staged(request)

    assert published(request) == dict(sorted(files.items()))


def test_a_redirect_from_https_to_http_is_refused(server, url, root, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    server.faults[:] = [Fault("elsewhere", target="http://127.0.0.1:9/tiny.manifest.json")]

    with pytest.raises(NoSourceError, match="redirects from https to plain http"):
        staged(request_of(root, SourceSpec("http", url=f"{url}/tiny")))


class Tunnel:
    """A proxy that knows CONNECT only; keeps what it was asked."""

    def __init__(self):
        self.asked = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                line, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line):
        with line:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += line.recv(1)
            self.asked.append(head.decode())
            host, port = head.split()[1].decode().split(":")
            with socket.create_connection((host, int(port))) as far:
                line.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
                back = threading.Thread(target=self._pipe, args=(far, line), daemon=True)
                back.start()
                self._pipe(line, far)
                back.join(5)

    @staticmethod
    def _pipe(one, other):
        try:
            while block := one.recv(65536):
                other.sendall(block)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self):
        self._listener.close()


def test_https_goes_through_the_proxy_of_the_environment(url, root, files, certificate, monkeypatch):
    tunnel = Tunnel()
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    monkeypatch.setenv("https_proxy", f"http://user:p%40ss@127.0.0.1:{tunnel.port}")
    request = request_of(root, SourceSpec("http", url=f"{url}/tiny"))

    outcome = staged(request)
    tunnel.close()

    assert published(request) == dict(sorted(files.items()))
    assert tunnel.asked
    assert all("Proxy-Authorization: Basic dXNlcjpwQHNz" in head for head in tunnel.asked)
    assert "p@ss" not in outcome.sentence(request)


@pytest.mark.parametrize(
    ("answer", "said"),
    [(b"", "Connection refused"), (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "407 Proxy Auth")],
    ids=["away", "wants a password"],
)
def test_a_proxy_that_does_not_lead_on_is_named(root, monkeypatch, answer, said):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        if not answer:
            listener.close()

        def refuse():
            with listener.accept()[0] as line:
                line.recv(1000)
                line.sendall(answer)

        thread = threading.Thread(target=refuse) if answer else threading.Thread()
        thread.start()
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
        with pytest.raises(
            NoSourceError, match=rf"the proxy 127\.0\.0\.1:{port} of the environment .*{said}"
        ):
            staged(request_of(root, SourceSpec("http", url="https://models.invalid/tiny")))
        thread.join()


def test_the_hub_and_its_cdn_are_reached_over_tls(files, root, certificate, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    with HubServer(Model(files)) as hub:
        url = over_tls(hub, certificate)
        hub.cdn.shown = over_tls(hub.cdn, certificate)
        request = request_of(root, SourceSpec("hub", url=url))

        staged(request)

        assert published(request) == needed(files)
        assert hub.cdn.seen
