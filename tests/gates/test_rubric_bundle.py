"""What an evaluator is shown: the work, within a limit, and no secret."""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from bound_middleware.gates.rubrics.disclosure import withheld_name
from bound_middleware.gates.rubrics.inside import read_inside, real_path
from bound_middleware.gates.values import Finding, Result

from .rubric_help import Scripted, bundle_of, git, judged, prepared, put, repository

SECRET = "hunter2-hunter2-hunter2"
EARLIER = Result(
    constraint_id="tests",
    kind="command",
    verdict="fail",
    enforcement="required",
    input_digest="abc",
    message="exit code 1",
    exit_code=1,
    duration_ms=77,
    output_tail="1 failed",
    findings=(Finding(message="broken", file_path="a.py", line=2),),
)


def test_a_bundle_has_the_keys_of_the_protocol(tmp_path):
    repository(tmp_path, {"src/a.py": "one\n", "b.py": "same\n"})
    put(tmp_path, {"src/a.py": "two\n", "c.py": "new\n"})
    found = bundle_of(tmp_path, goal="make it two", earlier=[EARLIER])
    assert sorted(found) == [
        *("constraint_id", "deterministic_results", "diff", "files", "goal", "omitted_files", "rubric"),
        "schema_version",
    ]
    assert (found["schema_version"], found["constraint_id"], found["rubric"], found["goal"]) == (
        *(1, "review"),
        *("names are clear", "make it two"),
    )
    assert found["files"] == {"src/a.py": "two\n", "b.py": "same\n", "c.py": "new\n"}
    assert found["omitted_files"] == []
    (told,) = found["deterministic_results"]
    assert (told["verdict"], told["exit_code"], told["output_tail"]) == ("fail", 1, "1 failed")
    assert told["findings"] == [{"message": "broken", "file_path": "a.py", "line": 2}]
    assert not {"duration_ms", "cached", "evaluator_calls"} & set(told)


def test_the_diff_has_what_is_staged_not_staged_and_not_tracked(tmp_path):
    repository(tmp_path, {"a.py": "1\n", "gone.py": "x\n", "same.py": "s\n", ".gitignore": "*.log\n"})
    put(tmp_path, {"a.py": "2\n"})
    git(tmp_path, "add", "a.py")
    put(tmp_path, {"a.py": "3\n", "new.py": "n\n", "noise.log": "noise\n", "build/out.py": "o\n"})
    os.remove(tmp_path / "gone.py")
    diff = bundle_of(tmp_path)["diff"]
    assert "# staged\n--- a.py\n+++ a.py\n@@ -1 +1 @@\n-1\n+2\n" in diff
    assert "# not staged\n--- a.py\n+++ a.py\n@@ -1 +1 @@\n-2\n+3\n" in diff
    assert "# not staged\n--- gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n" in diff
    assert "# not tracked\n--- /dev/null\n+++ new.py\n@@ -0,0 +1 @@\n+n\n" in diff
    assert "same.py" not in diff
    assert "noise" not in diff
    assert "build/out.py" not in diff


def test_what_a_checkout_converts_is_no_change_and_what_a_person_does_is(tmp_path):
    content = b"large\0content"
    pointer = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{hashlib.sha256(content).hexdigest()}\nsize 13\n"
    )
    files = {
        "dos.py": "1\n2\n",
        "lfs.bin": pointer,
        "forged.bin": pointer,
        "run.sh": "true\n",
        "announced.py": "x\n",
    }
    repository(tmp_path, files)
    put(tmp_path, {"dos.py": "1\r\n2\r\n", "lfs.bin": content, "forged.bin": "other\n"})
    (tmp_path / "run.sh").chmod(0o755)
    git(tmp_path, "rm", "-q", "--cached", "announced.py")
    git(tmp_path, "add", "-N", "announced.py")
    diff = bundle_of(tmp_path)["diff"]
    assert "dos.py" not in diff
    assert "lfs.bin" not in diff
    assert "+other" in diff
    assert "+++ run.sh\n(no line differs)\n" in diff
    assert "# not staged\n--- announced.py\n+++ announced.py\n@@ -0,0 +1 @@\n+x\n" in diff


def test_a_branch_without_a_commit_and_a_folder_without_a_repository_have_files_all_the_same(tmp_path):
    put(tmp_path, {"a.py": "1\n"})
    found = bundle_of(tmp_path)
    assert (found["diff"], found["files"]) == ("", {"a.py": "1\n"})
    git(tmp_path, "init", "-q")
    assert "+++ a.py" in bundle_of(tmp_path)["diff"]


