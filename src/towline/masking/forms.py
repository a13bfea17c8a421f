"""The forms in which a value may stand in text: quoted, escaped and encoded (SEC-03). Pure."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from html import escape
from urllib.parse import quote, quote_plus

SHORT = 4
"""Values with fewer characters are masked only where they stand apart, and not in encodings (SEC-06)."""

_SHELL_SPECIAL = re.compile(r"([^A-Za-z0-9_@%+=:,./-])")
_IN_DOUBLE_QUOTES = re.compile(r'([$`"\\])')
_PERCENT = re.compile(r"%[0-9A-F]{2}")


def forms_of(value: str) -> set[str]:
    """Return every text that stands for the value.

    The lines of a value with several are forms too, but for those too short to be told from ordinary text.
    """
    forms = {value, *_escaped(value)}
    if len(value) >= SHORT:
        forms |= _encoded(value)
    lines = value.splitlines()
    if len(lines) > 1:
        for line in (line.strip() for line in lines):
            if len(line) >= SHORT:
                forms |= {line, *_escaped(line)}
    forms.discard("")
    return forms


def _escaped(value: str) -> set[str]:
    """As JSON, Python, XML, a shell or a URL would write it."""
    json_ascii = json.dumps(value)[1:-1]
    json_plain = json.dumps(value, ensure_ascii=False)[1:-1]
    xml = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    percent = {quote(value, safe=safe, errors="surrogatepass") for safe in ("", "/", "!*'()")}
    percent.add(quote_plus(value, errors="surrogatepass"))
    return {
        json_ascii,
        json_plain,
        json_ascii.replace("/", "\\/"),
        json_plain.replace("/", "\\/"),
        repr(value)[1:-1],
        ascii(value)[1:-1],
        repr(value.encode("utf-8", "surrogatepass"))[2:-1],
        xml,
        xml.replace('"', "&quot;"),
        xml.replace('"', "&quot;").replace("'", "&apos;"),
        escape(value),
        escape(value).replace("&#x27;", "&#39;"),
        value.replace("'", "'\"'\"'"),
        value.replace("'", "'\\''"),
        _SHELL_SPECIAL.sub(r"\\\1", value),
        _IN_DOUBLE_QUOTES.sub(r"\\\1", value),
        *percent,
        *(_PERCENT.sub(lambda match: match.group().lower(), text) for text in percent),
    }


def _encoded(value: str) -> set[str]:
    """In base64, at each of the three places a value can have in a longer text, and in hex."""
    data = value.encode("utf-8", "surrogatepass")
    forms = {data.hex(), data.hex().upper()}
    for offset in range(3):
        # Characters that depend on the value alone; those at the rims mix with the bytes around it.
        text = b64encode(bytes(offset) + data).decode("ascii")
        forms.add(text[-(-8 * offset // 6) : 8 * (offset + len(data)) // 6])
    whole = b64encode(data).decode("ascii")
    forms |= {whole, whole.rstrip("=")}
    return forms | {form.replace("+", "-").replace("/", "_") for form in forms}
