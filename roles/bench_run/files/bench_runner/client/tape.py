"""The pieces of a body with their times, kept small: a cell's answers are read only after its end."""

from __future__ import annotations

import itertools
from array import array
from typing import TYPE_CHECKING

import zstandard
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterator

# What may lie unpacked: for a few hundred streams at once no more than some MB. It differs from one to the
# next: streams of one server grow alike, and all would be packed at once, which takes as long as some chunks.
_LOOSE_BYTES = itertools.cycle(range(8192, 24576, 1024))
_LEVEL = 1  # a stream's events are all alike: about a tenth is left, at 0.05 ms a block


class Piece(Struct, frozen=True, gc=False):
    """Part of a body and when it came (CLOCK_MONOTONIC)."""

    at_ns: int
    data: bytes


class _Block(Struct, frozen=True):
    packed: bytes
    sizes: array[int]
    at_ns: array[int]


class Tape:
    """Append only, read in order."""

    def __init__(self) -> None:
        self.size = 0
        self._blocks: list[_Block] = []
        self._loose: list[Piece] = []
        self._loose_size = 0
        self._limit = next(_LOOSE_BYTES)

    def append(self, at_ns: int, data: bytes) -> None:
        self._loose.append(Piece(at_ns, data))
        self.size += len(data)
        self._loose_size += len(data)
        if self._loose_size >= self._limit:
            self.pack()

    def pack(self) -> None:
        if not self._loose:
            return
        packed = _COMPRESSOR.compress(b"".join([piece.data for piece in self._loose]))
        sizes = array("L", [len(piece.data) for piece in self._loose])
        self._blocks.append(_Block(packed, sizes, array("q", [piece.at_ns for piece in self._loose])))
        self._loose, self._loose_size = [], 0

    def __iter__(self) -> Iterator[Piece]:
        for block in self._blocks:
            whole = _DECOMPRESSOR.decompress(block.packed)
            start = 0
            for at_ns, size in zip(block.at_ns, block.sizes):
                yield Piece(at_ns, whole[start : start + size])
                start += size
        yield from self._loose

    def read(self) -> bytes:
        return b"".join(piece.data for piece in self)


_COMPRESSOR = zstandard.ZstdCompressor(level=_LEVEL)
_DECOMPRESSOR = zstandard.ZstdDecompressor()
