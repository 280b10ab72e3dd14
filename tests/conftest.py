"""Shared by all tests: no proxy, no tracing, no key of anybody."""

import os

import pytest
from hypothesis import settings

# The gate must not depend on luck; new examples are found by hand runs.
settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

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
