"""The example that replays recorded runs, on a made-up data set in the form of the real one."""

import gzip
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXTS, STEPS = "text_subset.jsonl.gz", "runs.jsonl.gz"
#: (input, cached, output, reasoning) of each call.
GEMINI = [(1000, 0, 400, 100), (1450, 900, 300, 0), (1800, 1400, 900, 0), (2750, 1700, 600, 50)]
GPT5 = [(900, 0, 600, 384), (1300, 1024, 80, 0), (1450, 1280, 700, 512)]
SONNET = [(2000, 0, 100, 0)]
#: Reported beside the output, and larger than it: 40 + 193 tokens were generated.
DIRECT = [(2345, 2023, 40, 193), (2600, 0, 100, 0)]


def microdollars(usd):
    return round(usd, 6)


GEMINI_USD = microdollars(sum(((i - c) * 2 + c * 0.2 + o * 12) / 1e6 for i, c, o, _ in GEMINI))
GPT5_USD = sum(((i - c) * 1.25 + c * 0.125 + o * 10) / 1e6 for i, c, o, _ in GPT5)
GPT5_CHARGED_USD = sum(((i - c) * 1.25 + c * 0.125 + (r or o) * 10) / 1e6 for i, c, o, r in GPT5)
DIRECT_USD = sum(((i - c) * 2 + c * 0.2 + (o + r) * 12) / 1e6 for i, c, o, r in DIRECT)
DIRECT_CHARGED_USD = sum(((i - c) * 2 + c * 0.125 + o * 12) / 1e6 for i, c, o, _ in DIRECT)
SONNET_USD = microdollars(sum((i * 3 + o * 15) / 1e6 for i, _, o, _ in SONNET))
AIRLINE_USD = microdollars((3000 * 2.5 + 60 * 10) / 1e6)


def described(run_id, model, calls, usd, charged=None, usage="recorded", cost_kind="computed"):
    run = {"run_id": run_id, "model": model, "usage": usage, "cost_kind": cost_kind}
    run["totals"] = {"model_calls": calls, "cost": microdollars(usd)}
    return run if charged is None else {**run, "recorded_cost": charged}


def chat_usage(i, c, o, r):
    details = {"prompt_tokens_details": {"cached_tokens": c}, "completion_tokens_details": {"reasoning_tokens": r}}
    return {"prompt_tokens": i, "completion_tokens": o, "total_tokens": i + o, **details}


def responses_usage(i, c, o, r):
    details = {"input_tokens_details": {"cached_tokens": c}, "output_tokens_details": {"reasoning_tokens": r}}
    return {"input_tokens": i, "output_tokens": o, "total_tokens": i + o, **details}


def shell_run(calls, usage_of):
    """A run whose replies are text with a command, each answered by a user message."""
    messages = [{"role": "system", "content": "You solve tasks."}, {"role": "user", "content": "Repair it."}]
    for number, call in enumerate(calls):
        text = f"THOUGHT: I look at part {number}.\n\n```bash\ncat part{number}.py\n```"
        messages.append({"role": "assistant", "content": text, "usage": usage_of(*call)})
        messages.append(
            {"role": "user", "content": "<returncode>0</returncode> " + f"line {number} of output " * 60}
        )
    return messages


