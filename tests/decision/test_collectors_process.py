"""Commands that hang, flood, leak children or never start; and secrets in what they say."""

import os
import subprocess
import sys
import threading
import time

import pytest

from bound_middleware.decision.collectors import Redactor
from bound_middleware.decision.collectors.process import Run, SystemClock, run
from bound_middleware.testing import FakeClock

SH = "/bin/sh"


def shell(script, tmp_path, *, timeout_ms=60_000, output_bytes_max=100_000, clock=None, **more):
    return run(
        (SH, "-c", script),
        cwd=tmp_path,
        environment={"PATH": os.environ["PATH"]},
        timeout_ms=timeout_ms,
        output_bytes_max=output_bytes_max,
        clock=clock or SystemClock(),
        **more,
    )


def is_alive(pid):
    """Whether a process still does something; one that waits to be collected does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def gone(pid):
    for _ in range(200):
        if not is_alive(pid):
            return True
        time.sleep(0.01)
    return False


def test_a_command_gives_its_code_and_both_outputs(tmp_path):
    done = shell("echo out; echo err >&2; exit 3", tmp_path)
    assert (done.ending, done.code, done.exit_code, done.trouble) == ("exited", 3, 3, None)
    assert (done.stdout.data, done.stderr.data) == (b"out\n", b"err\n")
    assert done.stdout.complete


def test_its_standard_input_is_empty_even_when_ours_is_not():
    program = (
        "import pathlib\nfrom bound_middleware.decision.collectors.process import SystemClock, run\n"
        "done = run(['/bin/sh', '-c', 'cat; echo end'], cwd=pathlib.Path('.'), environment={'PATH': '/bin'},"
        " timeout_ms=60_000, output_bytes_max=100, clock=SystemClock())\nprint(done.stdout.text)"
    )
    done = subprocess.run([sys.executable, "-c", program], input=b"not for you", capture_output=True, check=True)
    assert done.stdout.split() == [b"end"]


def test_a_command_that_does_not_exist_did_not_start(tmp_path):
    done = run(
        ("no-such-tool",),
        cwd=tmp_path,
        environment={"PATH": "/nowhere"},
        timeout_ms=1000,
        output_bytes_max=10,
        clock=FakeClock(),
    )
    assert (done.ending, done.exit_code) == ("not_started", None)
    assert "did not start: No such file" in done.trouble


def test_a_working_folder_that_does_not_exist_is_no_error(tmp_path):
    assert shell("true", tmp_path / "absent").ending == "not_started"


@pytest.mark.parametrize("code", [126, 127])
def test_what_the_shell_could_not_execute_taught_nothing(tmp_path, code):
    assert f"could not be executed (exit code {code})" in shell(f"exit {code}", tmp_path).trouble


def test_a_command_that_a_signal_ended_did_not_come_to_its_end(tmp_path):
    done = shell("kill -9 $$", tmp_path)
    assert (done.ending, done.code, done.exit_code) == ("signalled", 9, None)
    assert "ended by signal 9" in done.trouble


def test_at_the_time_out_the_command_and_its_grandchildren_are_killed(tmp_path):
    clock = FakeClock(start_ms=5)
    seen = threading.Event()

    def expire():
        while not (tmp_path / "ready").exists():
            seen.wait(0.005)
        clock.advance(ms=1000)

    threading.Thread(target=expire, daemon=True).start()
    done = shell("(sleep 60 & echo $! > pid; touch ready; wait) ", tmp_path, clock=clock, timeout_ms=1000)
    assert (done.ending, done.exit_code, done.started_ms, done.ended_ms) == ("timed_out", None, 5, 1005)
    assert "was stopped after 1000 ms" in done.trouble
    assert gone(int((tmp_path / "pid").read_text()))


def test_before_the_time_out_nothing_is_killed(tmp_path):
    assert shell("echo done", tmp_path, clock=FakeClock(), timeout_ms=1).exit_code == 0


def test_a_child_that_is_left_behind_neither_holds_the_pipe_nor_lives_on(tmp_path):
    began = time.monotonic()
    done = shell("sleep 60 & echo $!; exit 0", tmp_path)
    assert (done.ending, done.code) == ("exited", 0)
    assert time.monotonic() - began < 20
    assert gone(int(done.stdout.text))


def test_a_command_is_called_off_from_another_thread(tmp_path):
    stop = threading.Event()
    found = []
    thread = threading.Thread(target=lambda: found.append(shell("sleep 60", tmp_path, stop=stop)))
    thread.start()
    stop.set()
    thread.join(20)
    assert (found[0].ending, found[0].trouble) == ("called_off", f"{SH} was called off")


def test_a_command_that_closes_its_outputs_is_still_waited_for(tmp_path):
    done = shell("exec >&- 2>&-; sleep 0.05; exit 4", tmp_path)
    assert (done.ending, done.code) == ("exited", 4)


def test_output_is_capped_while_it_is_read_and_keeps_its_beginning_and_its_end(tmp_path):
    script = "import sys\nsys.stdout.write('BEGIN' + 'x' * 5_000_000 + 'END')"
    done = run(
        (sys.executable, "-I", "-c", script),
        cwd=tmp_path,
        environment={},
        timeout_ms=60_000,
        output_bytes_max=1000,
        clock=SystemClock(),
    )
    assert done.exit_code == 0
    assert not done.stdout.complete
    assert done.stdout.dropped_bytes == 5_000_008 - 1000
    assert done.stdout.data.startswith(b"BEGIN")
    assert done.stdout.data.endswith(b"END")
    assert b"[4999008 bytes left out]" in done.stdout.data
    assert len(done.stdout.data) < 1100


@pytest.mark.parametrize("length", [0, 1, 9, 10])
def test_output_up_to_the_cap_is_kept_whole(tmp_path, length):
    done = shell(f"printf '%s' {'abcdefghij'[:length]!r}", tmp_path, output_bytes_max=10)
    assert done.stdout.data == b"abcdefghij"[:length]
    assert done.stdout.complete


def test_output_one_byte_over_the_cap_says_what_is_left_out(tmp_path):
    done = shell("printf abcdefghijk", tmp_path, output_bytes_max=10)
    assert done.stdout.data == b"abcde\n[1 bytes left out]\nghijk"


def test_output_that_is_no_utf_8_is_shown_with_replacements(tmp_path):
    assert shell(r"printf 'a\377b'", tmp_path).stdout.text == "a�b"


def test_the_environment_is_the_one_that_was_given(tmp_path):
    assert shell('echo "[$HOME]"', tmp_path).stdout.data == b"[]\n"


def test_the_trouble_of_a_run_is_a_sentence_for_every_ending():
    for ending in ("not_started", "timed_out", "called_off", "signalled"):
        assert Run(argv=("tool",), ending=ending, code=1).trouble.startswith("tool ")
    assert Run(argv=("tool",), ending="exited", code=1).trouble is None


SECRET = "s3cr3t-value-of-mine"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (f"key {SECRET} here", "key [redacted] here"),
        ("api_key=abcdef12345", "api_key=[redacted]"),
        ("password=12345678", "password=[redacted]"),
        ("'password': 'hunter2hunter2'", "'password': [redacted]"),
        ("MY_TOKEN: abcdefgh rest", "MY_TOKEN: [redacted] rest"),
        ("sk-proj-abcdefghijklmnop1234", "[redacted]"),
        ("sk-ant-api03-abcdefghijklmnop1234 x", "[redacted] x"),
        ("ghp_abcdefghijklmnopqrst1234", "[redacted]"),
        ("AKIAABCDEFGHIJKLMNOP", "[redacted]"),
        ("Authorization: Bearer abc.def-ghi", None),
        ("https://user:pa55word@example.test/x", "https://[redacted]@example.test/x"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefgh", "[redacted]"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\nrest", "[redacted]\nrest"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE cut", "[redacted]"),
    ],
)
def test_secrets_are_taken_out(text, kept):
    redacted = Redactor({"MY_API_KEY": SECRET, "HOME": "/home/somebody"})(text)
    assert redacted == kept if kept is not None else "abc.def-ghi" not in redacted
    assert "[redacted]" in redacted


@pytest.mark.parametrize(
    "text",
    [
        "3 passed, 1 skipped",
        "tests/test_tokens.py::test_token_count PASSED",
        "/home/somebody/x.py:3: error",
        "total_tokens 300",
        "total_tokens: 12345",
        "author: Somebody",
        "https://example.test/x?y=1",
    ],
)
def test_other_text_is_left_as_it_is(text):
    assert Redactor({"MY_API_KEY": SECRET, "HOME": "/home/somebody", "X_TOKEN": "short"})(text) == text


def test_the_longest_secret_goes_first_and_a_redactor_does_not_show_what_it_knows():
    redact = Redactor(secrets=["abcdefgh", "abcdefgh-and-more"])
    assert redact("abcdefgh-and-more abcdefgh") == "[redacted] [redacted]"
    assert "abcdefgh" not in repr(redact)


def test_its_standard_input_may_be_a_file(tmp_path):
    (tmp_path / "question").write_bytes(b"what\n" * 100_000)
    done = shell("cat | wc -c", tmp_path, given=tmp_path / "question")
    assert done.stdout.data.strip() == b"500000"
    absent = shell("cat", tmp_path, given=tmp_path / "absent")
    assert absent.ending == "not_started"


def test_a_command_that_closed_its_outputs_and_goes_on_is_waited_for(tmp_path):
    done = shell("exec >&- 2>&-; sleep 0.05; exit 4", tmp_path)
    assert (done.ending, done.code) == ("exited", 4)
