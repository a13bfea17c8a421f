"""Mask text that comes in chunks: no value slips through between two of them (SEC-05)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from towline.masking.masker import merged
from towline.masking.secret import MASK

if TYPE_CHECKING:
    from towline.masking.masker import Masker


class MaskedStream:
    """Give it chunks, get masked text; what it gave in all is what the whole text masked would be.

    It keeps back only the longest tail that may still become a secret. The caller shows the rest at once,
    calls ``end`` when the text is over, and may look at ``held`` to see that something waits.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = ""
        self._before = ""
        self._masked = 0  # so many characters of what is held belong to a span whose mask is out already

    @property
    def held(self) -> int:
        """Characters that are kept back."""
        return len(self._held)

    def feed(self, chunk: str) -> str:
        """Take the next chunk; return what can be shown now, masked."""
        return self._take(chunk, ended=False)

    def end(self) -> str:
        """Return what was kept back, masked: nothing follows. Harmless twice."""
        return self._take("", ended=True)

    def _take(self, chunk: str, *, ended: bool) -> str:
        compiled = self._masker.compiled()
        text, self._held = self._held + chunk, ""
        if compiled is None:
            return text
        cut = len(text) if ended else compiled.undecided_from(text)
        spans = compiled.spans(text, self._before, ended=ended)
        if self._masked:
            spans = merged([*spans, (0, self._masked)])
        shown: list[str] = []
        at, masked_beyond = 0, max(0, self._masked - cut)
        for start, end in spans:
            if start >= cut:
                break
            shown.append(text[at:start])
            if start or not self._masked:
                shown.append(MASK)
            at = end
            masked_beyond = max(0, end - cut)
        if at < cut:
            shown.append(text[at:cut])
        self._held, self._masked = text[cut:], masked_beyond
        self._before = text[cut - 1] if cut else self._before
        return "".join(shown)
