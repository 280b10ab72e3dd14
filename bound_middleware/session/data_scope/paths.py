"""Where a path leads, and whether that is inside the folders of the scope. By resolution, never by substring.

A tool may read a text in more than one way: as it stands, with ``~`` expanded, as a ``file:`` URL, with
backslashes as separators, percent-decoded, normalised before it is opened. A path is inside only when every one of
these readings is, from every folder that a relative path may be taken from. Links are followed one by one, as the
kernel does it, also in the middle and where they dangle.

What resolution cannot see: a hard link inside a root to a file outside of it, and what happens between the check
and the use; ``open_scoped`` closes the second.
"""

from __future__ import annotations

import errno
import os
import re
import unicodedata
from collections.abc import Callable, Iterable
from urllib.parse import unquote, urlsplit

#: PATH_MAX and NAME_MAX of Linux: what is longer cannot be opened, and cannot be resolved either.
PATH_BYTES_MAX, NAME_BYTES_MAX = 4_095, 255
#: How many links the kernel follows in one path (MAXSYMLINKS of Linux).
LINKS_MAX = 40
#: How many ways to read one text are followed before it counts as an attempt to hide something.
READINGS_MAX = 24

_DRIVE = re.compile(r"[A-Za-z]:")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_FILE_URL = re.compile(r"file:", re.IGNORECASE)
# Names that Windows gives to devices in every folder, with any extension.
_DEVICE = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])\s*(?:\..*)?", re.IGNORECASE
)
_STREAM = re.compile(r":\$[A-Za-z_]+$")
#: What a path may run into without leading anywhere else: not a link, not there, not a folder, not readable.
_HARMLESS = frozenset({errno.EINVAL, errno.ENOENT, errno.ENOTDIR, errno.EACCES})
ON_WINDOWS = os.name == "nt"
LEAVES = "leads out of the permitted folders"


class Roots:
    """The folders that paths have to lead into, resolved once.

    Args:
        roots: as declared; a relative one starts at ``folder``, ``~`` is the home of whoever runs this.
        folder: the folder of the specification's file.
        windows: whether names mean what they mean on Windows.
    """

    __slots__ = ("folders", "windows")

    def __init__(self, roots: Iterable[str], *, folder: str | os.PathLike[str], windows: bool = ON_WINDOWS) -> None:
        starts = (os.path.join(os.path.abspath(folder), os.path.expanduser(root)) for root in roots)
        self.folders = tuple(dict.fromkeys(os.path.realpath(start) for start in starts))
        self.windows = windows

    def fault(self, given: object) -> str | None:
        """Why a value is no path inside the roots, in words; ``None`` when it is one."""
        try:
            path = os.fsdecode(given)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return "is no path"
        if not path.strip():
            return "is an empty path"
        if "\0" in path:
            return "has a null character"
        readings = readings_of(path)
        if readings is None:
            return "can be read in too many ways"
        for reading in readings:
            why = self._fault(reading)
            if why is not None:
                return why
        return None

    def _fault(self, reading: str) -> str | None:
        why = named_elsewhere(reading, windows=self.windows)
        if why is not None:
            return why
        if too_long(reading):
            return "is too long"
        for start in self._starts(reading):
            for path in {start, os.path.normpath(start)}:
                try:
                    if not self.holds(resolved(path)):
                        return LEAVES
                except (OSError, ValueError):
                    return "cannot be resolved"
        return None

    def _starts(self, reading: str) -> Iterable[str]:
        """The path itself, or from every folder that a relative one may be taken from."""
        if os.path.isabs(reading):
            return (reading,)
        try:
            here = os.getcwd()
        except OSError:  # the folder is gone, and nothing can be opened from it
            here = ""
        bases = (*self.folders, here) if self.holds(here) else self.folders
        return tuple(dict.fromkeys(os.path.join(base, reading) for base in bases)) or (os.path.join("/", reading),)

    def holds(self, path: str) -> bool:
        """Whether a resolved path is one of the roots, or below one."""
        return self.root_of(path) is not None

    def root_of(self, path: str) -> str | None:
        """The root that a resolved path is in."""
        return next((root for root in self.folders if _below(path, root)), None)


