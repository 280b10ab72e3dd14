"""What is no marker, or no longer one, opens nothing and settles nothing."""

import asyncio
import base64
import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from bound_middleware import BoundExceeded, BoundSession, SpecError, Usage
from bound_middleware.ledgers import MemoryLedger, SqliteLedger
from bound_middleware.session.marker import MarkerError, signed, verified

KEY = "a secret of both sides"


@pytest.fixture
def do(colour):
    """Call a method in one colour, with the key unless another is given."""

    def call(owner, name, *args, **kwargs):
        kwargs.setdefault("key", KEY)
        if colour == "async":
            return asyncio.run(getattr(owner, f"a{name}")(*args, **kwargs))
        return getattr(owner, name)(*args, **kwargs)

    return call


def refused(reason, call, *args, **kwargs):
    with pytest.raises(MarkerError) as caught:
        call(*args, **kwargs)
    assert caught.value.reason == reason
    return caught.value


def changed(text, **values):
    """The text with other contents under the signature it had."""
    version, payload, mac = text.split(".")
    plain = {**json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))), **values}
    forged = base64.urlsafe_b64encode(json.dumps(plain).encode()).rstrip(b"=").decode()
    return f"{version}.{forged}.{mac}"


@pytest.mark.parametrize(
    "tamper",
    [
        lambda text: changed(text, limits={"tokens": 10_000}),
        lambda text: changed(text, expires_ms=10**15),
        lambda text: changed(text, session="another"),
        lambda text: text[:-2] + ("AA" if text[-2:] != "AA" else "BA"),
        lambda text: text.rpartition(".")[0] + ".",
    ],
)
def test_a_marker_that_was_changed_is_refused(make, ledger, do, books, clock, tamper):
    parent = make(tokens=1_000, ledger=ledger)
    marker = do(parent, "marker", tokens=100)
    before = books(parent)
    error = refused("forged", do, BoundSession, "from_marker", tamper(marker), ledger=ledger, clock=clock)
    assert "BOUND_MARKER_KEY" in str(error)
    assert books(parent) == before
    assert do(BoundSession, "from_marker", marker, ledger=ledger, clock=clock).remaining().tokens == 100


@pytest.mark.parametrize(
    "text",
    ["", "bound1", "bound1.a.b.c", "bound2.e30.e30", "bound1.!!.e30", "bound1.e30=.e30", "a.b.c", None, 7, b"x"],
)
def test_what_is_no_marker_is_refused(do, text):
    refused("malformed", do, BoundSession, "from_marker", text)
    refused("malformed", do, BoundSession(), "accept", text)


def test_a_marker_or_report_with_another_key_is_refused(make, do, clock):
    parent = make(tokens=1_000)
    marker = do(parent, "marker", key="theirs")
    refused("forged", do, BoundSession, "from_marker", marker, clock=clock)
    child = do(BoundSession, "from_marker", marker, key=b"theirs", clock=clock)
    report = do(child, "report")
    refused("forged", do, parent, "accept", report, key="theirs")
    assert do(parent, "accept", report).status == "completed"


def test_a_report_is_no_marker_and_a_marker_is_no_report(make, do, clock):
    parent = make(tokens=1_000)
    marker = do(parent, "marker")
    refused("forged", do, parent, "accept", marker)
    child = do(BoundSession, "from_marker", marker, clock=clock)
    refused("forged", do, BoundSession, "from_marker", do(child, "report"))


def test_a_marker_is_good_until_it_expires(make, ledger, do, clock):
    parent = make(tokens=1_000, ledger=ledger)
    markers = [do(parent, "marker", tokens=100, expires_seconds=60) for _ in range(2)]
    clock.advance(seconds=59.999)
    assert do(BoundSession, "from_marker", markers[0], ledger=ledger, clock=clock).remaining().tokens == 100
    clock.advance(seconds=0.001)
    for there in (ledger, None):
        refused("expired", do, BoundSession, "from_marker", markers[1], ledger=there, clock=clock)
    assert (parent.remaining().tokens, parent.usage.total_tokens) == (900, 100)


def test_a_marker_opens_one_session_on_the_ledger_that_it_comes_from(make, ledger, do, clock):
    parent = make(tokens=1_000, ledger=ledger)
    marker = do(parent, "marker", tokens=100)
    do(BoundSession, "from_marker", marker, ledger=ledger, clock=clock).charge(usage=Usage(input_tokens=40))
    refused("used", do, BoundSession, "from_marker", marker, ledger=ledger, clock=clock)
    assert (parent.usage.total_tokens, parent.remaining().tokens) == (40, 960)


def test_a_marker_opens_one_session_on_another_ledger_also_after_a_restart(make, do, clock, tmp_path):
    marker = do(make(tokens=1_000), "marker", tokens=100)
    with SqliteLedger(tmp_path / "there.db") as there:
        do(BoundSession, "from_marker", marker, ledger=there, clock=clock)
        refused("used", do, BoundSession, "from_marker", marker, ledger=there, clock=clock)
    with SqliteLedger(tmp_path / "there.db") as there:
        refused("used", do, BoundSession, "from_marker", marker, ledger=there, clock=clock)


def test_of_many_threads_with_one_marker_one_gets_the_session(make, ledger):
    parent = make(tokens=1_000, ledger=ledger)
    marker, gate = parent.marker(tokens=100, key=KEY), threading.Barrier(4)

    def claim(_):
        gate.wait(10)
        try:
            return BoundSession.from_marker(marker, ledger=ledger, key=KEY, clock=parent.clock)
        except MarkerError as error:
            return error.reason

    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(claim, range(4)))
    assert sorted(str(one) for one in got if isinstance(one, str)) == ["used"] * 3


