"""What a source was read with, so that a change of it is noticed (CUR-17). Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from towline.identity import digest_of


class Query(msgspec.Struct, frozen=True):
    """The text and parameters that a source was read with."""

    text: str
    params: Mapping[str, str | int | float | bool | None] = {}

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` over the text and the parameters sorted by name."""
        return digest_of(msgspec.json.encode([self.text, sorted(self.params.items())]))
