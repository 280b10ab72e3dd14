"""The ambient hook answers twice for each run, and a session may end in between."""

from bound_middleware import BoundSession
from bound_middleware.langchain import hook


def test_a_session_that_ends_between_the_two_questions_breaks_nothing():
    session = BoundSession({"version": 1, "bounds": {"iteration_limit": 1}})
    with session:
        first = hook._ambient.get()
    assert first is not None
    assert hook._ambient.get() is first
    assert hook._ambient.get() is None
