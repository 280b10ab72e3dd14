"""Whether an evaluator could be asked, without asking it."""

import sys

import pytest

from bound_middleware.gates.rubrics.readiness import readiness

from .rubric_help import contract_of, put


def of(root, evaluator, **environment):
    return readiness(
        contract_of(evaluator=evaluator).evaluators["judge"], root, {"PATH": "/usr/bin:/bin", **environment}
    )


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_key_is_looked_for_and_not_shown(tmp_path, kind):
    declared = {"type": kind, "model": "m", "api_key_env": "MY_VAR"}
    assert of(tmp_path, declared).problems == (
        "MY_VAR is not set, neither in the environment nor in .bound/secrets.env",
    )
    found = of(tmp_path, declared, MY_VAR="the-value")
    assert (found.ready, found.notes) == (True, ("model m", "MY_VAR is set in the environment"))
    put(tmp_path, {".bound/secrets.env": "MY_VAR=the-value"})
    (tmp_path / ".bound/secrets.env").chmod(0o600)
    assert of(tmp_path, declared).notes == ("model m", "MY_VAR is set in .bound/secrets.env")
    (tmp_path / ".bound/secrets.env").chmod(0o644)
    assert "mode 0644" in of(tmp_path, declared, MY_VAR="the-value").problems[0]


def test_a_missing_integration_is_named_with_the_command_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    monkeypatch.setattr("bound_middleware.gates.rubrics.readiness.find_spec", lambda name: None)
    found = of(tmp_path, {"type": "openai", "model": "m"}, OPENAI_API_KEY="x")
    assert found.problems == ("langchain_openai is not installed: pip install langchain-openai",)


def test_a_program_is_found_on_the_path_or_below_the_root_and_not_run(tmp_path):
    assert of(tmp_path, {"type": "command", "command": ["sh", "-c", "touch pwned"]}).ready
    assert of(tmp_path, {"type": "command", "command": ["no-such-program"]}).problems == (
        "no-such-program is not there",
    )
    put(tmp_path, {"tools/judge": "#!/bin/sh\n"})
    assert not of(tmp_path, {"type": "command", "command": ["tools/judge"]}).ready
    (tmp_path / "tools/judge").chmod(0o755)
    assert of(tmp_path, {"type": "command", "command": ["tools/judge"]}).ready
    assert not (tmp_path / "pwned").exists()