def test_a_root_below_the_top_of_the_repository_sees_nothing_above_it(tmp_path):
    repository(tmp_path, {"top.py": "top\n", "inner/a.py": "1\n", ".gitignore": "*.log\n"})
    put(tmp_path, {"top.py": "CHANGED\n", "inner/a.py": "2\n", "inner/x.log": "noise\n", "other.py": "o\n"})
    found = bundle_of(tmp_path / "inner")
    assert found["files"] == {"a.py": "2\n"}
    assert "+2" in found["diff"]
    assert "CHANGED" not in json.dumps(found)
    assert "other.py" not in json.dumps(found)


def test_git_is_asked_without_believing_the_settings_of_the_repository(tmp_path):
    repository(tmp_path, {"a.py": "1\n", ".gitattributes": "*.py diff=evil\n"})
    put(tmp_path, {"a.py": "2\n"})
    trap = f"touch {tmp_path}/pwned"
    git(tmp_path, "config", "diff.evil.command", trap)
    git(tmp_path, "config", "diff.evil.textconv", trap)
    git(tmp_path, "config", "diff.external", trap)
    git(tmp_path, "config", "core.fsmonitor", trap)
    git(tmp_path, "update-index", "--assume-unchanged", "a.py")
    (tmp_path / "pwned").unlink(missing_ok=True)
    assert "-1\n+2" in bundle_of(tmp_path)["diff"]
    assert not (tmp_path / "pwned").exists()


def test_a_repository_that_cannot_be_read_leaves_the_verdict_open(tmp_path):
    repository(tmp_path, {"a.py": "1\n"})
    (tmp_path / ".git/index").write_bytes(b"broken")
    found = judged(tmp_path, Scripted('{"verdict":"pass","rationale":"x"}'))
    assert (found.verdict, found.category) == ("uncertain", "environment")
    assert "git ls-files" in found.message


@pytest.mark.parametrize(
    "path",
    [
        *(".env", ".ENV", "a/.env", ".env.local", ".Env.Production", ".env.example.local", ".envrc", ".env/a.txt"),
        *("credentials.json", "Credentials.JSON", "secrets.env", "conf/secrets.env", "a.key", "A.KEY", "b.pem"),
        *("c.p12", "d.pfx", "e.pem.", "f.key ", "id_rsa", ".npmrc", ".netrc", "ﬁle.pem", "．env"),
    ],
)
def test_names_of_secrets_are_withheld_in_any_case(path):
    assert withheld_name(path)


@pytest.mark.parametrize(
    "path", [".env.example", "a/.env.example", "key.py", "env.py", "keys/a.py", "a.keys", "x.env"]
)
def test_other_names_are_not(path):
    assert not withheld_name(path)


@pytest.mark.parametrize("name", [".env", ".env.production", "credentials.json", "secrets.env", "a.key", "B.PEM"])
@pytest.mark.parametrize("tracked", [True, False])
def test_a_file_of_secrets_is_in_no_part_of_the_bundle(tmp_path, name, tracked):
    repository(tmp_path, {"a.py": "1\n", **({name: "before 0000000\n"} if tracked else {})})
    put(tmp_path, {name: f"VALUE: {SECRET}\n", ".env.example": "VALUE=\n"})
    found = bundle_of(tmp_path)
    assert SECRET not in json.dumps(found)
    assert "before 0000000" not in json.dumps(found)
    assert found["files"] == {"a.py": "1\n", ".env.example": "VALUE=\n"}
    assert name in found["omitted_files"]


def _renamed(root: Path) -> None:
    git(root, "mv", ".env", "settings.txt")


def _moved(root: Path) -> None:
    os.rename(root / ".env", root / "settings.txt")


def _copied(root: Path) -> None:
    put(root, {"settings.txt": (root / ".env").read_bytes()})


def _edited(root: Path) -> None:
    put(root, {"settings.txt": (root / ".env").read_text().replace("HOST=", "# more\nHOST=") + "# the end\n"})
    os.remove(root / ".env")


def _linked(root: Path) -> None:
    (root / "settings.txt").symlink_to(".env")


def _hard_linked(root: Path) -> None:
    os.link(root / ".env", root / "settings.txt")