def airline_run():
    """A run with tool calls and user turns, and without usage."""
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_user", "arguments": '{"user_id":"ann_1"}'},
    }
    return [
        {"role": "system", "content": "You help passengers."},
        {"role": "user", "content": "I am ann_1. Where is my flight?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "name": "get_user", "content": '{"name": "Ann"}'},
        {"role": "assistant", "content": "It is on time, Ann."},
        {"role": "user", "content": "Thank you."},
        {"role": "assistant", "content": "Good bye."},
        {"role": "user", "content": "###STOP###"},
    ]


def steps(calls):
    for i, c, o, r in calls:
        yield {"k": "m", "in": i, **({"ca": c} if c else {}), "out": o, **({"re": r} if r else {})}
        yield {"k": "t", "n": "bash", "a": "0", "r": "1"}


def text_runs():
    gemini = described("gemini3pro/a", "gemini-3-pro-preview", 4, GEMINI_USD, GEMINI_USD, cost_kind="recorded")
    gpt5 = described("gpt5-output/b", "gpt-5", 3, GPT5_USD, GPT5_CHARGED_USD)
    airline = described("tau-airline/0/0", "gpt-4o", 3, AIRLINE_USD, usage="computed")
    return [
        {**gemini, "messages": shell_run(GEMINI, chat_usage)},
        {**gpt5, "messages": shell_run(GPT5, responses_usage)},
        {**airline, "messages": airline_run()},
    ]


def step_runs():
    gemini, gpt5, airline = ({k: v for k, v in run.items() if k != "messages"} for run in text_runs())
    direct = described("gemini3pro/c", "gemini-3-pro-preview", 2, DIRECT_USD, DIRECT_CHARGED_USD)
    sonnet = described("livemcp/d", "claude-sonnet-4", 1, SONNET_USD, usage="computed")
    return [
        {**gemini, "steps": list(steps(GEMINI))},
        {**gpt5, "steps": list(steps(GPT5))},
        {**airline, "steps": list(steps([(1000, 0, 20, 0)] * 3))},
        {**direct, "steps": list(steps(DIRECT))},
        {**sonnet, "steps": list(steps(SONNET))},
    ]


@pytest.fixture
def main(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    return importlib.import_module("replay_recorded.command").main


@pytest.fixture
def data(tmp_path):
    """Writes the data set, with runs changed or replaced, and gives its folder."""

    def write(texts=None, step_lines=None):
        for name, runs in ((TEXTS, texts or text_runs()), (STEPS, step_lines or step_runs())):
            with gzip.open(tmp_path / name, "wt") as file:
                file.writelines(json.dumps(run) + "\n" for run in runs)
        return tmp_path

    return write


@pytest.fixture
def report(main, data, capsys):
    """What ``--json`` says, and the exit code."""

    def run(*arguments, **runs):
        code = main([str(data(**runs)), "--json", *arguments])
        return json.loads(capsys.readouterr().out), code

    return run


def by_run(rows):
    return {row["run"]: row for row in rows}


def by_set(rows):
    return {row["set"]: row for row in rows}


def test_on_a_faithful_record_every_check_holds(report):
    found, code = report()
    assert (code, found["holds"], found["failures"]) == (0, True, [])
    assert all(check["made"] == check["held"] > 0 for check in found["checks"])
    assert len(found["checks"]) == 11


def test_the_session_costs_what_was_recorded_of_each_run(report):
    rows = by_run(report()[0]["replayed"])
    assert rows["gemini3pro/a"]["session_nanousd"] == round(GEMINI_USD * 1e9)
    assert rows["gpt5-output/b"]["session_nanousd"] == round(GPT5_USD * 1e9)
    assert rows["gpt5-output/b"]["charged_nanousd"] == round(GPT5_CHARGED_USD * 1e9)
    assert rows["gemini3pro/a"]["tokens"] == sum(i + o for i, _, o, _ in GEMINI)


def test_a_run_without_recorded_usage_is_called_an_estimate(report):
    row = by_run(report()[0]["replayed"])["tau-airline/0/0"]
    assert (row["usage"], row["calls"], row["list_nanousd"]) == ("estimated", 3, None)
    assert row["session_nanousd"] > 0


def test_half_the_cost_stops_a_run_where_prompt_and_reply_no_longer_fit(report):
    rows = by_run(report()[0]["stopped"])
    gemini, gpt5 = rows["gemini3pro/a"], rows["gpt5-output/b"]
    # Half of $0.0332 is $0.0166; calls 1 and 2 leave $0.00492; the prompt of call 3 is $0.0036, its reply $0.0108.
    assert (gemini["call"], gemini["how"], gemini["computed_call"], gemini["computed_how"]) == (3, "cut", 3, "cut")
    assert gemini["spent_nanousd"] <= gemini["budget_nanousd"] == round(GEMINI_USD * 1e9) // 2
    # Half of $0.01577 is $0.00789; call 1 leaves $0.00076, and the prompt of call 2 costs $0.00163.
    assert (gpt5["call"], gpt5["how"], gpt5["computed_call"]) == (2, "refused", 2)
    assert gpt5["spent_nanousd"] == 7_125_000


def test_steps_are_repriced_and_the_difference_is_that_of_the_known_fault(report):
    rows = by_set(report()[0]["repriced"])
    direct = rows["Gemini 3 Pro, direct"]
    assert direct["repriced_nanousd"] == round(DIRECT_USD * 1e9)
    assert direct["charged_nanousd"] == round(DIRECT_CHARGED_USD * 1e9)
    assert direct["flagged_calls"] == 1, "the reasoning that is larger than its output"
    assert rows["GPT-5"]["repriced_nanousd"] - rows["GPT-5"]["charged_nanousd"] == (600 - 384 + 700 - 512) * 10_000
    assert rows["Gemini 3 Pro"]["repriced_nanousd"] == rows["Gemini 3 Pro"]["charged_nanousd"]
    assert {row["usage"] for row in rows.values()} == {"recorded", "computed"}


def test_a_router_that_charged_something_else_is_named_and_fails(report):
    texts = text_runs()
    texts[0]["recorded_cost"] = GEMINI_USD * 1.001
    found, code = report(texts=texts)
    assert code == 3
    assert [(f["check"], f["run"]) for f in found["failures"]] == [
        ("a Gemini run costs what the router charged", "gemini3pro/a")
    ]


def test_a_charge_that_no_known_fault_explains_is_named_and_fails(report):
    lines = step_runs()
    lines[1]["recorded_cost"] = GPT5_USD
    found, code = report(step_lines=lines)
    assert code == 3
    assert [f["check"] for f in found["failures"]] == ["what was charged at the time is explained"]


def test_a_library_that_prices_wrongly_is_found_out(report, main, monkeypatch):
    from bound_middleware.metering.prices import PriceBook

    book = PriceBook({"gemini-3-pro-preview": {"input": 2, "output": 12, "cache_read": "0.21"}})
    for module in ("checks", "replay"):
        monkeypatch.setattr(importlib.import_module(f"replay_recorded.{module}"), "BOOK", book)
    found, code = report("--limit", "1")
    assert code == 3
    failed = {f["check"] for f in found["failures"]}
    assert {
        "each call costs the list price of its recorded usage",
        "re-priced steps cost their list price",
    } <= failed


def test_the_tables_have_80_columns_and_name_each_set(main, data, capsys):
    assert main([str(data())]) == 0
    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines())) <= 80
    assert not any(line != line.rstrip() for line in out.splitlines())
    for name in ("Gemini 3 Pro, direct", "GPT-5", "tau-bench, GPT-4o ~", "LiveMCP, Sonnet 4 ~"):
        assert name in out
    assert "FAILS" not in out
    assert "replaying 3/3 tau-airline/0/0 (3 calls)" in err


