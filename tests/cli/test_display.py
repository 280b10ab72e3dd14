"""What a person sees of a run, on a terminal that is drawn here cell by cell."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading

import pytest

from bound_middleware import BoundExceeded, BoundSession
from bound_middleware.cli import display, live
from bound_middleware.cli.display import Axis
from bound_middleware.testing import FakeClock, ProviderServer, Reply, ScriptedChatModel

SEQUENCE = re.compile(r"\x1b(?:\[([0-9;]*)([A-Za-z])|([78D]))|\r|\n|[^\x1b\r\n]|\x1b")


class Screen:
    """As much of a terminal as the live view uses: a scrolling region, a saved cursor, and what scrolled away."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cells = [[" "] * columns for _ in range(rows)]
        self.row = self.column = 0
        self.saved = (0, 0)
        self.bottom = rows - 1
        self.gone = []

    @property
    def lines(self):
        return ["".join(row).rstrip() for row in self.cells]

    @property
    def whole(self):
        """Everything that was written and scrolled, empty lines left out."""
        return [line for line in [*self.gone, *self.lines] if line]

    def feed(self, text):
        for match in SEQUENCE.finditer(text):
            found, (numbers, command, single) = match.group(), match.groups()
            if command:
                self._command(command, [int(n) for n in (numbers or "").split(";") if n])
            elif single == "7":
                self.saved = (self.row, self.column)
            elif single == "8":
                self.row, self.column = self.saved
            elif single == "D" or found == "\n":
                self._down()
            elif found == "\r":
                self.column = 0
            else:
                assert found != "\x1b", "a sequence that this terminal does not know"
                assert self.column < self.columns, "a line wider than the terminal"
                self.cells[self.row][self.column] = found
                self.column += 1

    def _down(self):
        if self.row == self.bottom:
            self.gone.append("".join(self.cells.pop(0)).rstrip())
            self.cells.insert(self.bottom, [" "] * self.columns)
        else:
            self.row = min(self.rows - 1, self.row + 1)

    def _command(self, command, numbers):
        if command == "H":
            self.row, self.column = (numbers or [1])[0] - 1, 0
        elif command == "A":
            self.row = max(0, self.row - numbers[0])
        elif command == "r":
            self.bottom = (numbers[1] if numbers else self.rows) - 1
            self.row = self.column = 0
        elif command == "K":
            self.cells[self.row] = [" "] * self.columns
        elif command == "J":
            self.cells[self.row :] = [[" "] * self.columns for _ in self.cells[self.row :]]
        else:
            assert command == "m", f"an unknown command {command!r}"


class Terminal:
    """A pseudo-terminal; ``read`` draws what has arrived."""

    def __init__(self, rows=24, columns=80):
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.screen = Screen(rows, columns)
        self.raw = ""

    def resize(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def write(self, text):
        os.write(self.slave, text.encode())

    def read(self, wait_s=0.0):
        """Draws what is there; False when nobody has the terminal open any more."""
        while select.select([self.master], [], [], wait_s)[0]:
            try:
                data = os.read(self.master, 65_536)
            except OSError:
                return False
            if not data:
                return False
            self.raw += data.decode(errors="replace")
            self.screen.feed(data.decode(errors="replace"))
            wait_s = 0.0
        return True

    def close(self):
        for fd in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(fd)


@pytest.fixture
def terminal():
    opened = Terminal()
    yield opened
    opened.close()


@pytest.fixture
def session():
    return BoundSession(
        {"bounds": {"iteration_limit": 4, "cost_budget": {"total_usd": "0.50"}, "token_budget": {"total": 1000}}},
        clock=FakeClock(),
        prices={"scripted": {"input": 1000, "output": 1000}},
    )


# -- lines -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nanousd", "text"),
    [
        (0, "$0.00"),
        (500_000_000, "$0.50"),
        (507_500, "$0.0005075"),
        (1, "$0.000000001"),
        (1234 * 10**9, "$1,234.00"),
    ],
)
def test_money_has_two_places_and_then_no_zeros(nanousd, text):
    assert display.money(nanousd) == text


@pytest.mark.parametrize(
    ("axis", "drawn"),
    [
        (Axis(name="tokens", used=0, limit=10), ".........."),
        (Axis(name="tokens", used=1, limit=1000), "#........."),
        (Axis(name="tokens", used=5, held=2, limit=10), "#####++..."),
        (Axis(name="tokens", used=9, held=5, limit=10), "#########+"),
        (Axis(name="tokens", used=30, limit=10), "##########"),
        (Axis(name="tokens", used=0, limit=0), "##########"),
    ],
)
def test_a_bar_shows_what_is_used_held_and_free_and_never_overflows(axis, drawn):
    assert display.bar(axis, 10, ascii_only=True) == drawn


