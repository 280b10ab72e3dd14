"""The private file of keys: private, parsed as data, and behind the environment."""

import os

import pytest

from bound_middleware.gates.rubrics.secrets import SecretsProblem, load_secrets, with_secrets


@pytest.fixture
def write(tmp_path):
    def write(text, *, mode=0o600, path=".bound/secrets.env"):
        file = tmp_path / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        file.chmod(mode)
        return file

    return write


def refused(root, environment=None) -> str:
    with pytest.raises(SecretsProblem) as caught:
        load_secrets(root, environment or {})
    return str(caught.value)


def test_no_file_is_no_secret(tmp_path):
    assert load_secrets(tmp_path, {}) == {}


def test_lines_are_data_with_an_optional_export_and_quotes(tmp_path, write):
    write(
        "# keys\n\nA=1\nexport B = two words \nC='single # not a comment'\nD=\"$(touch pwned) `id`\"\nE=a=b\nF=\n"
    )
    assert load_secrets(tmp_path, {}) == {
        "A": "1",
        "B": "two words",
        "C": "single # not a comment",
        "D": "$(touch pwned) `id`",
        "E": "a=b",
        "F": "",
    }
    assert not (tmp_path / "pwned").exists()


def test_the_process_environment_wins_even_when_it_is_empty(tmp_path, write):
    write("A=file\nB=file\nC=file\n")
    found = with_secrets({"A": "process", "B": ""}, load_secrets(tmp_path, {}))
    assert found == {"A": "process", "B": "", "C": "file"}


@pytest.mark.parametrize("mode", [0o600, 0o400])
def test_a_private_mode_is_accepted(tmp_path, write, mode):
    write("A=1", mode=mode)
    assert load_secrets(tmp_path, {}) == {"A": "1"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610, 0o601, 0o777])
def test_a_file_that_others_may_use_is_refused(tmp_path, write, mode):
    write("A=1", mode=mode)
    assert f"mode {mode:04o}" in refused(tmp_path)


def test_a_link_is_refused(tmp_path, write):
    real = write("A=1", path=".bound/real.env")
    (tmp_path / ".bound/secrets.env").symlink_to(real)
    assert refused(tmp_path) == ".bound/secrets.env is a link"


def test_a_folder_that_is_a_link_is_refused(tmp_path, write):
    write("A=1", path="elsewhere/secrets.env")
    (tmp_path / ".bound").symlink_to(tmp_path / "elsewhere")
    assert refused(tmp_path) == "the folder of .bound/secrets.env is a link"


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    (tmp_path / ".bound").mkdir()
    os.mkfifo(tmp_path / ".bound/secrets.env", 0o600)
    assert "no regular file" in refused(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A=1\nsource other.env", "line 2 is no NAME=VALUE"),
        ("A B=1", "line 1 is no NAME=VALUE"),
        ("1A=1", "line 1 is no NAME=VALUE"),
        ("=1", "line 1 is no NAME=VALUE"),
        ("export =1", "line 1 is no NAME=VALUE"),
        ("A='1", "line 1 has a quote that does not end"),
        ("A='", "line 1 has a quote that does not end"),
        ("A=1\nA=2", "line 2 sets A again"),
        (b"A=\xff", "is not UTF-8"),
        (b"A=\0", "line 1 is no NAME=VALUE"),
        ("A=" + "x" * 70_000, "larger than"),
    ],
)
def test_a_line_that_is_no_assignment_is_refused(tmp_path, write, text, reason):
    write(text)
    assert reason in refused(tmp_path)


def test_no_error_tells_a_secret(tmp_path, write):
    write("A=1\nsk-live-0123456789abcdef")
    assert "sk-live" not in refused(tmp_path)


def test_the_override_names_another_file_and_that_must_be_there(tmp_path, write):
    write("A=default")
    write("A=other", path="other.env")
    assert load_secrets(tmp_path, {"BOUND_ENV_FILE": "other.env"}) == {"A": "other"}
    assert load_secrets(tmp_path, {"BOUND_ENV_FILE": str(tmp_path / "other.env")}) == {"A": "other"}
    assert load_secrets(tmp_path, {"BOUND_ENV_FILE": ""}) == {"A": "default"}
    assert "BOUND_ENV_FILE names a file that is not there" in refused(tmp_path, {"BOUND_ENV_FILE": "no.env"})
