"""Signed texts: what one process hands to another, so that only who has the key can make or change it.

A text is ``bound1.PAYLOAD.MAC``: canonical JSON and the HMAC-SHA256 (RFC 2104) of it, both in base64url without
padding (RFC 4648). The MAC covers the version and the kind, so that a report is never taken for a marker. It is
compared in constant time, over the bytes that came, before anything in them is read.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from typing import Any, Literal

from ..core.errors import SpecError
from ..core.events import canonical_bytes

Kind = Literal["marker", "report"]
Reason = Literal["malformed", "forged", "expired", "used", "other_session"]

KEY_VARIABLE = "BOUND_MARKER_KEY"
_VERSION = "bound1"
_WORDS: Mapping[str, str] = {
    "malformed": "this is no {kind} of this version; give the text as it was made",
    "forged": "the {kind} was changed or signed with another key; both sides need the same {variable}",
    "expired": "the {kind} has expired; what was held for it is settled; make a new one",
    "used": "the {kind} was used before; each is good for one time; make a new one",
    "other_session": "the {kind} belongs to another session or ledger; give it to the one it was made for",
}


class MarkerError(SpecError):
    """A marker or a report will not do, and nothing was done, unless ``note`` says what.

    ``reason`` is ``malformed``, ``forged`` (changed, or another key), ``expired``, ``used`` or ``other_session``.
    """

    code = "marker_error"

    def __init__(self, reason: Reason, kind: Kind, *, note: str | None = None) -> None:
        text = _WORDS[reason].format(kind=kind, variable=KEY_VARIABLE)
        super().__init__(f"{text}; {note}" if note else text, key=kind)
        self.reason, self.kind, self.note = reason, kind, note


def key_of(key: Any) -> bytes:
    """The secret as bytes; of ``None``, the one in the environment.

    Raises:
        SpecError: there is none, or it is empty or no text.
    """
    found = os.environ.get(KEY_VARIABLE) if key is None else key
    if isinstance(found, str):
        found = found.encode("utf-8", "surrogateescape")
    if not isinstance(found, bytes) or not found:
        # The value is a secret, or was meant to be one: it is not repeated.
        raise SpecError(
            "markers are signed, and there is no key for it",
            key="key",
            allowed=f"a secret text or bytes that both sides have, as key= or in {KEY_VARIABLE}",
        )
    return found


def signed(values: Mapping[str, Any], kind: Kind, key: bytes) -> str:
    """The text that carries ``values``, plain JSON."""
    payload = canonical_bytes(values)
    return ".".join((_VERSION, _text(payload), _text(_mac(payload, kind, key))))


def verified(text: Any, kind: Kind, key: bytes) -> dict[str, Any]:
    """What a text carries, when it was signed with ``key`` as this kind.

    Raises:
        MarkerError: ``malformed`` or ``forged``.
    """
    parts = text.split(".") if isinstance(text, str) else []
    if len(parts) != 3 or parts[0] != _VERSION:
        raise MarkerError("malformed", kind)
    payload, mac = (_bytes(part, kind) for part in parts[1:])
    if not hmac.compare_digest(mac, _mac(payload, kind, key)):
        raise MarkerError("forged", kind)
    values: dict[str, Any] = json.loads(payload)
    return values


def _mac(payload: bytes, kind: Kind, key: bytes) -> bytes:
    return hmac.new(key, f"{_VERSION}.{kind}.".encode() + payload, hashlib.sha256).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str, kind: Kind) -> bytes:
    try:
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (ValueError, binascii.Error):
        raise MarkerError("malformed", kind) from None
    if _text(data) != text:
        raise MarkerError("malformed", kind)
    return data
