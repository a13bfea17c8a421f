"""Replace registered secrets by ``***`` in everything that is shown, stored or sent (SEC-01 .. SEC-06, SEC-10)."""

from __future__ import annotations

import threading
from bisect import bisect_left
from typing import TYPE_CHECKING

from towline.errors.secrets import SecretError, SecretLimitError
from towline.masking.secret import MASK, Secret, read_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ahocorasick_rs import AhoCorasick

    from towline.masking.stream import MaskedStream

VALUES_LIMIT, VALUE_LIMIT_BYTES = 1_000, 64 * 1024
"""SEC-10."""

_HEAD = 4


class Masker:
    """Knows the secrets of a process and masks text; made once, used by every thread.

    Until something is registered ``mask`` gives its text back at once. The automaton is built at the first
    text after a registration: a hundred secrets in a row cost one build. ``tell`` hears of each new value
    in the thread that registers it: the log viewer of a CI system is told to hide it too (SEC-08).
    """

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self._tell = tell
        self._values: dict[str, None] = {}
        self._forms: dict[str, bool] = {}  # form -> whether it needs to stand apart
        self._compiled: CompiledForms | None = None
        self._stale = False
        self._lock = threading.Lock()
        self._warned = False

    @property
    def values(self) -> tuple[str, ...]:
        """The registered values, for the private pipe of a child process (SEC-07)."""
        return tuple(self._values)

    def register(self, value: str) -> None:
        """Mask this value from now on; a second time changes nothing.

        Raises:
            SecretError: The value is empty.
            SecretLimitError: It is larger than 64 KiB, or the thousandth and first (SEC-10).
        """
        # Imported with the first secret, like the automaton.
        from towline.masking.forms import SHORT, forms_of

        if not value:
            raise SecretError("an empty value cannot be masked: it stands everywhere. Leave it unregistered.")
        size = len(value.encode("utf-8", "surrogatepass"))
        if size > VALUE_LIMIT_BYTES:
            raise SecretLimitError("bytes of one value", size, VALUE_LIMIT_BYTES)
        with self._lock:
            if value in self._values:
                return
            if len(self._values) >= VALUES_LIMIT:
                raise SecretLimitError("number of values", len(self._values) + 1, VALUES_LIMIT)
            short = len(value) < SHORT
            for form in forms_of(value):
                # A form that another value wants everywhere stays masked everywhere.
                self._forms[form] = self._forms.get(form, True) and short
            self._values[value] = None
            self._stale = True
            warn = short and not self._warned
            self._warned = self._warned or short
        if self._tell is not None:
            self._tell(value)
        if warn:
            import logging

            logging.getLogger("towline.masking").warning(
                "a secret of fewer than %d characters is masked only where it stands between other characters than "
                "letters and digits; use a longer one",
                SHORT,
            )

    def secret(self, name: str, environ: Mapping[str, str]) -> Secret:
        """Read a secret from the environment and register it (SEC-01).

        Raises:
            SecretMissingError: No variable holds it; names the variable, never a value.
        """
        value = read_secret(name, environ)
        self.register(value)
        return Secret(value)

    def mask(self, text: str) -> str:
        """Return the text with every form of every registered value replaced by ``***``."""
        compiled = self.compiled()
        if compiled is None:
            return text
        spans = compiled.spans(text)
        return replaced(text, spans) if spans else text

    def contains(self, text: str) -> bool:
        """Say whether a registered value stands in the text, in any form (SEC-09)."""
        compiled = self.compiled()
        return compiled is not None and bool(compiled.spans(text))

    def stream(self) -> MaskedStream:
        """Return a masker of text that comes in chunks (SEC-05)."""
        from towline.masking.stream import MaskedStream

        return MaskedStream(self)

    def compiled(self) -> CompiledForms | None:
        """Return the automaton of what is registered now; ``None`` while that is nothing."""
        if self._stale:
            with self._lock:
                self._compiled, self._stale = CompiledForms(self._forms), False
        return self._compiled


class CompiledForms:
    """An Aho-Corasick automaton over all forms, and their beginnings for text that stops in the middle of one."""

    def __init__(self, forms: Mapping[str, bool]) -> None:
        # Imported with the first secret: a run without one does not pay for it.
        from ahocorasick_rs import AhoCorasick, MatchKind

        sendable = {_aligned(form): apart for form, apart in forms.items()}
        self._sorted = sorted(sendable)
        self._apart = [sendable[form] for form in self._sorted]
        self._automaton: AhoCorasick = AhoCorasick(self._sorted, matchkind=MatchKind.Standard)
        self._any_apart = any(self._apart)
        self._heads = {form[:length] for form in self._sorted for length in range(1, _HEAD + 1)}
        self.longest = max(map(len, self._sorted))

    def spans(self, text: str, before: str = "", *, ended: bool = True) -> list[tuple[int, int]]:
        """Return what is to be masked, as merged ``(start, end)`` in order.

        Overlapping matches become one, so that no part of either secret is left beside a mask.

        Args:
            text: Where to look.
            before: The character in front of it, empty at the beginning.
            ended: Whether the text ends here; if not, a short value at its very end is undecided and left out.
        """
        text = _aligned(text)
        matches = [
            (start, end)
            for index, start, end in self._automaton.find_matches_as_indexes(text, overlapping=True)
            if not self._any_apart or not self._apart[index] or _stands_apart(text, start, end, before, ended=ended)
        ]
        return merged(matches)

    def undecided_from(self, text: str) -> int:
        """Return where the longest tail begins that may become a form with the text to come (SEC-05)."""
        text = _aligned(text)
        size = len(text)
        for start in range(max(0, size - self.longest), size):
            if text[start : start + _HEAD] not in self._heads:
                continue
            tail = text[start:]
            place = bisect_left(self._sorted, tail)
            while place < len(self._sorted) and self._sorted[place].startswith(tail):
                # A form that needs to stand apart also waits for the character after it.
                if len(self._sorted[place]) > len(tail) or self._apart[place]:
                    return start
                place += 1
        return size


def merged(matches: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Join spans that overlap."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted(matches):
        if spans and start < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def replaced(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return the text with a mask in place of each span."""
    parts: list[str] = []
    at = 0
    for start, end in spans:
        parts += text[at:start], MASK
        at = end
    parts.append(text[at:])
    return "".join(parts)


def _stands_apart(text: str, start: int, end: int, before: str, *, ended: bool) -> bool:
    left = text[start - 1] if start else before
    if left.isalnum():
        return False
    return not text[end].isalnum() if end < len(text) else ended


def _aligned(text: str) -> str:
    """Put a stand-in for each lone surrogate, one for one: the automaton takes only what UTF-8 can hold."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= character <= "\udfff" else character for character in text)
    return text
