"""The path guard: by resolution on real folders, never by substring."""

import os
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bound_middleware.session.data_scope import paths
from bound_middleware.session.data_scope.paths import Roots, named_elsewhere, resolved


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "r"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("inside")
    (tmp_path / "r2").mkdir()
    (tmp_path / "secret.txt").write_text("outside")
    return root


@pytest.fixture
def guard(root):
    return Roots([str(root)], folder="/")


ALLOWED = [
    "a.txt",
    "./a/../b.txt",
    ".",
    "sub",
    "sub/",
    "sub/new/deep.txt",
    "app/[...slug]/page.tsx",
    "a..b.txt",
    "..hidden",
    "notes (1).md",
    "...",
    "~nobody-has-this-name.txt",
    "50%.txt",
    "a b.txt",
    "$id.tsx",
    "ünïcode.md",
    "a\\b.txt",
    "aux.c",
    "con.txt",
    "12:30.log",
    "foo::bar.rb",
    "name.",
    "file:a.txt",
    "file.txt:backup",
]
REFUSED = [
    "/etc/hosts",
    "../x",
    "a/../../x",
    "sub/../../secret.txt",
    "app/../../x",
    "C:\\x",
    "c:/x",
    "C:x",
    "D:",
    "~/x",
    "~",
    "~root/x",
    "\\\\server\\share\\x",
    "//server/share/x",
    "\\\\?\\C:\\x",
    "\\\\.\\pipe\\x",
    "a\\..\\..\\x",
    "..\\x",
    "file:///etc/passwd",
    "FILE:///etc/passwd",
    "file:/etc/passwd",
    "file://server/share",
    "file:..%2fx",
    "http://x/y",
    "s3://bucket/x",
    "%2e%2e/x",
    "..%2fx",
    "%252e%252e%252fx",
    " /etc/passwd",
    "\t../x",
    "a\0b",
    "a%00b/../../x",
    "",
    "   ",
    "x.txt::$DATA",
    "a" * 256,
    "a/" * 3000,
    "/proc/self/root/etc/passwd",
    "/",
    "..",
    "sub/../..",
    "/dev/null",
]


@pytest.mark.parametrize("path", ALLOWED)
def test_a_path_that_stays_inside_is_allowed_whatever_it_looks_like(guard, path):
    assert guard.fault(path) is None


@pytest.mark.parametrize("path", REFUSED)
def test_a_path_that_leads_out_by_any_reading_is_refused(guard, path):
    assert guard.fault(path)


def test_an_absolute_path_is_compared_by_folder_and_not_by_its_beginning(guard, root):
    assert guard.fault(f"{root}/a.txt") is None
    assert guard.fault(str(root)) is None
    assert guard.fault(f"{root}2/x")
    assert guard.fault(f"{root}/../r2/x")


@pytest.mark.parametrize("value", [None, 3, True, {}, {"path": "a"}, object()])
def test_what_is_no_path_is_refused(guard, value):
    assert guard.fault(value) == "is no path"


def test_paths_as_objects_and_bytes_are_judged_too(guard, root):
    assert guard.fault(root / "a.txt") is None
    assert guard.fault(b"a.txt") is None
    assert guard.fault(root.parent / "secret.txt")
    assert guard.fault(b"../secret.txt")


def test_links_are_followed_at_the_end_in_the_middle_and_where_they_dangle(guard, root):
    (root / "out").symlink_to(root.parent)
    (root / "file").symlink_to(root.parent / "secret.txt")
    (root / "dangling").symlink_to(root.parent / "new.txt")
    (root / "chain").symlink_to("dangling")
    (root / "in").symlink_to("sub")
    (root / "absolute").symlink_to(root / "sub")
    for path in ("out/secret.txt", "file", "dangling", "chain", "out", "in/../out/x", f"{root}/sub/../file"):
        assert guard.fault(path) == "leads out of the permitted folders", path
    for path in ("in/x", "absolute/x", "in/../a.txt"):
        assert guard.fault(path) is None, path


def test_a_tool_may_normalise_a_path_first_so_both_forms_have_to_be_inside(guard, root):
    (root / "sub" / "deep").mkdir()
    (root / "link").symlink_to("sub/deep")
    # The kernel goes to r/x, os.path.normpath to ../x.
    assert resolved(f"{root}/link/../../x") == f"{root}/x"
    assert guard.fault("link/../../x")
    # And here the other way round: the kernel to a.txt beside r, os.path.normpath to the one in it.
    (root / "out").symlink_to("../r2")
    assert resolved(f"{root}/out/../a.txt") == f"{root.parent}/a.txt"
    assert guard.fault("out/../a.txt")
    assert guard.fault("sub/../a.txt") is None


def test_a_loop_of_links_leads_nowhere(guard, root):
    (root / "loop").symlink_to("loop")
    assert guard.fault("loop/x") == "cannot be resolved"


def test_a_path_that_grows_beyond_what_the_system_resolves_is_refused(guard, root):
    """``realpath`` takes what it cannot look at for a plain name, and so misses the last link."""
    at, name = os.open(root, os.O_RDONLY), "d" * 250
    try:
        for _ in range(17):
            os.mkdir(name, dir_fd=at)
            below = os.open(name, os.O_RDONLY, dir_fd=at)
            os.close(at)
            at = below
        os.symlink("/etc", "evil", dir_fd=at)
    finally:
        os.close(at)
    first = root
    for i in range(3):
        (root / f"l{i}").symlink_to("/".join([name] * 6) if not i else f"l{i - 1}/" + "/".join([name] * 5))
    path = f"l2/{name}/evil/passwd"
    assert os.path.realpath(first / path).startswith(str(root))
    assert guard.fault(path) == "cannot be resolved"


