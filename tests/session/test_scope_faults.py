"""What of a call's arguments is outside of the scope: paths, tenants, users."""

import json

import pytest

from bound_middleware import BoundSession, BoundSpec, SpecError
from bound_middleware.core.limits import Limits
from bound_middleware.session.data_scope import OutsideScope, faults, scope_of, scopes_of
from bound_middleware.session.data_scope.scope import scope_from

RULES = (
    ("read", "path", "kind", "path"),
    ("read", "more", "kind", "path"),
    ("read", "path", "length_max", 10),
    ("orders", "tenant", "kind", "tenant"),
    ("orders", "user", "kind", "user"),
)


def limits(**scope):
    return Limits(argument_rules=RULES, **scope)


def judged(args, *, tool="read", owner=None, **scope):
    return faults(limits(**scope), owner or {}, tool, args)


def test_a_path_argument_is_judged_by_the_roots_and_in_words_without_the_roots(tmp_path):
    assert judged({"path": "a.txt"}, roots=(str(tmp_path),)) == ()
    (words,) = judged({"path": "/etc/hosts"}, roots=(str(tmp_path),))
    assert words == "path: '/etc/hosts' leads out of the permitted folders"


def test_every_path_of_a_list_and_of_every_argument_is_judged(tmp_path):
    roots = (str(tmp_path),)
    assert judged({"path": ["a", ["b"]], "more": ("c",)}, roots=roots) == ()
    assert len(judged({"path": ["a", ["../b"], "/c"], "more": {"../d"}}, roots=roots)) == 3


def test_an_argument_that_is_left_out_or_of_another_tool_is_not_judged(tmp_path):
    assert judged({}, roots=(str(tmp_path),)) == ()
    assert judged({"path": "/etc/hosts"}, tool="other", roots=(str(tmp_path),)) == ()
    assert judged({"elsewhere": "/etc/hosts"}, roots=(str(tmp_path),)) == ()


@pytest.mark.parametrize("args", ["/etc/hosts", None, ["/etc/hosts"]])
def test_arguments_without_names_cannot_be_judged_and_are_refused(tmp_path, args):
    assert judged(args, roots=(str(tmp_path),)) == ("the arguments have no names",)
    assert judged(args, tool="other", roots=(str(tmp_path),)) == ()


def test_a_path_where_no_folder_is_declared_is_refused_and_the_text_says_why():
    (words,) = judged({"path": "a.txt"})
    assert words == "path: 'a.txt' is a path, and the scope declares no folders"


def test_the_model_may_repeat_whose_data_it_is_and_cannot_choose():
    scope = {"tool": "orders", "owner": {"tenant": "acme", "user": "ann"}, "tenant": "session", "user": "session"}
    assert judged({"tenant": "acme", "user": "ann"}, **scope) == ()
    assert judged({"tenant": "globex"}, **scope) == ("tenant: 'globex' is not the tenant of the scope",)
    for value in (None, "", "ACME", "acme ", "acme\0", 1, True, {"$ne": ""}, "*", ["acme", "globex"]):
        assert judged({"tenant": value}, **scope), value


def test_a_tenant_that_is_declared_and_not_known_or_another_one_allows_nothing():
    args = {"tenant": "acme"}
    assert "opened for no tenant" in judged(args, tool="orders", tenant="session")[0]
    assert "opened for another tenant" in judged(args, tool="orders", tenant="acme", owner={"tenant": "globex"})[0]
    assert "opened for no tenant" in judged(args, tool="orders")[0]
    assert judged(args, tool="orders", tenant="acme") == ()
    assert judged(args, tool="orders", owner={"tenant": "acme"}) == ()


