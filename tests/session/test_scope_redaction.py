"""Secrets are taken out before anything is stored, logged or shown."""

import json

import pytest

from bound_middleware import BoundExceeded, BoundSession, BoundSpec
from bound_middleware.core.events import chained, replay, verify
from bound_middleware.core.gateway import Facts, Request, decide
from bound_middleware.core.redaction import MARK, Redactor
from bound_middleware.session.data_scope import redacted, redactor

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEsecretsecret\n-----END RSA PRIVATE KEY-----"
SECRETS = [
    ("password=hunter2", "hunter2"),
    ("token: abc123", "abc123"),
    ("Authorization: Bearer zzz", "zzz"),
    ('"Authorization": "Basic dXNlcjpwYXNz"', "dXNlcjpwYXNz"),
    ("proxy-authorization: qqq", "qqq"),
    ("authorization = token zzz", "zzz"),
    ("PGPWD=hunter2", "hunter2"),
    ("OPENAI_API_KEY=sk-proj-abcdefghijklmnop", "abcdefghijklmnop"),
    ("use sk-" + "live_abcdefghijklmnopqr", "abcdefghijklmnop"),
    (PEM, "MIIEsecretsecret"),
    ("postgres://app:hunter2@db/x", "hunter2"),
    ("AKIAABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOP"),
]
PLAIN = [
    "tokens: 12345",
    "the author: Jane",
    "authorized users: all",
    "a password is needed",
    "authorization was refused",
    "Bearer of good news",
    "total_tokens=900",
    "path: 'a.txt' leads out of the permitted folders",
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_a_secret_is_replaced_and_replacing_it_again_changes_nothing(text, secret):
    once = Redactor()(text)
    assert secret not in once
    assert MARK in once
    assert Redactor()(once) == once


@pytest.mark.parametrize("text", PLAIN)
def test_words_about_secrets_stay(text):
    assert Redactor()(text) == text


def test_declared_patterns_are_replaced_and_one_that_matches_nothing_does_no_harm():
    assert redactor(("case-[0-9]+", "x*"))("see case-4711") == f"see {MARK}"
    assert redactor(("case-[0-9]+",)) is redactor(("case-[0-9]+",))


def test_a_nested_value_keeps_its_shape_and_long_texts_are_cut():
    value = {"note": "password=hunter2", "n": [1, ("token: abc123", None)], "api_key": "short", "tokens": "many"}
    shown = redacted(value, redactor())
    assert shown == {
        "note": f"password={MARK}",
        "n": [1, (f"token: {MARK}", None)],
        "api_key": MARK,
        "tokens": "many",
    }
    assert len(redacted("x" * 5000, redactor())) < 2100
    assert value["note"] == "password=hunter2"


def spec(**scope):
    return BoundSpec.from_dict({"bounds": {"data_access_scope": scope}})


@pytest.mark.parametrize("sinks", [[], [lambda event: None]])
def test_the_trace_of_a_session_holds_no_secret(sinks):
    seen = []
    session = BoundSession(spec(redact=["case-[0-9]+"]), sinks=[*sinks, seen.append] if sinks else [])
    session.charge(usd="0.01", note="password=hunter2 for case-4711")
    session.record("warning", detail={"why": ["Authorization: Bearer zzz"], "headers": {"x-api-key": "abc"}})
    for events in (session.events, seen):
        text = json.dumps([event.as_dict() for event in events][1:])
        assert not any(secret in text for secret in ("hunter2", "4711", "zzz", '"abc"'))
    assert session.events[-1].detail == {"why": [f"Authorization: Bearer {MARK}"], "headers": {"x-api-key": MARK}}


def test_a_refusal_is_recorded_without_the_secret_and_replays_to_the_same_bytes():
    session = BoundSession(spec(redact=["case-[0-9]+"]))
    request = Request(kind="tool_call", id="t1", name="read")
    facts = Facts(
        outside_scope=("path: 'password=hunter2' leads out",), arguments_refused=("case-4711 is too long",)
    )
    verdict = decide(request, facts, session.declared)
    session.refuse(request, facts, verdict)
    text = json.dumps([event.as_dict() for event in session.events][1:])
    assert "hunter2" not in text
    assert "4711" not in text
    assert MARK in text
    events = tuple(chained(session.events))
    verify(events)
    assert replay(events)[0]["kind"] == "refuse"


def test_what_is_raised_and_the_outcome_hold_no_secret():
    session = BoundSession(BoundSpec.from_dict({"bounds": {"cost_budget": {"total_usd": 0}}}))
    with session, pytest.raises(BoundExceeded) as error:
        session.charge(usd="1", note="password=hunter2")
    for text in (str(error.value), repr(error.value), repr(error.value.outcome), repr(session)):
        assert "hunter2" not in text
    assert MARK in str(error.value)


def test_the_first_event_holds_the_specification_as_it_was_written():
    session = BoundSession(spec(redact=["password=[a-z]+"], default_scope="password=example in a sentence"))
    opened = session.events[0]
    assert opened.detail["limits"]["redact"] == ("password=[a-z]+",)
    assert "password=[a-z]+" in json.dumps(opened.detail["spec"])
