"""Names of tools are exact. What only looks like one of them is none, and the model is told which one it is like.

Two names look alike when they are equal after Unicode's compatibility form (NFKC), without case, marks and
separators, with letters of other scripts read as the Latin ones that they are drawn like, and without a namespace
in front (``functions.read_file``, ``fs/read_file``).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

#: Letters that are drawn like Latin ones, and are not made so by NFKC: Cyrillic, Greek, Armenian, and a few others.
_DRAWN_LIKE = {
    ord(letter): latin
    for letters, latins in (
        (
            "\u0430\u0432\u0435\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0443\u0445\u0456\u0458\u0455\u0501\u051b\u051d\u04bb\u04cf",
            "abekmhopctyxijsdqwhl",
        ),
        (
            "\u03b1\u03b2\u03b3\u03b5\u03b9\u03ba\u03bd\u03bf\u03c1\u03c3\u03c4\u03c5\u03c7\u0269\u0131\u0261\u0251",
            "abyeikvopotuxiiga",
        ),
        ("\u0578\u057d\u0585\u0581\u0570", "nuogh"),
    )
    for letter, latin in zip(letters, latins, strict=True)
}
_SEPARATORS = ".:/-_ "
_STROKES = str.maketrans("01i|", "olll")
#: Ends of a name in front of the tool's own.
_NAMESPACE_ENDS = (".", "/", ":")


def folded(name: str) -> str:
    """What a name looks like."""
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", name).casefold())
    seen = "".join(c for c in plain if unicodedata.category(c)[0] not in "MCZ" and c not in _SEPARATORS)
    return seen.translate(_DRAWN_LIKE).translate(_STROKES)


def looks_like(name: str, known: Iterable[str]) -> str | None:
    """The one of ``known`` that a name is to be taken for, or a misspelling of; ``None`` for the name itself."""
    names = sorted(set(known))
    if name in names:
        return None
    shapes = {folded(other): other for other in reversed(names)}
    parts = [name, *(name.rpartition(end)[2] for end in _NAMESPACE_ENDS if end in name)]
    for shape in map(folded, parts):
        if shape in shapes:
            return shapes[shape]
    close = get_close_matches(folded(name)[:200], list(shapes), 1, 0.8)
    return shapes[close[0]] if close else None
