"""``open_scoped``: what is checked is what is opened, whatever is swapped in between."""

import os
import pickle
import threading

import pytest

from bound_middleware import BoundSession, BoundSpec, SpecError
from bound_middleware.session.data_scope import OutsideScope, open_scoped, scope_of
from bound_middleware.session.data_scope.opening import walk
from bound_middleware.session.data_scope.paths import Roots


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "r"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("inside")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("outside")
    return root


def session_on(*roots, **more):
    scope = {"roots": [str(root) for root in roots]}
    return BoundSession(BoundSpec.from_dict({"bounds": {"data_access_scope": scope}}), **more)


def content(path, **more):
    with open_scoped(path, **more) as file:
        return file.read()


def breaches(session):
    return [event.detail for event in session.events if event.name == "data_scope"]


def test_a_file_inside_is_read_written_and_added_to(root):
    with session_on(root) as session:
        with open_scoped("sub/../a.txt") as file:
            assert file.read() == "inside"
        with open_scoped(root / "new.txt", "w") as file:
            file.write("ü")
        with open_scoped("new.txt", "ab") as file:
            file.write(b"!")
        assert (root / "new.txt").read_text("utf-8") == "ü!"
        with pytest.raises(FileExistsError):
            open_scoped("new.txt", "x")
        with pytest.raises(FileNotFoundError):
            open_scoped("missing.txt")
        with pytest.raises(IsADirectoryError):
            open_scoped("sub")
        with pytest.raises(IsADirectoryError):
            open_scoped("sub/..")
    assert breaches(session) == []


@pytest.mark.parametrize("path", ["../out/a.txt", "/etc/hosts", "link/a.txt", "file", "~/x", "a\0b", "dangling"])
@pytest.mark.parametrize("mode", ["r", "w", "a", "x", "r+b"])
def test_a_file_outside_is_refused_in_every_mode_and_stays_as_it_was(root, path, mode):
    (root / "link").symlink_to("../out")
    (root / "file").symlink_to(root.parent / "out" / "a.txt")
    (root / "dangling").symlink_to("../out/new.txt")
    with session_on(root) as session, pytest.raises(OutsideScope) as error:
        open_scoped(path, mode)
    assert (root.parent / "out" / "a.txt").read_text() == "outside"
    assert sorted(p.name for p in (root.parent / "out").iterdir()) == ["a.txt"]
    assert isinstance(error.value, PermissionError)
    assert pickle.loads(pickle.dumps(error.value)).because == error.value.because
    if "\0" not in path:
        assert [detail["seam"] for detail in breaches(session)] == ["open_scoped"]


def test_links_that_stay_inside_are_followed(root):
    (root / "relative").symlink_to("sub/../a.txt")
    (root / "absolute").symlink_to(root / "relative")
    (root / "folder").symlink_to("sub")
    with session_on(root):
        for path in ("relative", "absolute", "folder/../a.txt"):
            assert content(path) == "inside"
        open_scoped("folder/new.txt", "w").close()
    assert (root / "sub" / "new.txt").exists()


def test_special_files_are_refused_and_a_pipe_does_not_hold_the_caller(root):
    os.mkfifo(root / "pipe")
    with session_on(root), pytest.raises(OutsideScope, match="no regular file"):
        open_scoped("pipe")


def test_without_a_session_nothing_is_opened_and_without_roots_paths_are_not_bounded(root):
    with pytest.raises(OutsideScope, match="no session"):
        open_scoped(root / "a.txt")
    with BoundSession({}):
        assert content(root / "a.txt") == "inside"


def test_a_scope_can_be_given_where_no_session_is_entered(root):
    session = session_on(root)
    for scope in (session, scope_of(session), pickle.loads(pickle.dumps(scope_of(session)))):
        assert content("a.txt", scope=scope) == "inside"
        with pytest.raises(OutsideScope):
            open_scoped("../out/a.txt", scope=scope)


