"""Which refusals of a provider no other attempt will change: for the model, or for the request."""

import pytest

from bound_middleware.metering.providers import final


class Refused(Exception):
    """What a client raises, as far as it is read."""

    def __init__(self, status, text="", code=None):
        super().__init__(text)
        self.status_code, self.code = status, code
        self.body = {"error": {"message": text, "code": code}} if code else None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Refused(400, "messages: field required"), "request"),
        (Refused(422), "request"),
        (Refused(400, "too long", "context_length_exceeded"), "model"),
        (Refused(400, "prompt is too long: 210000 tokens > 200000 maximum"), "model"),
        (Refused(401), "model"),
        (Refused(403), "model"),
        (Refused(404, "no such model"), "model"),
        (Refused(413), "model"),
        (Refused(429, "no money", "insufficient_quota"), "model"),
        (Refused(429), ""),
        (Refused(408), ""),
        (Refused(500), ""),
        (Refused(503), ""),
        (TimeoutError(), ""),
        (ConnectionError(), ""),
        (ValueError("of our own"), ""),
    ],
    ids=repr,
)
def test_a_refusal_is_for_good_or_may_pass(error, said):
    assert final(error) == said