def test_another_tenant_is_let_through_only_by_a_declared_exception_which_is_named_with_its_reason():
    agreed = (("tenant:globex", "they merged"), ("user:bob", "stands in for ann"))
    scope = scope_from(
        limits(tenant="session", user="session", cross_scope=agreed), {"tenant": "acme", "user": "ann"}
    )
    finding = scope.examine("orders", {"tenant": "globex", "user": "bob"})
    assert finding.faults == ()
    assert [(c["crossed"], c["reason"], c["argument"]) for c in finding.crossings] == [
        ("tenant:globex", "they merged", "tenant"),
        ("user:bob", "stands in for ann", "user"),
    ]
    assert scope.examine("orders", {"tenant": "acme", "user": "ann"}).crossings == ()
    assert scope.examine("orders", {"tenant": "bob", "user": "globex"}).faults
    assert scope.examine("orders", {"tenant": "initech"}).faults


def test_no_exception_helps_where_it_is_not_known_whose_session_it_is():
    scope = scope_from(limits(tenant="session", cross_scope=(("globex", "merged"),)), {})
    assert scope.examine("orders", {"tenant": "globex"}).faults


def test_a_secret_in_an_argument_is_not_in_the_words_and_a_long_one_is_cut(tmp_path):
    roots = (str(tmp_path),)
    (words,) = judged({"path": "/x/password=hunter2"}, roots=roots)
    assert "hunter2" not in words
    (words,) = judged({"path": "/" + "x" * 900}, roots=roots)
    assert len(words) < 300
    (words,) = judged({"path": "/x/case-4711"}, roots=roots, redact=("case-[0-9]+",))
    assert "4711" not in words


def test_relative_roots_start_at_the_folder_of_the_specification(tmp_path, monkeypatch):
    (tmp_path / "project" / "inner").mkdir(parents=True)
    file = tmp_path / "project" / "bound.yml"
    data = {
        "bounds": {
            "data_access_scope": {"roots": ["inner"]},
            "action_surface": {"allowed": [{"tool": "read", "args": {"path": "path"}}]},
        }
    }
    file.write_text(json.dumps({"version": 1, **data}))
    monkeypatch.chdir(tmp_path)
    for path in (file, "project/bound.yml"):
        scope = scope_of(BoundSession(path))
        monkeypatch.chdir("/")
        assert scope.examine("read", {"path": f"{tmp_path}/project/inner/a"}).faults == ()
        assert scope.examine("read", {"path": f"{tmp_path}/inner/a"}).faults
        assert scope.reads_disk("read")
        assert not scope.reads_disk("other")
        monkeypatch.chdir(tmp_path)
    child = BoundSession(file).child("helper")
    assert scope_of(child).examine("read", {"path": f"{tmp_path}/project/inner/a"}).faults == ()
    assert scope_of(child).examine("read", {"path": f"{tmp_path}/inner/a"}).faults


def test_a_child_has_the_scope_and_the_owner_of_its_parent():
    spec = BoundSpec.from_dict({"bounds": {"data_access_scope": {"tenant": "session", "user": "session"}}})
    child = BoundSession(spec, tenant="acme", user="ann").child("helper")
    assert (scope_of(child).tenant, scope_of(child).user) == ("acme", "ann")


def test_sessions_of_two_tenants_around_one_call_leave_nothing_to_ask_for():
    spec = BoundSpec.from_dict({"bounds": {"data_access_scope": {"tenant": "session"}}})
    with BoundSession(spec, tenant="acme"), BoundSession(spec, tenant="globex"):
        assert [scope.tenant for scope in scopes_of()] == ["acme", "globex"]
        with pytest.raises(OutsideScope, match="more than one tenant"):
            scope_of()
    with BoundSession(spec), pytest.raises(OutsideScope, match="no tenant"):
        scope_of()


def test_the_session_of_a_runtime_is_found_by_its_config():
    session = BoundSession({}, tenant="acme")

    class Runtime:
        config = {"configurable": {"bound_session_id": session.session_id}}  # noqa: RUF012

    assert scope_of(Runtime()).tenant == "acme"
    assert scope_of({"metadata": {"bound_session_id": session.session_id}}).tenant == "acme"
    with pytest.raises(SpecError):
        scope_of({"metadata": {"bound_session_id": "another"}})
