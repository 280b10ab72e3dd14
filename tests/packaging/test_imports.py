"""Importing the package costs nothing, and its names load when they are used."""

import json
import subprocess
import sys

import pytest

import bound_middleware

FRAMEWORKS = (
    "langchain",
    "langchain_core",
    "langgraph",
    "yaml",
    "tiktoken",
    "genai_prices",
    "asyncio",
    "pandas",
    "numpy",
)


def loaded_by(code):
    """The modules that a fresh interpreter has after the code and had not before."""
    script = (
        f"import json, sys\nbefore = set(sys.modules)\n{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_importing_the_package_adds_at_most_ten_modules():
    assert len(loaded_by("import bound_middleware; dir(bound_middleware)")) <= 10


@pytest.mark.parametrize(
    "code",
    [
        "from bound_middleware import BoundSpec, BoundSession",
        "from bound_middleware import BoundSession, bound\nbound(tokens=5, usd=1).session().remaining()",
        "from bound_middleware import *",
    ],
)
def test_a_session_and_a_spec_load_no_framework(code):
    modules = loaded_by(code)
    assert len(modules) <= 250
    assert {name.partition(".")[0] for name in modules}.isdisjoint(FRAMEWORKS)


def test_every_public_name_is_there_and_listed():
    for name in bound_middleware.__all__:
        own_name = "Literal" if name == "Decision" else name  # an alias of a Literal has no name of its own
        assert getattr(bound_middleware, name).__name__ == own_name
    listed = dir(bound_middleware)
    assert set(bound_middleware.__all__) <= set(listed)
    assert len(listed) == len(set(listed))


def test_the_names_of_the_design_are_public():
    names = {
        "bound",
        "install",
        "BoundSpec",
        "BoundSession",
        "RunOutcome",
        "Usage",
        "TraceEvent",
        "BoundExceeded",
        "SpecError",
    }
    assert names <= set(bound_middleware.__all__)
    assert issubclass(bound_middleware.SpecError, ValueError)


def test_an_unknown_name_is_an_attribute_error_that_says_where():
    with pytest.raises(AttributeError, match=r"bound_middleware.*no attribute 'BoundSesion'"):
        bound_middleware.BoundSesion  # noqa: B018
    with pytest.raises(ImportError):
        exec("from bound_middleware import BoundSesion")


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert bound_middleware.__version__ == version("bound-middleware")
