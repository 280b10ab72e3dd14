"""A program as evaluator, and the keys of the evaluators by name."""

import json
import sys

import pytest

from bound_middleware.gates.runners.rubric import Rubrics

from .rubric_help import Scripted, contract_of, judged, put, reply, site_of

READ = "import json, sys, os; bundle = json.load(sys.stdin); "


def program(code: str, **more):
    return {"type": "command", "command": [sys.executable, "-c", code], **more}


def said(value) -> str:
    return f"print({json.dumps(value) if not isinstance(value, str) else value!r})"


def test_a_program_gets_the_bundle_and_writes_one_reply(tmp_path):
    put(tmp_path, {"a.py": "text of a\n"})
    code = READ + "print(json.dumps({'verdict': 'fail', 'rationale': bundle['rubric'] + bundle['files']['a.py']}))"
    found = judged(tmp_path, evaluator=program(code))
    assert (found.verdict, found.evaluator_calls[0]["rationale"]) == ("fail", "names are cleartext of a\n")
    assert found.evaluator_calls[0]["identity"]["type"] == "command"


def test_an_envelope_may_tell_what_it_used_and_cost(tmp_path):
    envelope = {
        "schema_version": 1,
        "result": json.loads(reply("pass")),
        "metadata": {"usage": {"input_tokens": 7, "bad": -1, "worse": "x"}, "cost_usd": "0.02"},
    }
    found = judged(tmp_path, evaluator=program(f"print({json.dumps(envelope)!r})"))
    assert (found.verdict, found.evaluator_calls[0]["usage"], found.evaluator_calls[0]["cost_usd"]) == (
        "pass",
        {"input_tokens": 7},
        "0.02",
    )


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("0.02", "0.02"),
        (0.00001, "0.00001"),
        (3, "3"),
        *(
            (nonsense, None)
            for nonsense in (True, -1, "-0.1", "NaN", "Infinity", 10**7, "1e999999", [], None, "free")
        ),
    ],
)
def test_a_cost_that_a_program_tells_is_an_amount_of_this_world_or_unknown(tmp_path, told, kept):
    envelope = {"schema_version": 1, "result": json.loads(reply("pass")), "metadata": {"cost_usd": told}}
    found = judged(tmp_path, Scripted(json.dumps(envelope), cost_usd=None))
    assert (found.verdict, found.evaluator_calls[0]["cost_usd"]) == ("pass", kept)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (f"print({reply('pass')!r}); raise SystemExit(3)", "ended with 3"),
        (f"print({reply('pass')!r}); import sys; sys.exit('out of tokens')", "ended with 1: out of tokens"),
        (f"print({reply('pass')!r}); print({reply('pass')!r})", "no JSON"),
        ("pass", "the reply is empty"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "no UTF-8"),
        (f"print({reply('pass')!r}); import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
        (f"print({reply('pass')!r}); print('x' * 200_000)", "more than is read"),
    ],
)
def test_a_program_that_does_anything_else_leaves_the_verdict_open(tmp_path, code, reason):
    found = judged(tmp_path, evaluator=program(code), settings={"output_limit": 65_536})
    assert (found.verdict, found.category) == ("uncertain", "environment")
    assert reason in found.message


def test_a_program_that_is_not_there_leaves_the_verdict_open(tmp_path):
    found = judged(tmp_path, evaluator={"type": "command", "command": ["no-such-program-here"]})
    assert (found.verdict, found.category) == ("uncertain", "environment")
    assert "did not start" in found.message


def test_a_program_that_is_too_slow_is_ended(tmp_path):
    from dataclasses import replace

    from bound_middleware.decision.collectors.process import SystemClock

    contract = contract_of(evaluator=program("import time; time.sleep(60)", timeout_seconds=0.2))
    site = replace(site_of(tmp_path, contract), clock=SystemClock())
    case = Rubrics().prepare(contract.constraints["review"], contract.evaluators["judge"], site, ())
    found = case.run()
    assert (found.verdict, found.category) == ("uncertain", "environment")
    assert "was stopped after" in found.message


