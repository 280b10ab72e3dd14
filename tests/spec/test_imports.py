"""What importing a specification costs."""

import subprocess
import sys

import pytest


def modules_after(code):
    program = f"import sys\nbefore = set(sys.modules)\n{code}\nprint(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_package_alone_loads_next_to_nothing():
    assert len(modules_after("import bound_middleware.spec")) < 15


def test_a_specification_loads_pydantic_and_no_yaml_and_no_framework():
    found = modules_after("from bound_middleware.spec import BoundSpec\nBoundSpec(iterations=3).limits()")
    assert len(modules_after("from bound_middleware.spec import BoundSpec")) <= 210
    assert not {name.partition(".")[0] for name in found} & {
        "yaml",
        "langchain",
        "langchain_core",
        "langgraph",
        "tiktoken",
    }


def test_a_json_like_dict_needs_no_yaml_either():
    found = modules_after(
        "from bound_middleware.spec import BoundSpec\nBoundSpec.from_dict({'bounds': {'iteration_limit': 3}})"
    )
    assert "yaml" not in found


def test_the_names_of_the_package_are_those_it_offers():
    import bound_middleware.spec as package

    assert dir(package) == ["BoundSpec", "UnknownKeyword", "Window"]
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="nothing_like_it"):
        package.nothing_like_it  # noqa: B018