def test_sessions_around_each_other_all_have_to_allow_it(root):
    with session_on(root.parent), session_on(root):
        assert content("a.txt") == "inside"
        with pytest.raises(OutsideScope):
            open_scoped(root.parent / "out" / "a.txt")
    with session_on(root), session_on(root.parent):
        with pytest.raises(OutsideScope):
            open_scoped(root.parent / "out" / "a.txt", "w")
        assert (root.parent / "out" / "a.txt").read_text() == "outside"
        assert content(root / "a.txt") == "inside"


def test_in_shadow_mode_the_file_is_opened_and_the_trace_says_what_would_have_been_refused(root):
    with session_on(root, shadow=True) as session:
        assert content(root.parent / "out" / "a.txt") == "outside"
    (detail,) = breaches(session)
    assert "leads out" in detail["because"][0]


def test_a_folder_that_is_swapped_for_a_link_after_the_check_leads_nowhere_else(root):
    roots = Roots([str(root)], folder="/")
    (root / "sub" / "a.txt").write_text("inside")
    swapped = []

    def swap(name):
        if name == "sub" and not swapped:
            swapped.append(name)
            (root / "sub").rename(root / "was")
            (root / "sub").symlink_to("../out")

    with pytest.raises(OutsideScope):
        walk((roots,), "sub/a.txt", os.O_RDONLY, between=swap)
    assert swapped
    assert roots.fault("was/a.txt") is None


def test_what_is_found_has_to_be_in_every_root_before_it_is_opened(root):
    inner, outer = Roots([str(root / "sub")], folder="/"), Roots([str(root)], folder="/")
    with pytest.raises(OutsideScope):
        walk((inner, outer), "a.txt", os.O_WRONLY | os.O_TRUNC)
    assert (root / "a.txt").read_text() == "inside"
    os.close(walk((inner, outer), "sub/new.txt", os.O_WRONLY | os.O_CREAT))


def test_a_file_that_is_swapped_for_a_link_after_the_check_is_not_followed(root):
    def swap(name):
        if name == "a.txt" and not (root / "a.txt").is_symlink():
            (root / "a.txt").unlink()
            (root / "a.txt").symlink_to("../out/a.txt")

    with pytest.raises(OutsideScope):
        walk((Roots([str(root)], folder="/"),), "a.txt", os.O_WRONLY | os.O_TRUNC, between=swap)
    assert (root.parent / "out" / "a.txt").read_text() == "outside"


def test_while_another_thread_swaps_links_as_fast_as_it_can_nothing_outside_is_read(root):
    for name, target in (("good", "sub"), ("bad", "../out")):
        (root / name).symlink_to(target)
    (root / "sub" / "a.txt").write_text("inside")
    (root / "x").symlink_to("sub")
    stop = threading.Event()

    def swapping():
        while not stop.is_set():
            for target in ("../out", "sub"):
                os.symlink(target, root / "next")
                os.replace(root / "next", root / "x")

    thread = threading.Thread(target=swapping)
    thread.start()
    seen = set()
    try:
        with session_on(root):
            for _ in range(1500):
                try:
                    with open_scoped("x/a.txt") as file:
                        seen.add(file.read())
                except OutsideScope:
                    seen.add("refused")
    finally:
        stop.set()
        thread.join()
    assert seen <= {"inside", "refused"}
    assert "inside" in seen


def test_no_descriptor_stays_open(root):
    (root / "link").symlink_to("../out")

    def open_now():
        return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0

    with session_on(root):
        before = open_now()
        for path in ("sub/../a.txt", "link/a.txt", "missing/x", "sub"):
            try:
                open_scoped(path).close()
            except OSError:
                continue
        assert open_now() == before


def test_the_scope_is_asked_of_a_session_and_a_call_without_one_has_none(root):
    with pytest.raises(SpecError, match="no session bounds this call"):
        scope_of()
    with session_on(root, tenant="acme") as session:
        assert scope_of() is scope_of(session)
        assert scope_of().owner("tenant") == "acme"
        with pytest.raises(OutsideScope, match="no user"):
            scope_of().owner("user")