def test_a_failed_check_is_in_the_tables_too(main, data, capsys):
    texts = text_runs()
    texts[0]["recorded_cost"] = 1.0
    assert main([str(data(texts=texts))]) == 3
    out = capsys.readouterr().out
    assert "FAILS" in out
    assert "! gemini3pro/a: a Gemini run costs what the router charged" in out


def test_a_limit_takes_so_many_runs_of_each_set(report):
    texts = [*text_runs(), {**text_runs()[0], "run_id": "gemini3pro/again"}]
    assert len(report(texts=texts)[0]["replayed"]) == 4
    found, code = report("--limit", "1", texts=texts)
    assert (code, set(by_run(found["replayed"]))) == (0, {"gemini3pro/a", "gpt5-output/b", "tau-airline/0/0"})


def without(run, key):
    return {k: v for k, v in run.items() if k != key}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([without(text_runs()[0], "model")], "line 1: not a recorded run: no 'model'"),
        ([{**text_runs()[0], "model": "gpt-9"}], "no list price of 'gpt-9'"),
        ([text_runs()[1], {**text_runs()[2], "usage": "recorded"}], "line 2: not a recorded run: no 'usage'"),
        ([{**text_runs()[0], "messages": []}], "no reply of the assistant"),
        ([{**text_runs()[0], "messages": shell_run([(-1, 0, 1, 0)], chat_usage)}], "-1 is no count of tokens"),
        ([["a", "list"]], "line 1: not a recorded run"),
        ([without(step_runs()[0], "messages")], "gemini3pro/a has no messages"),
    ],
)
def test_a_line_that_is_no_run_is_one_clear_error(main, data, capsys, texts, message):
    assert main([str(data(texts=texts))]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert TEXTS in err
    assert message in err


def test_a_missing_or_broken_file_is_one_clear_error(main, data, tmp_path, capsys):
    assert main([str(tmp_path)]) == 2
    assert "No such file" in capsys.readouterr().err
    folder = data()
    whole = (folder / TEXTS).read_bytes()
    for broken in (b"{}\n", whole[: len(whole) // 2], b""):
        (folder / TEXTS).write_bytes(broken)
        assert main([str(folder)]) == 2
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1)


@pytest.mark.parametrize("arguments", [[], ["PATH", "--limit", "0"], ["PATH", "--limit", "some"]])
def test_a_wrong_command_line_is_a_usage_error(main, capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: replay_recorded.py" in capsys.readouterr().err


def test_the_command_runs_by_itself_without_a_warning(data):
    command = [sys.executable, "-W", "error", str(EXAMPLES / "replay_recorded.py"), str(data()), "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["holds"]