def readings_of(path: str) -> tuple[str, ...] | None:
    """Every way to read a text as a path, the text itself first; ``None`` when there are suspiciously many."""
    found = [path]
    for reading in found:
        for read in _READINGS:
            other = read(reading)
            if other and other not in found:
                found.append(other)
        if len(found) > READINGS_MAX:
            return None
    return tuple(found)


def _from_url(text: str) -> str:
    if _FILE_URL.match(text) is None:
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        return text
    host = parts.netloc
    path = text[len("file:") :] if not parts.path else parts.path
    # A host is a share of another machine, and is refused as one.
    return unquote(path if host.lower() in ("", "localhost") else f"//{host}{path}")


_READINGS: tuple[Callable[[str], str], ...] = (
    str.strip,
    os.path.expanduser,
    _from_url,
    unquote,
    lambda text: text.replace("\\", "/"),
)


def named_elsewhere(reading: str, *, windows: bool = ON_WINDOWS) -> str | None:
    """Why a name cannot be a path of this machine's folders, in words, before anything is resolved.

    Drives, shares and addresses are refused wherever this runs: no folder here has such a name. Streams, devices
    and names that lose their end are refused where they mean something, which is on Windows.
    """
    slashed = reading.replace("\\", "/")
    scheme = _SCHEME.match(reading)
    if scheme is not None and scheme[1].lower() != "file":
        return "is an address, not a path"
    if slashed.startswith("//"):
        return "names another machine or a device"
    if slashed == "~" or slashed.startswith("~/"):
        return None if os.path.expanduser(slashed) != slashed else "starts at a home that is not known"
    if _STREAM.search(reading):
        return "names a stream of a file"
    drive = _DRIVE.match(reading)
    if not windows:
        return "names a drive" if drive is not None else None
    if drive is not None and not slashed[2:].startswith("/"):
        return "starts at a drive's own folder"
    for name in (slashed[2:] if drive is not None else slashed).split("/"):
        if ":" in name:
            return "names a stream of a file"
        if _DEVICE.fullmatch(name):
            return "names a device"
        if name not in (".", "..") and name != name.rstrip(". "):
            return "ends with a dot or a space"
    return None


def too_long(path: str) -> bool:
    """Whether a path is longer than any that can be opened."""
    # Half of a surrogate pair has no bytes in UTF-8, and never names a file that exists.
    raw = path.encode("utf-8", "surrogatepass")
    return len(raw) > PATH_BYTES_MAX or any(len(name) > NAME_BYTES_MAX for name in raw.split(b"/"))


def resolved(path: str) -> str:
    """Where an absolute path leads when every link on it is followed.

    Like ``os.path.realpath``, but what cannot be followed is an error and never taken for a plain name.

    Raises:
        OSError: a loop of links, or a path that became too long on the way.
    """
    if ON_WINDOWS:  # pragma: no cover - the system's own resolution
        return os.path.realpath(path)
    at, todo, links = "/", path.split("/")[::-1], 0
    while todo:
        name = todo.pop()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)
            continue
        here = f"{at.rstrip('/')}/{name}"
        try:
            target = os.readlink(here)
        except OSError as error:
            if error.errno not in _HARMLESS:
                raise
            at = here
            continue
        links += 1
        if links > LINKS_MAX:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if target.startswith("/"):
            at = "/"
        todo.extend(target.split("/")[::-1])
    return at


def _below(path: str, root: str) -> bool:
    separator = "\\" if ON_WINDOWS else "/"
    stem = root.rstrip(separator) + separator
    if path == root or path.startswith(stem):
        return True
    # On a file system that ignores case (or the form of accents) the same folder has other names.
    names, count = path.split(separator), len(root.rstrip(separator).split(separator))
    same = separator.join(names[:count])
    if _folded(same) != _folded(root.rstrip(separator)):
        return False
    try:
        return os.path.samefile(same, root)
    except OSError:
        return False


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()
