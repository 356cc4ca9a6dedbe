"""How Go treats text, where the API server's answers depend on it: quoting in messages (``%q``) and trimming.

Source: Go's strconv.Quote, strings.TrimSpace.
"""

from __future__ import annotations

from typing import Final

SPACES: Final = (
    "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)
"""What strings.TrimSpace removes; Python's own strip() takes the separators \\x1c to \\x1f, too."""

_ESCAPES: Final = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def quote(text: str) -> str:
    """``text`` in double quotes with Go's escapes."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return '"' + "".join(_ESCAPES.get(c) or (c if c.isprintable() else _numeric(ord(c))) for c in text) + '"'


def _numeric(code: int) -> str:
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if 0xD800 <= code <= 0xDFFF:
        return "\\ufffd"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
