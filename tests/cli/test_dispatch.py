"""``bound``: one door to all commands."""

import json
import subprocess
import sys
import types

import pytest

from bound_middleware import cli
from bound_middleware.core.errors import BoundExceeded, SpecError


@pytest.fixture
def command(monkeypatch):
    """Puts a command of the test's own making into the table and returns what it was called with."""

    def made(run, name="probe"):
        module = types.ModuleType(f"bound_middleware.cli.{name}", "A probe.\n\nMore about it.")
        module.add_arguments = lambda parser: (
            parser.add_argument("words", nargs="*"),
            parser.add_argument("--json", action="store_true"),
        )
        module.run = run
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(cli.COMMANDS, name, (name, "a probe"))
        return name

    return made


def test_help_lists_every_command_and_goes_to_stdout(capsys):
    assert cli.main(["--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    for name, (_, words) in cli.COMMANDS.items():
        assert name in out
        assert words in out
    assert cli.main(["-h"]) == 0


def test_without_a_command_the_help_goes_to_stderr_and_the_code_is_2(capsys):
    assert cli.main([]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage: bound" in err


def test_an_unknown_command_names_the_nearest(capsys):
    assert cli.main(["spce"]) == 2
    assert "did you mean 'spec'?" in capsys.readouterr().err
    assert cli.main(["xyzzy"]) == 2
    assert "spec" in capsys.readouterr().err
    assert cli.main(["--bad"]) == 2


def test_version(capsys):
    from importlib.metadata import version

    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"bound-middleware {version('bound-middleware')}\n"


def test_a_command_gets_its_arguments_and_gives_the_exit_code(command):
    seen = []
    name = command(lambda args: seen.append(args.words) or 3)
    assert cli.main([name, "a", "b"]) == 3
    assert seen == [["a", "b"]]


def test_the_help_of_a_command_is_its_docstring(command, capsys):
    name = command(lambda args: 0)
    assert cli.main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert "A probe." in out
    assert "More about it." in out


def test_a_usage_error_of_a_command_is_2(command, capsys):
    assert cli.main([command(lambda args: 0), "--nothing-like-it"]) == 2
    assert "--nothing-like-it" in capsys.readouterr().err


def test_a_command_that_is_not_installed_says_so_and_does_not_break_help(monkeypatch, capsys):
    monkeypatch.setitem(cli.COMMANDS, "absent", ("absent_module", "nothing here"))
    assert cli.main(["--help"]) == 0
    assert "absent" in capsys.readouterr().out
    assert cli.main(["absent"]) == 2
    assert "not part of this installation" in capsys.readouterr().err


def test_a_missing_package_is_one_line(monkeypatch, capsys, tmp_path):
    (tmp_path / "needy.py").write_text("import a_package_that_nobody_has")
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    monkeypatch.setitem(cli.COMMANDS, "needy", ("needy", "needs something"))
    assert cli.main(["needy"]) == 2
    assert capsys.readouterr().err == (
        "error: 'needy' needs the package 'a_package_that_nobody_has', which is not installed\n"
    )


def raising(error):
    def run(args):
        raise error

    return run


def test_a_spec_error_is_one_line_on_stderr_and_2(command, capsys):
    error = SpecError("unknown key", key="bounds.x", file="bound.yml", line=3, allowed="y", nearest="y")
    assert cli.main([command(raising(error))]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: bound.yml:3: bounds.x: unknown key; allowed: y; did you mean 'y'?\n")


def test_a_spec_error_is_json_where_json_is_asked_for(command, capsys):
    error = SpecError("unknown key", key="bounds.x", file="bound.yml", line=3, nearest="y")
    assert cli.main([command(raising(error)), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    found = json.loads(err)
    assert found["error"] == "spec_error"
    assert (found["key"], found["file"], found["line"], found["nearest"]) == ("bounds.x", "bound.yml", 3, "y")


def test_another_error_of_ours_is_1(command, capsys):
    assert cli.main([command(raising(BoundExceeded("deadline")))]) == 1
    assert capsys.readouterr().err == "error: stopped by deadline\n"


def test_an_interrupt_is_130(command):
    assert cli.main([command(raising(KeyboardInterrupt()))]) == 130


def test_a_fault_of_ours_is_not_hidden(command):
    with pytest.raises(ZeroDivisionError):
        cli.main([command(raising(ZeroDivisionError()))])


def test_a_reader_that_goes_away_is_no_success_and_no_traceback(tmp_path):
    program = (
        "import sys, types\nfrom bound_middleware import cli\n"
        "module = types.ModuleType('bound_middleware.cli.flood', 'Flood.')\n"
        "module.add_arguments = lambda parser: None\n"
        "module.run = lambda args: [print('x' * 1000) for _ in range(10000)] and 0\n"
        "sys.modules[module.__name__] = module\ncli.COMMANDS['flood'] = ('flood', '')\n"
        "sys.exit(cli.main(['flood']))"
    )
    flood = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    flood.stdout.read(1)
    flood.stdout.close()
    err = flood.stderr.read()
    flood.stderr.close()
    assert flood.wait() == 1
    assert err == b""


def test_help_imports_no_argument_parser_no_framework_and_no_command():
    program = (
        "import sys\nbefore = set(sys.modules)\nfrom bound_middleware.cli import main\nmain(['--help'])\n"
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    found = done.stderr.split()
    assert len(found) < 10, found
    assert not set(found) & {"argparse", "pydantic", "yaml", "dataclasses", "typing", "bound_middleware.cli.spec"}


def test_the_help_of_a_command_imports_no_pydantic_and_no_yaml():
    program = (
        "import sys\nfrom bound_middleware.cli import main\nmain(['spec', '--help'])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert not set(done.stderr.split()) & {"pydantic", "yaml", "langchain_core", "langgraph"}


def test_the_console_script_is_this_door():
    from importlib.metadata import entry_points

    (script,) = entry_points(group="console_scripts", name="bound")
    assert script.value == "bound_middleware.cli:main"