def test_a_report_is_accepted_once(make, ledger, do, clock, books):
    parent = make(tokens=1_000, ledger=ledger)
    child = do(BoundSession, "from_marker", do(parent, "marker", tokens=100), clock=clock)
    child.charge(usage=Usage(input_tokens=40))
    report = do(child, "report")
    do(parent, "accept", report)
    before = books(parent)
    for again in (report, do(child, "report")):
        refused("used", do, parent, "accept", again)
    assert books(parent) == before
    assert parent.remaining().tokens == 960


def test_of_many_threads_with_one_report_one_settles_it(make, ledger):
    parent = make(tokens=1_000, ledger=ledger)
    child = BoundSession.from_marker(parent.marker(tokens=100, key=KEY), key=KEY, clock=parent.clock)
    for model in ("m", "dear"):
        child.charge(usage=Usage(input_tokens=20), model=model)
    report, gate = child.report(key=KEY), threading.Barrier(4)

    def accept(_):
        gate.wait(10)
        try:
            return parent.accept(report, key=KEY).status
        except MarkerError as error:
            return error.reason

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(accept, range(4))) == ["completed", "used", "used", "used"]
    assert (parent.usage.total_tokens, parent.remaining().tokens) == (40, 960)


def test_a_report_belongs_to_the_session_that_made_the_marker(make, ledger, do, clock, books):
    parent, other = make(tokens=1_000, ledger=ledger), make(tokens=1_000, ledger=ledger)
    marker = do(parent, "marker", tokens=100)
    report = do(do(BoundSession, "from_marker", marker, clock=clock), "report")
    before = books(other), books(parent)
    refused("other_session", do, other, "accept", report)
    assert (books(other), books(parent)) == before
    same_name = make(tokens=1_000, session_id=parent.session_id)
    refused("other_session", do, same_name, "accept", report)
    refused("other_session", do, BoundSession, "from_marker", marker, ledger=same_name.ledger, clock=clock)
    assert same_name.remaining().tokens == 1_000
    assert do(parent, "accept", report).status == "completed"


@pytest.mark.parametrize("lines", [1, 2])
def test_what_a_marker_that_was_used_on_two_ledgers_spent_is_booked_both_times(make, ledger, do, clock, lines):
    parent = make(tokens=150, ledger=ledger)
    marker = do(parent, "marker", "scout", tokens=100)
    reports = []
    for _ in range(2):
        child = do(BoundSession, "from_marker", marker, ledger=MemoryLedger(), clock=clock)
        for i in range(lines):
            child.charge(usage=Usage(input_tokens=90 // lines), model=f"m{i}")
        reports.append(do(child, "report"))
    do(parent, "accept", reports[0])
    error = refused("used", do, parent, "accept", reports[1])
    assert "more than one ledger" in str(error)
    assert parent.usage.by_agent["scout"].total_tokens == 180
    assert parent.outcome.overshoot == {"tokens": 30}
    refused("used", do, parent, "accept", reports[1])
    assert parent.usage.total_tokens == 180
    with pytest.raises(BoundExceeded):
        parent.charge(usage=Usage(input_tokens=1))


def test_without_a_key_nothing_is_signed(make, do, monkeypatch, books):
    parent = make(tokens=100)
    before = books(parent)
    monkeypatch.delenv("BOUND_MARKER_KEY", raising=False)
    for wrong in (None, "", b"", 7, True):
        for owner, name, *args in ((parent, "marker"), (parent, "accept", "x"), (BoundSession, "from_marker", "x")):
            with pytest.raises(SpecError) as caught:
                do(owner, name, *args, key=wrong)
            assert "BOUND_MARKER_KEY" in str(caught.value)
            assert caught.value.value is None
    assert books(parent) == before
    monkeypatch.setenv("BOUND_MARKER_KEY", KEY)
    marker = do(parent, "marker", key=None)
    child = do(BoundSession, "from_marker", marker, clock=parent.clock)
    assert do(parent, "accept", do(child, "report", key=None)).status == "completed"


@pytest.mark.parametrize(
    "wrong",
    [
        {"expires_seconds": 0},
        {"expires_seconds": -1},
        {"expires_seconds": float("nan")},
        {"expires_seconds": float("inf")},
        {"expires_seconds": True},
        {"expires_seconds": "60"},
        {"tokens": -1},
        {"spec": {}, "tokens": 1},
        {"agent": ""},
    ],
)
def test_nonsense_of_a_marker_is_an_error_and_holds_nothing(make, ledger, do, books, wrong):
    parent = make(tokens=100, ledger=ledger)
    before = books(parent)
    with pytest.raises(SpecError):
        do(parent, "marker", **wrong)
    assert books(parent) == before


def test_a_signature_covers_every_byte():
    text = signed({"a": 1}, "marker", b"k")
    assert verified(text, "marker", b"k") == {"a": 1}
    for i in range(len(text)):
        for other in ("A", "B"):
            if text[i] != other:
                with pytest.raises(MarkerError):
                    verified(text[:i] + other + text[i + 1 :], "marker", b"k")


def test_an_error_of_a_marker_pickles():
    error = pickle.loads(pickle.dumps(MarkerError("used", "report", note="said")))
    assert (error.reason, error.kind, error.note) == ("used", "report", "said")
    assert isinstance(error, SpecError)
    assert str(error).endswith("; said")


def test_a_session_from_a_marker_is_not_pickled(make, do, clock, file):
    child = do(BoundSession, "from_marker", do(make(tokens=10, ledger=file), "marker"), ledger=file, clock=clock)
    with pytest.raises(TypeError):
        pickle.dumps(child)
