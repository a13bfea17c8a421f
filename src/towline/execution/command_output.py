"""What a command writes: cut into lines for the log, and kept up to a cap for the result (CMD-07, CMD-08)."""

from __future__ import annotations

import codecs
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LINE_LIMIT: Final = 64 * 1024
"""Characters of one line in the log; longer ones are split."""

CAPTURE_LIMIT: Final = 1024 * 1024
"""Bytes of one stream in the result: the first and the last half of these."""


class LineSplitter:
    """Cuts a stream of bytes into masked lines as they come.

    A carriage return ends a line like a line feed does: progress bars would else be one endless line.
    Bytes that are no text appear as ``\\xNN`` (CMD-11). A line that grows without end is masked while 128 KiB
    of it are held and given out up to 64 KiB, so that no secret below that size is cut before it is seen.
    """

    def __init__(self, encoding: str | None, mask: Callable[[str], str]) -> None:
        self._decoder = codecs.getincrementaldecoder(encoding or "utf-8")("backslashreplace")
        self._mask = mask
        self._open = ""
        self._after_return = False

    def feed(self, data: bytes) -> list[str]:
        """Take some bytes and return the lines that are complete now."""
        return self._split(self._decoder.decode(data))

    def end(self) -> list[str]:
        """Return what is left, the stream being over."""
        lines = self._split(self._decoder.decode(b"", final=True))
        if self._open:
            lines.extend(_pieces(self._mask(self._open)))
            self._open = ""
        return lines

    def _split(self, text: str) -> list[str]:
        if self._after_return and text:
            self._after_return = False
            text = text.removeprefix("\n")
        if not text:
            return []
        self._after_return = text.endswith("\r")
        whole = (self._open + text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._open = whole.pop()
        lines = [piece for line in whole for piece in _pieces(self._mask(line))]
        if len(self._open) >= 2 * LINE_LIMIT:
            self._open = self._mask(self._open)
            while len(self._open) > LINE_LIMIT:
                lines.append(self._open[:LINE_LIMIT])
                self._open = self._open[LINE_LIMIT:]
        return lines


def _pieces(line: str) -> list[str]:
    if len(line) <= LINE_LIMIT:
        return [line]
    return [line[at : at + LINE_LIMIT] for at in range(0, len(line), LINE_LIMIT)]


class CappedOutput:
    """Keeps the first and the last half of a stream; never refuses data, so that the writer never waits."""

    def __init__(self, limit_bytes: int = CAPTURE_LIMIT) -> None:
        self._half = limit_bytes // 2
        self._first = bytearray()
        self._last: deque[bytes] = deque()
        self._last_bytes = 0
        self._dropped_bytes = 0

    @property
    def truncated(self) -> bool:
        """Whether something is missing in the middle."""
        return self._dropped_bytes > 0

    def feed(self, data: bytes) -> None:
        """Take some bytes."""
        room = self._half - len(self._first)
        if room > 0:
            self._first += data[:room]
            data = data[room:]
        if not data:
            return
        self._last.append(data)
        self._last_bytes += len(data)
        while self._last_bytes > self._half:
            surplus = self._last_bytes - self._half
            oldest = self._last.popleft()
            if len(oldest) > surplus:
                self._last.appendleft(oldest[surplus:])
                oldest = oldest[:surplus]
            self._last_bytes -= len(oldest)
            self._dropped_bytes += len(oldest)

    def value(self) -> bytes:
        """Return what was kept, with a marker where something is missing."""
        marker = f"\n[... {self._dropped_bytes} bytes left out ...]\n".encode() if self.truncated else b""
        return bytes(self._first) + marker + b"".join(self._last)

    def text(self, encoding: str) -> str:
        """Return it as text; what cannot be decoded appears as ``\\xNN``."""
        return self.value().decode(encoding, "backslashreplace")


def tail_of(text: str, lines: int = 40) -> str:
    """Return the last lines of a text."""
    return "\n".join(text.splitlines()[-lines:])
