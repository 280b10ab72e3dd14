"""What counts as a reply: exactly one object of the declared form."""

import json

import pytest

from bound_middleware.gates.rubrics import BadReply, parse_reply
from bound_middleware.gates.values import Finding

PASS = {"verdict": "pass", "rationale": "it holds"}


def refused(text: str) -> str:
    with pytest.raises(BadReply) as caught:
        parse_reply(text)
    return str(caught.value)


def test_a_whole_reply_is_read_with_every_field():
    found = parse_reply(
        json.dumps(
            {
                "verdict": "fail",
                "score": 0.25,
                "rationale": "a public name without a test",
                "findings": [
                    {"message": "no test", "file_path": "src/a.py", "line": 3, "suggestion": "add one"},
                    {"message": "no docs"},
                ],
            }
        )
    )
    assert (found.verdict, found.score, found.rationale) == ("fail", 0.25, "a public name without a test")
    assert found.findings == (
        Finding(message="no test", file_path="src/a.py", line=3, suggestion="add one"),
        Finding(message="no docs"),
    )


@pytest.mark.parametrize(
    "text",
    [
        "```json\n{}\n```",
        "```\n{}\n```",
        "  \n```json\r\n{}\r\n```\n",
        "\n{}\n",
    ],
)
def test_one_fence_or_blank_space_around_a_reply_is_tolerated(text):
    assert parse_reply(text.replace("{}", json.dumps(PASS))).verdict == "pass"


def test_an_envelope_of_version_1_carries_a_result_and_metadata():
    found = parse_reply(json.dumps({"schema_version": 1, "result": PASS, "metadata": {"cost_usd": "0.01"}}))
    assert (found.verdict, found.metadata) == ("pass", {"cost_usd": "0.01"})


@pytest.mark.parametrize("line", [1, 10**9])
def test_a_line_counts_from_1(line):
    assert parse_reply(json.dumps({**PASS, "findings": [{"message": "x", "line": line}]})).findings[0].line == line


@pytest.mark.parametrize("score", [0, 1, 0.0, 1.0, None])
def test_both_ends_of_the_score_are_allowed(score):
    assert parse_reply(json.dumps({**PASS, "score": score})).score == score


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("```json\n```", "empty"),
        ("it passes", "no JSON"),
        ("null", "not an object"),
        ("[]", "not an object"),
        ('"pass"', "not an object"),
        (json.dumps(PASS) + json.dumps(PASS), "no JSON"),
        (f"```\n{json.dumps(PASS)}\n```\n```\n{json.dumps(PASS)}\n```", "no JSON"),
        (f"Here it is:\n{json.dumps(PASS)}", "no JSON"),
        (f"{json.dumps(PASS)}\nI hope that helps", "no JSON"),
        (json.dumps(PASS)[:-1], "no JSON"),
        (json.dumps({**PASS, "confidence": 1}), "unknown key 'confidence'"),
        ('{"verdict":"fail","verdict":"pass","rationale":"x"}', "twice"),
        (json.dumps({**PASS, "verdict": "PASS"}), "verdict is 'PASS'"),
        (json.dumps({**PASS, "verdict": ["pass"]}), "verdict is ['pass']"),
        (json.dumps({**PASS, "verdict": "waived"}), "verdict is 'waived'"),
        (json.dumps({"rationale": "x"}), "verdict is missing"),
        (json.dumps({"verdict": "pass"}), "rationale is missing"),
        (json.dumps({**PASS, "rationale": " \n"}), "rationale"),
        ('{"verdict":"pass","rationale":"x","score":NaN}', "NaN is no number"),
        ('{"verdict":"pass","rationale":"x","score":Infinity}', "Infinity is no number"),
        ('{"verdict":"pass","rationale":"x","score":1e999}', "score is inf"),
        (json.dumps({**PASS, "score": 1.0001}), "score is 1.0001"),
        (json.dumps({**PASS, "score": -0.1}), "score is -0.1"),
        (json.dumps({**PASS, "score": True}), "score is True"),
        (json.dumps({**PASS, "score": "0.5"}), "score is '0.5'"),
        (json.dumps({**PASS, "findings": {}}), "findings"),
        (json.dumps({**PASS, "findings": ["x"]}), "a finding is 'x'"),
        (json.dumps({**PASS, "findings": [{"message": "x", "line": 0}]}), "line of a finding is 0"),
        (json.dumps({**PASS, "findings": [{"message": "x", "line": True}]}), "line of a finding is True"),
        (json.dumps({**PASS, "findings": [{"message": "x", "line": 1.0}]}), "line of a finding is 1.0"),
        (json.dumps({**PASS, "findings": [{"message": "x", "severity": "high"}]}), "unknown key 'severity'"),
        (json.dumps({**PASS, "findings": [{"file_path": "a"}]}), "message of a finding is missing"),
        (json.dumps({**PASS, "findings": [{"message": "x"}] * 201}), "at most 200"),
        (json.dumps({"schema_version": 2, "result": PASS}), "schema_version is 2"),
        (json.dumps({"schema_version": True, "result": PASS}), "schema_version is True"),
        (json.dumps({"result": PASS}), "schema_version is None"),
        (json.dumps({"schema_version": 1}), "result is missing"),
        (json.dumps({"schema_version": 1, "result": PASS, "verdict": "pass"}), "unknown key 'verdict'"),
        (json.dumps({"schema_version": 1, "result": PASS, "metadata": []}), "metadata"),
        (json.dumps({**PASS, "rationale": "x" * 300_000}), "larger than"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_anything_else_is_no_reply_and_says_why(text, reason):
    assert reason in refused(text)


def test_a_lone_surrogate_does_not_break_what_stores_the_reply():
    found = parse_reply('{"verdict":"fail","rationale":"\\ud800","findings":[{"message":"\\udfff"}]}')
    assert found.rationale == "\\ud800"
    (found.rationale + found.findings[0].message).encode()