def test_a_relative_path_is_inside_from_every_root_and_from_where_the_process_is(root, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    two = Roots([str(root), str(other)], folder="/")
    (other / "evil").symlink_to("/etc")
    assert two.fault("a.txt") is None
    assert two.fault("evil/passwd")
    one = Roots([str(root)], folder="/")
    (root / "sub" / "evil").symlink_to("/etc")
    assert one.fault("evil/passwd") is None
    monkeypatch.chdir(root / "sub")
    assert one.fault("evil/passwd")
    assert one.fault("a.txt") is None


def test_a_folder_that_is_gone_is_no_place_to_start_from(root, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert Roots([str(root)], folder="/").fault("a.txt") is None


def test_a_relative_root_starts_at_the_folder_of_the_file(root, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    assert Roots(["r"], folder=tmp_path).folders == (str(root),)
    assert Roots(["r"], folder=tmp_path).fault("a.txt") is None
    assert Roots(["."], folder=tmp_path).fault("secret.txt") is None


def test_no_roots_allow_nothing_and_the_root_of_everything_allows_all(root):
    assert Roots([], folder="/").fault("a.txt") == "leads out of the permitted folders"
    assert Roots(["/"], folder="/").fault("/etc/hosts") is None


def test_a_root_that_is_a_link_is_the_folder_it_leads_to(root, tmp_path):
    (tmp_path / "name").symlink_to("r")
    guard = Roots([str(tmp_path / "name")], folder="/")
    assert guard.fault(f"{tmp_path}/name/a.txt") is None
    assert guard.fault(f"{root}/a.txt") is None
    assert guard.fault(f"{tmp_path}/r2/a.txt")


def test_where_the_file_system_ignores_case_another_spelling_is_the_same_folder(root, monkeypatch):
    guard, upper = Roots([str(root)], folder="/"), f"{root.parent}/R/a.txt"
    assert guard.fault(upper)
    exact = os.path.samefile
    monkeypatch.setattr(paths.os.path, "samefile", lambda a, b: exact(str(a).replace("/R", "/r"), b))
    assert guard.fault(upper) is None
    assert guard.fault(f"{root.parent}/R2/a.txt")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a.txt:hidden", "names a stream of a file"),
        ("C:\\r\\a.txt:hidden", "names a stream of a file"),
        ("C:a.txt", "starts at a drive's own folder"),
        ("sub\\NUL", "names a device"),
        ("con.txt", "names a device"),
        ("COM1", "names a device"),
        ("lpt\u00b9.log", "names a device"),
        ("CONIN$", "names a device"),
        ("a.txt.", "ends with a dot or a space"),
        ("sub /a.txt", "ends with a dot or a space"),
        ("...", "ends with a dot or a space"),
        ("\\\\server\\share", "names another machine or a device"),
    ],
)
def test_on_windows_names_that_mean_something_else_are_refused(name, why):
    assert named_elsewhere(name, windows=True) == why


@pytest.mark.parametrize(
    "name", ["C:\\r\\a.txt", "a.txt", "..\\a", "console.txt", "nullable.py", "com10x", "a b.txt"]
)
def test_on_windows_other_names_are_left_to_resolution(name):
    assert named_elsewhere(name, windows=True) is None


# -- against a slow reference --------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")
PART = st.sampled_from([*NAMES, "..", ".", ""])
TARGET = st.builds(
    lambda up, parts: up + "/".join(parts), st.sampled_from(["", "ROOT/", "/", "TOP/"]), st.lists(PART, max_size=4)
)
TREE = st.lists(st.tuples(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3), st.none() | TARGET), max_size=8)


def grown(top: Path, tree) -> Path:
    root = top / "r"
    root.mkdir()
    for parts, target in tree:
        at = root.joinpath(*parts)
        try:
            at.parent.mkdir(parents=True, exist_ok=True)
            if target is None:
                at.mkdir(exist_ok=True)
            else:
                at.symlink_to(target.replace("ROOT", str(root)).replace("TOP", str(top)) or ".")
        except OSError:
            continue
    return root


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tree=TREE, path=st.lists(PART, min_size=1, max_size=5), absolute=st.booleans())
def test_the_guard_says_what_realpath_says_of_a_real_tree(tmp_path_factory, tree, path, absolute):
    root = grown(tmp_path_factory.mktemp("t"), tree)
    given_path = "/".join(path)
    if absolute:
        given_path = f"{root}/{given_path}"
    if not given_path.strip() or given_path.startswith("/") != absolute:
        return
    start = os.path.join(root, given_path)
    try:
        for form in (start, os.path.normpath(start)):
            os.path.realpath(form, strict=False)
            resolved(form)
        loops = False
    except OSError:
        loops = True
    inside = all(Path(os.path.realpath(form)).is_relative_to(root) for form in (start, os.path.normpath(start)))
    fault = Roots([str(root)], folder="/").fault(given_path)
    assert (fault is None) == (inside and not loops)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.sampled_from(string.ascii_letters[:3] + "./\\~:%2eEfF \0\n$[]"), max_size=24)
    | st.text(max_size=20)
)
def test_no_text_opens_a_file_outside_and_none_makes_the_guard_fail(tmp_path_factory, text):
    root = tmp_path_factory.mktemp("t") / "r"
    root.mkdir()
    if Roots([str(root)], folder="/").fault(text) is None:
        for form in (text, text.strip(), os.path.expanduser(text), text.replace("\\", "/")):
            assert Path(os.path.realpath(os.path.join(root, form))).is_relative_to(root)