def test_the_axes_are_the_numbers_of_the_session(session):
    with session:
        ScriptedChatModel([ScriptedChatModel.reply("a b", input_tokens=10, output_tokens=2)]).invoke("x")
        session.clock.advance(seconds=2)
    texts = {axis.name: axis.text for axis in display.axes(session)}
    assert texts == {
        "iterations": "1 of 4",
        "tokens": "12 of 1,000",
        "money": "$0.012 of $0.50",
        "time": "2.0 s, not bounded",
    }


def test_a_call_that_runs_is_shown_as_held(session):
    seen = []

    def while_it_runs(messages, kwargs):
        seen.extend(display.axes(session))
        return "done"

    with session:
        ScriptedChatModel([while_it_runs]).invoke("x")
    held = {axis.name: axis.held for axis in seen}
    assert held["iterations"] == 1
    assert held["tokens"] > 0
    assert held["money"] > 0


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("colour", [True, False])
def test_the_live_lines_fit_and_are_six(session, width, colour):
    lines = display.live_lines(session, "a" * 200, width=width, colour=colour)
    plain = [re.sub(r"\x1b\[\d*m", "", line) for line in lines]
    assert len(lines) == 6
    assert max(map(len, plain)) < width
    assert (plain != lines) == colour


def test_the_headline_names_the_bound_and_shadow_and_what_is_not_bound(session):
    unbounded = BoundSession(None, clock=FakeClock(), shadow=True)
    with unbounded:
        pass
    assert display.headline(unbounded, unbounded.outcome) == (
        "bound: completed, NOT BOUND, SHADOW: nothing is refused"
    )
    with contextlib.suppress(BoundExceeded), session:
        for _ in range(5):
            ScriptedChatModel(["a"]).invoke("x")
    assert display.headline(session, session.outcome) == (
        "bound: stopped by iteration_limit: a call of 'scripted' was not made"
    )


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colours_are_left_out_where_they_are_not_wanted(environment, wanted):
    assert display.wants_colour(environment) is wanted


# -- the live view -----------------------------------------------------------------------------------------


@pytest.fixture
def view_on(terminal):
    """``view_on(lines)``: a live view on the terminal, and how to wait until it has drawn again."""

    @contextlib.contextmanager
    def opened(lines, height=3):
        drawn = threading.Semaphore(0)

        def counted(columns):
            drawn.release()
            return lines(columns)

        with (
            open(terminal.slave, "w", closefd=False) as stream,
            live.LiveView(counted, height=height, stream=stream),
        ):

            def redrawn():
                # The second release says that the drawing before it is on the terminal.
                for _ in range(2):
                    assert drawn.acquire(timeout=10)
                while drawn.acquire(blocking=False):
                    pass
                assert drawn.acquire(timeout=10)
                terminal.read()

            yield redrawn

    return opened


def test_the_lines_stand_at_the_bottom_and_the_output_scrolls_above_them(terminal, view_on):
    expected = [f"line {i}" for i in range(60)]
    with view_on(lambda columns: ["one", "two", "three"]) as redrawn:
        for line in expected[:30]:
            terminal.write(f"{line}\n")
        redrawn()
        assert terminal.screen.lines[-3:] == ["one", "two", "three"]
        for line in expected[30:]:
            terminal.write(f"{line}\n")
        terminal.write("no newline")
        redrawn()
        assert terminal.screen.lines[-3:] == ["one", "two", "three"]
        assert terminal.screen.lines[-4] == "no newline"
    terminal.write(" until now\n$ prompt")
    terminal.read()
    assert terminal.screen.whole == [*expected, "no newline until now", "$ prompt"]
    assert terminal.screen.bottom == terminal.screen.rows - 1


def test_what_stood_on_the_terminal_before_is_kept(terminal, view_on):
    before = [f"before {i}" for i in range(24)]
    terminal.write("\n".join(before))
    terminal.read()
    with view_on(lambda columns: ["one", "two", "three"]) as redrawn:
        terminal.write(" and more\n")
        redrawn()
    terminal.read()
    assert terminal.screen.whole == [*before[:-1], "before 23 and more"]


def test_a_view_that_cannot_be_read_leaves_the_output_alone(terminal, view_on):
    def lines(columns):
        raise ValueError("no reading")

    with view_on(lines) as redrawn:
        terminal.write("still here\n")
        redrawn()
    terminal.read()
    assert terminal.raw == "still here\r\n"


