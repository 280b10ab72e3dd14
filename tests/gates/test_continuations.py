"""How often an agent is sent back is counted outside of every graph, once for each attempt."""

import threading

import pytest

from bound_middleware.gates.continuations import Continuations
from bound_middleware.gates.state import State, StateError
from bound_middleware.gates.telling import MESSAGE_CHARS_MAX, repair_text
from bound_middleware.gates.values import Finding, Report, Result


@pytest.fixture
def state(tmp_path):
    return State(tmp_path / "state")


def test_an_attempt_that_is_asked_for_again_is_the_same_one(state):
    counted = Continuations(state=state, task="t")
    assert [counted.take(attempt, most=2) for attempt in ("a", "a", "b", "c", "b")] == [
        True,
        True,
        True,
        False,
        True,
    ]
    assert counted.used() == 2


def test_another_process_and_another_task_count_for_themselves(state):
    assert Continuations(state=state, task="t").take("a", most=1)
    assert not Continuations(state=State(state.folder), task="t").take("b", most=1)
    assert Continuations(state=state, task="u").take("b", most=1)


def test_zero_allows_none_and_a_person_allows_one_more(state):
    counted = Continuations(state=state, task="t")
    assert not counted.take("a", most=0)
    counted.grant("a")
    assert counted.take("a", most=0)
    assert not counted.take("b", most=0)


def test_a_crash_is_sent_back_once_in_a_task(state):
    counted = Continuations(state=state, task="t")
    assert counted.take("a", most=5, why="crash")
    assert not counted.take("b", most=5, why="crash")
    assert counted.take("c", most=5)


@pytest.mark.parametrize("content", ["{", "[]", '{"form": 2, "taken": {}}', '{"form": 1, "taken": {"a": 1}}'])
def test_a_count_that_cannot_be_read_lets_nobody_go_on(state, content):
    counted = Continuations(state=state, task="t")
    counted.take("a", most=5)
    next(state.folder.glob("tasks/*.count.json")).write_text(content)
    with pytest.raises(StateError):
        counted.take("b", most=5)


def test_side_by_side_no_more_are_given_than_there_are(state):
    counted, given = Continuations(state=state, task="t"), []
    threads = [threading.Thread(target=lambda n=n: given.append(counted.take(f"{n}", most=3))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(given) == [False] * 5 + [True] * 3


def result(id, verdict="fail", **more):
    return Result(
        constraint_id=id, kind="command", verdict=verdict, enforcement=more.pop("enforcement", "required"), **more
    )


def report(*results):
    return Report(run_id="r", project_root="/p", contract_digest="c", phase="stop", started_at="", results=results)


def test_the_message_tells_findings_with_their_places_and_lines_that_tell():
    tail = "\n".join(["AssertionError: 1 != 2", *(f"noise {n}" for n in range(999))])
    found = Finding(message="unused name", file_path="a.py", line=3, suggestion="remove it")
    text = repair_text(report(result("lint", findings=(found,)), result("tests", output_tail=tail)))
    assert "- a.py:3: unused name (remove it)" in text
    assert text.index("AssertionError: 1 != 2") < text.index("noise 998")
    assert "noise 10\n" not in text


def test_the_message_is_capped_and_names_what_it_leaves_out():
    loud = "x" * 99_999
    text = repair_text(report(*(result(f"c{n}", message=loud, output_tail=loud) for n in range(5))))
    assert len(text) <= MESSAGE_CHARS_MAX + len("\n[cut]")
    quiet = repair_text(report(*(result(f"c{n}") for n in range(5))))
    assert "Also failing: c3, c4." in quiet


def test_advice_is_told_with_the_way_to_answer_it():
    advice = result("style", enforcement="advisory", message="long lines")
    text = repair_text(report(advice), (advice,), acknowledge="acknowledge")
    assert text.startswith("Advice is not answered yet. Repair it, or say with the tool acknowledge why it stays.")
    assert "style (command): fail. long lines" in text
