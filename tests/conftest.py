"""Shared by all tests: no proxy, no tracing, no key of anybody."""

import os

import pytest

for name in list(os.environ):
    if name.lower().endswith("_proxy") or name.startswith(("LANGSMITH_", "LANGCHAIN_")):
        del os.environ[name]
os.environ["OPENAI_API_KEY"] = os.environ["ANTHROPIC_API_KEY"] = "none"


@pytest.fixture(autouse=True)
def _no_session_is_left_live():
    """A session that stays live would claim the calls of later tests."""
    yield
    from bound_middleware.session import scope

    assert scope.live() == ()
    assert scope.default() is None
    assert scope.possible() == ()