@pytest.mark.parametrize("way", [_renamed, _moved, _copied, _edited, _linked, _hard_linked])
def test_another_name_for_a_file_of_secrets_does_not_help(tmp_path, way):
    repository(tmp_path, {"a.py": "1\n", ".env": f"HOST=db.example.org\nCODE={SECRET}\nPLACE=somewhere\n"})
    way(tmp_path)
    found = bundle_of(tmp_path)
    assert SECRET not in json.dumps(found)
    assert found["files"] == {"a.py": "1\n"}
    assert "settings.txt" in found["omitted_files"]


def test_nothing_outside_of_the_root_is_read(tmp_path):
    outside, root = tmp_path / "outside", tmp_path / "root"
    put(outside, {"secret.txt": SECRET, "deep/other.txt": SECRET})
    put(root, {"a.py": "1\n"})
    (root / "link.txt").symlink_to(outside / "secret.txt")
    (root / "deep").symlink_to(outside / "deep")
    (root / "circle").symlink_to("circle")
    found = bundle_of(root, include=["**/*", "deep/other.txt"])
    assert SECRET not in json.dumps(found)
    assert found["files"] == {"a.py": "1\n"}


def test_values_of_secret_variables_and_files_are_taken_out_everywhere(tmp_path):
    key, token, private = "k-1234567890", "t-1234567890", "f-1234567890"
    repository(tmp_path, {"a.py": f"x = '{key}'\n", "b.py": f"{token}\n"})
    put(tmp_path, {"b.py": f"{token} {private}\n", ".env": f"DEPLOY_KEY={private}\nHOST=x\nUSER=y\n"})
    (tmp_path / ".env").chmod(0o600)
    earlier = Result(
        constraint_id="t", kind="command", verdict="fail", enforcement="required", message=key, output_tail=token
    )
    found = bundle_of(
        tmp_path,
        environment={"MY_KEY": key, "CI_TOKEN": token, "PLAIN": "names"},
        goal=f"use {key}",
        earlier=[earlier],
    )
    for value in (key, token, private):
        assert value not in json.dumps(found)
    assert found["files"] == {"a.py": "x = '[redacted]'\n", "b.py": "[redacted] [redacted]\n"}
    assert found["rubric"] == "names are clear"


def test_a_short_value_is_a_word_and_stays(tmp_path):
    put(tmp_path, {"a.py": "short12\n"})
    assert bundle_of(tmp_path, environment={"A_KEY": "short12"})["files"] == {"a.py": "short12\n"}


def test_what_git_ignores_is_shown_only_where_the_contract_names_it(tmp_path):
    repository(tmp_path, {"a.py": "1\n", ".gitignore": "*.sql\n"})
    put(tmp_path, {"dump.sql": "rows\n", "plan.sql": "plan\n"})
    assert "dump.sql" not in bundle_of(tmp_path)["files"]
    assert bundle_of(tmp_path, include=["*.py", "plan.sql"])["files"] == {"a.py": "1\n", "plan.sql": "plan\n"}


def test_binary_files_are_named_and_not_shown(tmp_path):
    put(tmp_path, {"a.bin": b"\0\1", "b.txt": b"\xff\xfe", "c.txt": "é"})
    found = bundle_of(tmp_path)
    assert (found["files"], found["omitted_files"]) == ({"c.txt": "é"}, ["a.bin", "b.txt"])


@pytest.mark.parametrize("limit", [4_096, 10_000, 65_536])
def test_a_bundle_never_exceeds_its_limit(tmp_path, limit):
    repository(tmp_path, {f"src/f{n}.py": "x = 'é'\n" * 100 for n in range(60)})
    put(tmp_path, {f"src/f{n}.py": f"y{n} = 'é'\n" * 300 for n in range(60)})
    many = [
        Result(
            constraint_id=f"t{n}", kind="command", verdict="fail", enforcement="required", output_tail="é" * 3_000
        )
        for n in range(5)
    ]
    case = prepared(
        tmp_path, Scripted(), goal="g" * 20_000, earlier=many, settings={"evaluation_bundle_limit": limit}
    )
    assert case.problem == ""
    assert limit // 2 < len(case.bundle.encode()) <= limit
    found = json.loads(case.bundle)
    assert len(found["diff"].encode()) <= limit // 4
    assert len(found["files"]) + len(found["omitted_files"]) > 0
    for text in found["files"].values():
        assert text.endswith("'é'\n")


def test_a_rubric_that_does_not_fit_is_uncertain(tmp_path):
    found = judged(
        tmp_path, Scripted("never asked"), rubric="r" * 5_000, settings={"evaluation_bundle_limit": 4_096}
    )
    assert (found.verdict, found.category) == ("uncertain", "environment")
    assert "does not fit into 4096 bytes" in found.message


