"""Which host a URL leads to, and whether it is on a list. What two readers could read differently leads nowhere.

Hosts are compared exactly, after both are brought to one form: lower case, punycode, no dot at the end. A number in
brackets or in four parts is an address, and has to be on the list as such; other ways of writing a number
(``2130706433``, ``0x7f.1``) are none. A port that is not that of the scheme has to be on the list with its host.
"""

from __future__ import annotations

import html
import ipaddress
import re
from collections.abc import Collection, Iterable
from urllib.parse import urlsplit

#: Ports that need not be named.
_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
#: What browsers drop, or read as a slash, where Python does not.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\u3000\ufeff]")
_REST = r"[^\s<>\"'()\[\]{}|^`]+"
#: Addresses wherever they stand in Markdown, HTML or plain text: with two slashes, which a browser also reads with
#: a line break between them; with a scheme of the web and fewer slashes, which it completes; and such as a reader
#: makes a link of by itself.
_LINK = re.compile(
    rf"(?:[a-z][a-z0-9+.-]{{1,20}}:)?[/\\][\t\r\n]*[/\\]{_REST}|(?:https?|wss?|ftp):{_REST}|\bwww\.{_REST}",
    re.IGNORECASE,
)
#: What has a scheme of its own where Markdown or HTML lead somewhere: the target of a link or an image, an address
#: in angle brackets, an attribute, where browsers drop line breaks within the scheme, what a style or a page loads.
_TARGETS = (
    re.compile(r"(?:\]\(|\]:)[\s<]*([a-z][a-z0-9+.-]*:[^\s<>\"'()]+)", re.IGNORECASE),
    re.compile(r"<([a-z][a-z0-9+.-]{1,31}:[^\s<>]*)>", re.IGNORECASE),
    re.compile(
        r"(?:\b(?:href|src|srcset|(?:form)?action|data|poster|background|cite|ping|url)\s*=|\burl\()"
        r"[\s<\"'`]*([a-z][a-z0-9+.\t\r\n-]*:[^\s<>\"'`()]+)",
        re.IGNORECASE,
    ),
)
#: What Markdown reads as the sign behind the backslash.
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
#: Letters that nobody sees and some readers drop.
_UNSEEN = re.compile(r"[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")


def host_of(text: str) -> str | None:
    """The host of an http(s) URL, with its port where that is not the scheme's; ``None`` where it is not clear."""
    if not isinstance(text, str) or _AMBIGUOUS.search(text):
        return None
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or "@" in parts.netloc or not parts.hostname:
        return None
    host = one_form(f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname)
    if host is None:
        return None
    return host if port in (None, _PORTS[parts.scheme]) else f"{host}:{port}"


def one_form(host: str) -> str | None:
    """A host name or address in the form in which it is compared; ``None`` when it is none."""
    if host.startswith("["):
        try:
            return f"[{ipaddress.IPv6Address(host[1:-1])}]" if host.endswith("]") else None
        except ValueError:
            return None
    try:
        name = host.rstrip(".") if not host.endswith("..") else ""
        plain = name.encode("idna").decode("ascii").lower() if not name.isascii() else name.lower()
    except UnicodeError:
        return None
    labels = plain.split(".")
    if len(plain) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        return None
    if labels[-1].isdigit() or labels[-1].startswith("0x"):
        try:
            return str(ipaddress.IPv4Address(plain))
        except ValueError:
            return None
    return plain


def listed(entry: str) -> str | None:
    """An entry of a list of hosts (``example.com``, ``example.com:8443``, ``*.example.com``) in the form above."""
    wild = "*." if entry.startswith("*.") else ""
    host, colon, port = entry.removeprefix("*.").rpartition(":")
    if not colon or not port.isdigit() or (entry.startswith("[") and not host.endswith("]")):
        host, port = entry.removeprefix("*."), ""
    found = one_form(host)
    if found is None or (wild and (found.startswith("[") or found.replace(".", "").isdigit())):
        return None
    return f"{wild}{found}:{int(port)}" if port else f"{wild}{found}"


def is_listed(url: str, hosts: Iterable[str]) -> bool:
    """Whether a URL clearly leads to one of the hosts. ``*.example.com`` is every host below it, and not itself."""
    host = host_of(url)
    return host is not None and _among(host, {found for entry in hosts if (found := listed(entry)) is not None})


def _among(host: str, hosts: Collection[str]) -> bool:
    if host in hosts:
        return True
    if host.startswith("[") or host.replace(".", "").partition(":")[0].isdigit():
        return False
    labels = host.split(".")
    return any(f"*.{'.'.join(labels[i:])}" in hosts for i in range(1, len(labels)))


def links(text: str) -> tuple[str, ...]:
    """Every address in a text that somebody who shows it could follow or load, as it is written.

    Also such as appear only once the text is read as HTML or Markdown, or letters that nobody sees are dropped.
    """
    found: dict[str, None] = {}
    plain = html.unescape(text)
    bare = _ESCAPED.sub(r"\1", plain)
    for form in dict.fromkeys((text, plain, bare, _UNSEEN.sub("", plain), _UNSEEN.sub("", bare))):
        targets = (m[1] for pattern in _TARGETS for m in pattern.finditer(form))
        for address in (*(m.group() for m in _LINK.finditer(form)), *targets):
            shown = address.rstrip(".,;:!?*_\u2026")
            found[f"http://{shown}" if shown.lower().startswith("www.") else shown] = None
    return tuple(found)