def names_seen(root, variables, **more):
    code = READ + "print(json.dumps({'verdict': 'fail', 'rationale': ' '.join(sorted(os.environ)) + '.'}))"
    found = judged(root, evaluator=program(code, **more), environment=variables)
    return found.evaluator_calls[0]["rationale"].rstrip(".").split()


def test_a_program_sees_only_the_variables_that_it_is_allowed_to(tmp_path):
    given = {"A_NAME": "1", "B_NAME": "2", "LANG": "C"}
    assert {"A_NAME", "B_NAME"} & set(names_seen(tmp_path, given)) == set()
    seen = names_seen(tmp_path, given, environment=["A_NAME"])
    assert "A_NAME" in seen
    assert "B_NAME" not in seen
    assert {"PATH", "LANG"} <= set(seen)


def private(root, text, mode=0o600):
    put(root, {".bound/secrets.env": text})
    (root / ".bound/secrets.env").chmod(mode)


def test_a_program_gets_the_keys_of_the_private_file_that_it_names(tmp_path):
    private(tmp_path, "OWN=1\nOTHER=2\n")
    seen = names_seen(tmp_path, {}, environment=["OWN"])
    assert "OWN" in seen
    assert "OTHER" not in seen


def test_a_private_file_that_others_may_read_leaves_the_verdict_open(tmp_path):
    private(tmp_path, "OWN=1\n", mode=0o644)
    found = judged(tmp_path, evaluator=program(said(reply("pass"))))
    assert (found.verdict, found.category, found.evaluator_calls) == ("uncertain", "environment", ())
    assert "mode 0644" in found.message


class Asked:
    def __init__(self) -> None:
        self.keys = []

    def __call__(self, declared, key):
        self.keys.append((declared.type, key))
        return Scripted(reply("pass"))


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("environment", "file", "key"),
    [
        ({"MY_VAR": "from-process"}, "MY_VAR=from-file", "from-process"),
        ({}, "MY_VAR=from-file", "from-file"),
    ],
)
def test_the_key_of_a_provider_is_that_of_the_environment_or_the_private_file(
    tmp_path, kind, environment, file, key
):
    private(tmp_path, file)
    contract = contract_of(evaluator={"type": kind, "model": "m", "api_key_env": "MY_VAR"})
    asked = Asked()
    site = site_of(tmp_path, contract, environment=environment)
    case = Rubrics(models=asked).prepare(contract.constraints["review"], contract.evaluators["judge"], site, ())
    assert (case.run().verdict, asked.keys) == ("pass", [(kind, key)])


@pytest.mark.parametrize("environment", [{}, {"MY_VAR": ""}, {"MY_VAR": "  "}])
def test_without_a_key_no_model_is_made(tmp_path, environment):
    contract = contract_of(evaluator={"type": "openai", "model": "m", "api_key_env": "MY_VAR"})
    asked = Asked()
    site = site_of(tmp_path, contract, environment=environment)
    case = Rubrics(models=asked).prepare(contract.constraints["review"], contract.evaluators["judge"], site, ())
    found = case.run()
    assert (found.verdict, asked.keys) == ("uncertain", [])
    assert found.message == "MY_VAR is not set, neither in the environment nor in .bound/secrets.env"


def test_the_keys_of_the_private_file_are_in_no_bundle(tmp_path):
    private(tmp_path, "OWN=a-value-that-nobody-sees\n")
    put(tmp_path, {"a.py": "x = 'a-value-that-nobody-sees'\n"})
    code = READ + "print(json.dumps({'verdict': 'fail', 'rationale': bundle['files']['a.py']}))"
    found = judged(tmp_path, evaluator=program(code, environment=["OWN"]))
    assert found.evaluator_calls[0]["rationale"] == "x = '[redacted]'\n"