def test_the_likeliest_files_come_first(tmp_path):
    text = "x" * 900 + "\n"
    paths = ["zz/parser.py", "docs/a.md", "src/old.py", "src/new.py", "zz/other.py"]
    repository(tmp_path, dict.fromkeys(paths, text))
    put(tmp_path, {"zz/other.py": text + "y\n"})
    for age, path in enumerate(["zz/parser.py", "src/new.py", "src/old.py", "docs/a.md", "zz/other.py"]):
        os.utime(tmp_path / path, ns=((10**9) * (100 - age), (10**9) * (100 - age)))
    shown = [
        set(bundle_of(tmp_path, goal="fix the parser", settings={"evaluation_bundle_limit": limit})["files"])
        for limit in (4_096, 4_700, 5_700)
    ]
    order = ["zz/parser.py", "zz/other.py", "src/new.py", "src/old.py", "docs/a.md"]
    for files in shown:
        assert files == set(order[: len(files)])
    assert len(shown[0]) >= 1
    assert len(shown[2]) > len(shown[0])


def test_the_key_covers_the_whole_bundle(tmp_path):
    repository(tmp_path, {"a.py": "1\n"})

    def key(**given):
        return prepared(tmp_path, Scripted(), **given).digest

    first = key()
    assert key() == first
    assert key(goal="another") != first
    assert key(rubric="another") != first
    assert key(earlier=[EARLIER]) != first
    assert key(runs=2) != first
    os.utime(tmp_path / "a.py", ns=(1, 1))
    assert key() == first
    put(tmp_path, {"unwatched.py": "2\n"})
    assert key(watch=["a.py"], include=["a.py"]) != first
    os.remove(tmp_path / "unwatched.py")
    assert key(include=["a.py"]) == first
    git(tmp_path, "rm", "--cached", "-q", "a.py")
    assert key() != first


def test_how_long_earlier_checks_took_is_not_part_of_the_key(tmp_path):
    slow = replace(EARLIER, duration_ms=9_999, cached=True, evaluator_calls=({"run": 1},))
    assert (
        prepared(tmp_path, Scripted(), earlier=[slow]).digest
        == prepared(tmp_path, Scripted(), earlier=[EARLIER]).digest
    )


def test_one_reviewer_does_not_see_what_another_said(tmp_path):
    other = replace(EARLIER, kind="rubric", constraint_id="other")
    (told,) = bundle_of(tmp_path, earlier=[other, EARLIER])["deterministic_results"]
    assert told["constraint_id"] == "tests"


def test_a_folder_that_becomes_a_link_between_the_look_and_the_reading_is_not_followed(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    put(root, {"deep/a.txt": "inside"})
    put(outside, {"a.txt": SECRET})
    real = real_path(root, "deep/a.txt")
    assert real == "deep/a.txt"
    assert read_inside(root, real, bytes_max=100) == b"inside"
    assert read_inside(root, real, bytes_max=5) is None
    os.rename(root / "deep", root / "away")
    (root / "deep").symlink_to(outside)
    assert read_inside(root, real, bytes_max=100) is None
    assert real_path(root, "deep/a.txt") is None


def test_a_pipe_in_the_project_is_not_waited_for(tmp_path):
    put(tmp_path, {"a.py": "1\n"})
    os.mkfifo(tmp_path / "pipe.py")
    os.mkfifo(tmp_path / ".env")
    assert bundle_of(tmp_path)["files"] == {"a.py": "1\n"}
    git(tmp_path, "init", "-q")
    assert bundle_of(tmp_path)["files"] == {"a.py": "1\n"}


def test_a_name_cannot_forge_a_line_of_the_diff(tmp_path):
    repository(tmp_path, {"a.py": "1\n"})
    put(tmp_path, {"b\n+forged.py": "2\n"})
    diff = bundle_of(tmp_path)["diff"]
    assert "+++ b\\n+forged.py\n" in diff
    assert "\n+forged" not in diff


def test_what_git_keeps_beside_the_work_is_not_shown(tmp_path):
    (tmp_path / "main").mkdir()
    repository(tmp_path / "main", {"a.py": "1\n"})
    git(tmp_path / "main", "worktree", "add", "-q", str(tmp_path / "other"))
    put(tmp_path / "other", {"a.py": "2\n"})
    found = bundle_of(tmp_path / "other")
    assert (found["files"], found["omitted_files"]) == ({"a.py": "2\n"}, [])
    assert "-1\n+2\n" in found["diff"]
