"""The VM tier's parts that need no VM: the initial root's archive, and the order of the kernel's modules."""

import gzip

import pytest

from tests.lab.vm import cpio, parts


def entries(archive):
    """Name and content of each entry, by the format's own fields (kernel: early-userspace/buffer-format)."""
    data, at = gzip.decompress(archive), 0
    while at < len(data):
        assert data[at : at + 6] == b"070701"
        size, length = (int(data[at + 6 + 8 * field : at + 14 + 8 * field], 16) for field in (6, 11))
        name = data[at + 110 : at + 110 + length - 1].decode()
        start = at + 110 + length + -(110 + length) % 4
        yield name, data[start : start + size]
        at = start + size + -size % 4


def test_the_archive_holds_what_it_was_given(tmp_path):
    files = {"init": b"\x7fELF", "modules/00-a.ko": b"12345", "modules/01-b.ko": b""}

    cpio.write(tmp_path / "initrd", ["dev", "modules"], files)

    found = dict(entries((tmp_path / "initrd").read_bytes()))
    assert found == {"dev": b"", "modules": b"", **files, "TRAILER!!!": b""}


@pytest.fixture
def known(tmp_path):
    """Kernel modules as far as their list of needs goes."""

    def write(**needs):
        for name, text in needs.items():
            (tmp_path / f"{name}.ko").write_bytes(
                b"\x7fELF\0license=GPL\0depends=" + text.encode() + b"\0name=x\0"
            )
        return {name: tmp_path / f"{name}.ko" for name in needs}

    return write


def test_a_module_comes_after_what_it_needs(known):
    modules = known(virtio="", virtio_ring="", virtio_net="net-failover,virtio", net_failover="virtio_ring")

    assert parts._in_order(modules, ["virtio_net", "virtio"]) == [
        "virtio_ring",
        "net_failover",
        "virtio",
        "virtio_net",
    ]


def test_what_is_in_the_kernel_itself_is_no_module(known):
    assert parts._in_order(known(overlay="ext4"), ["overlay", "fuse"]) == ["overlay"]