def test_the_view_follows_the_size_of_the_terminal(terminal, view_on):
    with view_on(lambda columns: [f"{columns} columns"], height=1) as redrawn:
        redrawn()
        assert terminal.screen.lines[-1] == "80 columns"
        terminal.resize(20, 60)
        redrawn()
        assert "\x1b[1;19r" in terminal.raw
        assert "\x1b[20;1H\x1b[2K60 columns" in terminal.raw


def test_no_thread_and_no_handler_is_left(view_on):
    before = {signal.SIGTERM: signal.getsignal(signal.SIGTERM)}
    with view_on(lambda columns: ["one"]):
        assert any(t.name == "bound-live-view" for t in threading.enumerate())
    assert not any(t.name == "bound-live-view" for t in threading.enumerate())
    assert signal.getsignal(signal.SIGTERM) is before[signal.SIGTERM]


def test_there_is_no_live_view_where_nobody_looks(tmp_path, monkeypatch, terminal):
    monkeypatch.setenv("TERM", "xterm")
    with open(tmp_path / "file", "w") as file:
        assert not live.can_live(file)
    with open(terminal.slave, "w", closefd=False) as stream:
        assert not live.can_live(stream), "it is not this process's own terminal"


# -- the command on a terminal -----------------------------------------------------------------------------

#: Makes the terminal the child's own, as a shell does, and becomes the command.
OWN = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
PROGRAM = """
import subprocess, sys
from langchain_openai import ChatOpenAI
model = ChatOpenAI(model="gpt-4o", base_url=sys.argv[1], api_key="none", max_retries=0)
for i in range(20):
    print("line", i)
subprocess.run(["echo", "a child"])
print(len(model.invoke("hello").text.split()), file=sys.stderr)
"""


@pytest.fixture
def on_terminal(terminal, tmp_path):
    """``on_terminal(server, *options)``: the command, running in the terminal."""
    children = []

    def start(server, *options):
        (tmp_path / "app.py").write_text(PROGRAM)
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy") and k != "NO_COLOR"}
        command = [sys.executable, "-m", "bound_middleware.cli", "run", *options, "app.py", server.openai_url]
        child = subprocess.Popen(
            [sys.executable, "-c", OWN, *command],
            stdin=terminal.slave,
            stdout=terminal.slave,
            stderr=terminal.slave,
            cwd=tmp_path,
            env={**env, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8"},
            start_new_session=True,
        )
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        child.wait()


def until(terminal, text):
    """Reads the terminal until a text stands in it."""
    for _ in range(600):
        terminal.read(0.1)
        if text in terminal.raw:
            return
    raise AssertionError(f"{text!r} did not come; there is {terminal.raw!r}")


def ended(terminal, child):
    for _ in range(600):
        terminal.read(0.1)
        if child.poll() is not None:
            terminal.read()
            return child.returncode
    raise AssertionError("the command does not end")


def test_the_command_shows_a_live_view_and_then_the_output_alone(terminal, on_terminal):
    with ProviderServer(default=Reply(tokens=300, token_delay_ms=1)) as server:
        child = on_terminal(server, "--usd", "0.50", "--iterations", "3")
        until(terminal, "model call gpt-4o")
        view = terminal.screen.lines[-6:]
        assert view[0].startswith("bound run app.py")
        assert [line.split()[0] for line in view[1:]] == ["iterations", "tokens", "money", "time", "last"]
        assert "█" in view[1] or "▒" in view[1]
        assert ended(terminal, child) == 0
    shown = terminal.screen.whole
    assert shown[:22] == [*(f"line {i}" for i in range(20)), "a child", "300"]
    assert shown[22] == "bound: completed"
    assert [line.split()[0] for line in shown[23:]] == ["iterations", "tokens", "money", "time", "calls"]
    assert terminal.screen.bottom == terminal.screen.rows - 1


def test_a_command_that_is_terminated_leaves_the_terminal_as_it_was(terminal, on_terminal):
    with ProviderServer(default=Reply(first_byte_delay_ms=60_000)) as server:
        child = on_terminal(server, "--usd", "0.50")
        until(terminal, "model call gpt-4o")
        child.terminate()
        assert ended(terminal, child) == -signal.SIGTERM
    assert terminal.screen.bottom == terminal.screen.rows - 1
    assert terminal.screen.whole == [*(f"line {i}" for i in range(20)), "a child"]
