"""The page about the data scope does what it says."""

import re
from pathlib import Path

import yaml

from bound_middleware import BoundSession, BoundSpec
from bound_middleware.session.data_scope import scope_of

TEXT = (Path(__file__).parents[2] / "docs" / "data-scope.md").read_text()


def fences(kind):
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL)


def test_the_examples_run(tmp_path):
    (tmp_path / "a.txt").write_text("inside")
    names = {}
    for code in fences("python"):
        exec(compile(code, "docs/data-scope.md", "exec"), names)
    scope = {"roots": [str(tmp_path)], "tenant": "session"}
    with BoundSession({"bounds": {"data_access_scope": scope}}, tenant="acme"):
        assert names["read_file"].invoke({"path": "a.txt"}) == "inside"
        assert names["list_orders"].func(status="open", runtime=None) == "orders of acme: open"
    assert set(names["list_orders"].tool_call_schema.model_json_schema()["properties"]) == {"status"}


def test_the_specification_is_one_and_bounds_what_the_page_says():
    (text,) = fences("yaml")
    spec = BoundSpec.from_dict({"version": 1, **yaml.safe_load(text)})
    scope = scope_of(BoundSession(spec, tenant="acme", user="ann"))
    assert scope.reads_disk("read_file")
    assert scope.examine("list_orders", {"tenant": "acme"}).faults == ()
    assert scope.examine("list_orders", {"tenant": "globex"}).crossings[0]["reason"].startswith("merged")
    assert scope.examine("list_orders", {"tenant": "initech"}).faults
