"""A node that decides takes the state back to the last accepted savepoint, and says what it could not undo."""

import asyncio
import operator
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.channels import Topic
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from bound_middleware.langgraph.effects import compensated_by, without_effect
from bound_middleware.langgraph.rollback import Restored, Rollback, RollbackReport
from bound_middleware.langgraph.savepoints import SAVEPOINTS, merge_savepoints
from bound_middleware.session.flow import adrive, drive

CONFIG = {"configurable": {"thread_id": "t"}}
KEEP = frozenset({"bound"})


class State(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    plan: str
    total: Annotated[int, operator.add]
    items: list[str]
    score: int
    bound: Annotated[dict[str, Any], operator.or_]
    bound_savepoints: Annotated[dict[str, Any], merge_savepoints]


class Deciding:
    """START -> plan -> act (guarded) -> tools -> decide, which does what a script says."""

    def __init__(
        self, script: list[str], *, act: Any, rollback: Rollback | None = None, plan: Any = None, **compiled: Any
    ) -> None:
        self.script, self.restored = list(script), []
        self.rollback = rollback or Rollback()
        builder = StateGraph(State)
        builder.add_node("plan", plan or (lambda state: {"plan": "p"}))
        builder.add_node("tools", self.rollback.watched(act) if isinstance(act, ToolNode) else (lambda state: None))
        channels = builder.channels
        inner = (lambda state: None) if isinstance(act, ToolNode) else act
        inner = inner if hasattr(inner, "invoke") else RunnableLambda(inner)
        builder.add_node("act", self.rollback.guarded(inner, node="act", channels=channels, keep=KEEP))
        builder.add_node("decide", self._node(channels), destinations=("plan", "act", END))
        builder.add_edge(START, "plan")
        builder.add_edge("plan", "act")
        builder.add_edge("act", "tools")
        builder.add_edge("tools", "decide")
        self.graph = builder.compile(**compiled)

    def _node(self, channels: Any) -> Any:
        def flow(config: Any) -> Any:
            what = self.script.pop(0)
            if what in ("accept", "more"):
                write = yield from self.rollback.mark(config, node="decide", channels=channels, keep=KEEP)
                return Command(update={SAVEPOINTS: write}, goto=END if what == "accept" else "act")
            if what == "retry":
                return Command(goto="act")
            extra = {"messages": [SystemMessage("rolled back", id="note")]} if what == "rollback and say" else None
            restored: Restored = yield from self.rollback.restore(
                config, node="decide", channels=channels, keep=KEEP, extra=extra
            )
            self.restored.append(restored.report)
            write = {"bound": {"report": restored.report.as_dict()}}
            return Command(update={**restored.update, **write}, goto=END if what.endswith("end") else "plan")

        def decide(state: State, config: RunnableConfig) -> Any:
            return drive(flow(config))

        async def adecide(state: State, config: RunnableConfig) -> Any:
            return await adrive(flow(config))

        return RunnableLambda(decide, adecide)


@pytest.fixture(params=["sync", "async"])
def run(request):
    if request.param == "sync":
        return lambda made, given, config=CONFIG: made.graph.invoke(given, config)
    return lambda made, given, config=CONFIG: asyncio.run(made.graph.ainvoke(given, config))


@pytest.fixture(params=["no checkpointer", "checkpointer"])
def saver(request):
    return None if request.param == "no checkpointer" else InMemorySaver()


def dirty(state: State) -> dict[str, Any]:
    return {
        "messages": [AIMessage("made", id="m1"), *(RemoveMessage(m.id) for m in state["messages"] if m.id == "m0")],
        "plan": "dirty",
        "total": 10,
        "items": [*state.get("items", []), "x"],
        "score": 5,
        "bound": {"spent": state.get("bound", {}).get("spent", 0) + 1},
    }


GIVEN = {"messages": [HumanMessage("hi", id="m0")], "total": 1}


def test_the_state_goes_back_to_before_the_node_first_ran_and_spend_does_not(run, saver):
    made = Deciding(["rollback end"], act=dirty, checkpointer=saver)

    out = run(made, GIVEN)

    assert [m.id for m in out["messages"]] == ["m0"]
    assert out["messages"][0].content == "hi"
    assert out["total"] == 1
    assert out["plan"] == "p"
    assert out["items"] == []
    assert out["score"] is None, "a channel without a reducer cannot be emptied from inside"
    assert out["bound"]["spent"] == 1
    assert out["bound"]["report"] == made.restored[0].as_dict()
    assert made.restored[0].complete
    assert made.restored[0].restored == (
        {"kind": "channel", "name": "messages"},
        {"kind": "channel", "name": "plan"},
        {"kind": "channel", "name": "total"},
        {"kind": "channel", "name": "items", "how": "emptied"},
        {"kind": "channel", "name": "score", "how": "None"},
    )


def test_it_goes_back_to_the_last_accepted_savepoint(run, saver):
    made = Deciding(["more", "retry", "rollback end"], act=dirty, checkpointer=saver)

    out = run(made, GIVEN)

    assert out["total"] == 11, "the first ten were accepted; two times ten were not"
    assert out["items"] == ["x"]
    assert out["bound"]["spent"] == 3


def test_after_a_rollback_the_run_goes_on_and_can_be_accepted(run, saver):
    made = Deciding(["rollback", "rollback", "accept"], act=dirty, checkpointer=saver)

    out = run(made, GIVEN)

    assert out["total"] == 11
    assert out["items"] == ["x"]
    assert [m.id for m in out["messages"]] == ["m1"]
    assert out["bound"]["spent"] == 3


def test_what_the_node_says_is_added_to_the_restored_messages(run):
    made = Deciding(["rollback and say", "accept"], act=lambda state: {"messages": [AIMessage("made", id="m1")]})

    out = run(made, GIVEN)

    assert [m.id for m in out["messages"]] == ["m0", "note", "m1"]


def test_what_is_not_changed_is_not_written(run):
    made = Deciding(["rollback and say", "accept"], act=lambda state: {"plan": "dirty"})

    out = run(made, GIVEN)

    assert made.restored[0].restored == ({"kind": "channel", "name": "plan"},)
    assert [m.id for m in out["messages"]] == ["m0", "note"]


def test_a_value_that_a_node_changed_in_place_is_restored(run):
    def act(state: State) -> dict[str, Any]:
        state["items"].append("in place")
        state["messages"][0].content = "forged"
        return {"items": state["items"]}

    made = Deciding(["rollback", "rollback end"], act=act)
    out = run(made, {"messages": [HumanMessage("hi", id="m0")], "items": ["first"]})

    assert out["items"] == ["first"]
    assert out["messages"][0].content == "hi"


def test_a_new_input_has_a_savepoint_of_its_own(run):
    made = Deciding(["accept", "rollback end"], act=dirty, checkpointer=InMemorySaver())
    run(made, GIVEN)

    out = run(made, {"messages": [HumanMessage("again", id="m2")], "total": 100})

    assert [m.id for m in out["messages"]] == ["m1", "m2"], "the new question is still there"
    assert out["total"] == 111


def test_a_resumed_run_keeps_its_savepoint(run):
    def act(state: State) -> dict[str, Any]:
        if len(state.get("items") or []) == 1:
            interrupt("go on?")
        return dirty(state)

    made = Deciding(["more", "rollback end"], act=act, checkpointer=InMemorySaver())
    paused = run(made, GIVEN)
    assert paused["__interrupt__"]

    out = run(made, Command(resume=True))

    assert out["total"] == 11
    assert out["items"] == ["x"]


def test_a_run_that_was_resumed_before_its_first_decision_does_not_use_an_older_runs_savepoint(run):
    asked: list[int] = []

    def plan(state: State) -> dict[str, Any]:
        if len(state["messages"]) == 2:
            asked.append(interrupt("sure?"))
        return {"plan": "p"}

    made = Deciding(
        ["accept", "rollback end"], act=lambda s: {"total": 10}, plan=plan, checkpointer=InMemorySaver()
    )
    run(made, GIVEN)
    run(made, {"messages": [HumanMessage("again", id="m2")], "total": 100})
    out = run(made, Command(resume=1))

    assert asked == [1]
    assert [m.id for m in out["messages"]] == ["m0", "m2"]
    assert out["total"] == 111


def test_without_a_savepoint_it_says_so_and_is_not_complete(run):
    made = Deciding(["rollback end"], act=dirty, rollback=Rollback(savepoint=False))

    out = run(made, GIVEN)

    assert out["plan"] == "dirty"
    assert not made.restored[0].complete
    assert made.restored[0].could_not_undo == (
        {"kind": "state", "reason": "savepoints are switched off (savepoint=False)"},
    )


def test_a_failed_node_leaves_no_savepoint_and_runs_again(run):
    fails = [RuntimeError("boom")]

    def act(state: State) -> dict[str, Any]:
        if fails:
            raise fails.pop()
        return dirty(state)

    made = Deciding(["rollback end"], act=act, checkpointer=InMemorySaver())
    with pytest.raises(RuntimeError, match="boom"):
        run(made, GIVEN)
    out = run(made, None)

    assert out["total"] == 1
    assert made.restored[0].complete


class Trip:
    """Tools of a travel agent: a booking that can be cancelled, a mail that cannot, a search without effect."""

    def __init__(self) -> None:
        self.log: list[str] = []

        def cancel(flight: str, result: Any) -> None:
            self.log.append(f"cancel {flight} {result['id']}")

        @compensated_by(cancel)
        @tool
        def book_flight(flight: str) -> dict[str, str]:
            """Book."""
            self.log.append(f"book {flight}")
            return {"id": f"b-{flight}"}

        @tool
        def send_mail(to: str) -> str:
            """Mail."""
            self.log.append(f"mail {to}")
            return "sent"

        @without_effect
        @tool
        def search(q: str) -> str:
            """Search."""
            return q

        self.node = ToolNode([book_flight, send_mail, search])

    @staticmethod
    def calls(*calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        made = [{"name": n, "args": a, "id": f"c{i}", "type": "tool_call"} for i, (n, a) in enumerate(calls)]
        return {"messages": [HumanMessage("hi", id="m0"), AIMessage("", tool_calls=made, id="m1")]}


def test_effects_since_the_savepoint_are_compensated_and_a_sent_message_is_reported(run):
    trip = Trip()
    made = Deciding(["rollback end"], act=trip.node, rollback=Rollback(), checkpointer=InMemorySaver())

    out = run(
        made,
        Trip.calls(("book_flight", {"flight": "A"}), ("search", {"q": "x"}), ("send_mail", {"to": "bob"})),
    )

    report: RollbackReport = made.restored[0]
    assert sorted(trip.log[:2]) == ["book A", "mail bob"]
    assert trip.log[2:] == ["cancel A b-A"]
    assert [m.id for m in out["messages"]] == ["m0", "m1"], "the answers of the tools are gone again"
    assert [(e["tool"], e["arguments"]) for e in report.compensated] == [("book_flight", {"flight": "A"})]
    assert [(e["tool"], e["arguments"]) for e in report.could_not_undo] == [("send_mail", {"to": "bob"})]
    assert report.complete is False, "partial is never success"
    assert report.as_dict()["complete"] is False


def test_effects_that_were_accepted_stay(run):
    trip = Trip()
    made = Deciding(["more", "rollback end"], act=trip.node, checkpointer=InMemorySaver())

    run(made, Trip.calls(("book_flight", {"flight": "A"})))

    # The second pass dispatches the same message in a later step: a new effect, which is taken back alone.
    assert trip.log == ["book A", "book A", "cancel A b-A"]


def test_effects_of_a_run_without_thread_are_compensated(run):
    trip = Trip()
    made = Deciding(["rollback end"], act=trip.node)

    run(made, Trip.calls(("book_flight", {"flight": "A"})), None)

    assert trip.log == ["book A", "cancel A b-A"]
    assert made.restored[0].complete


def test_a_decision_that_was_cut_off_after_its_compensations_tells_them_again(run):
    """The process dies between the compensations and the checkpoint: the node runs again."""
    trip, cut = Trip(), [True]
    made = Deciding(["rollback end", "rollback end"], act=trip.node, checkpointer=InMemorySaver())
    real = made.rollback.restore

    def restore(*arguments: Any, **named: Any) -> Any:
        restored = yield from real(*arguments, **named)
        if cut.pop() if cut else False:
            raise RuntimeError("cut off")
        return restored

    made.rollback.restore = restore  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="cut off"):
        run(made, Trip.calls(("book_flight", {"flight": "A"})))
    run(made, None)

    assert trip.log == ["book A", "cancel A b-A"]
    assert [e["tool"] for e in made.restored[0].compensated] == ["book_flight"]
    assert made.restored[0].complete


def test_files_effects_and_state_go_back_together(run, tmp_path):
    """A rewind that covers files, and lists the shell and the request that it does not cover."""
    (tmp_path / "f1").write_text("before")
    posted: list[str] = []

    @tool
    def edit(text: str) -> str:
        """Edit."""
        (tmp_path / "f1").write_text(text)
        return "edited"

    @tool
    def shell(command: str) -> str:
        """Shell."""
        (tmp_path / "f2").write_text("x")
        return ""

    @tool
    def http_post(body: str) -> str:
        """Post."""
        posted.append(body)
        return "201"

    rollback = Rollback(workspace=tmp_path, reversible=["edit"])
    made = Deciding(["rollback end"], act=ToolNode([edit, shell, http_post]), rollback=rollback)
    run(
        made,
        Trip.calls(
            ("edit", {"text": "after"}), ("shell", {"command": "echo x > f2"}), ("http_post", {"body": "b"})
        ),
    )

    assert (tmp_path / "f1").read_text() == "before"
    assert not (tmp_path / "f2").exists()
    report = made.restored[0]
    files = [e for e in report.restored if e["kind"] == "file"]
    assert files == [
        {"kind": "file", "path": "f1", "action": "restored"},
        {"kind": "file", "path": "f2", "action": "removed"},
    ]
    assert sorted(e["tool"] for e in report.could_not_undo) == ["http_post", "shell"]
    assert not report.complete


def test_a_compensation_may_use_and_write_files_of_the_run(run, tmp_path):
    seen: list[str] = []

    def cancel(args: Any) -> None:
        seen.append((tmp_path / "booking").read_text())
        (tmp_path / "cancelled").write_text("yes")

    @tool
    def book() -> str:
        """Book."""
        (tmp_path / "booking").write_text("b1")
        return "booked"

    rollback = Rollback(workspace=tmp_path, compensations={"book": cancel})
    made = Deciding(["rollback end"], act=ToolNode([book]), rollback=rollback)
    run(made, Trip.calls(("book", {})))

    assert seen == ["b1"]
    assert [p.name for p in tmp_path.iterdir()] == [".bound"]
    assert made.restored[0].complete


def test_a_topic_that_only_grows_is_reported():
    class Growing(TypedDict, total=False):
        log: Annotated[list[str], Topic(str, accumulate=True)]
        bound_savepoints: Annotated[dict[str, Any], merge_savepoints]

    rollback, reports = Rollback(), []
    builder = StateGraph(Growing)
    act = RunnableLambda(lambda state: {"log": ["more"]})
    builder.add_node("act", rollback.guarded(act, node="act", channels=builder.channels))

    def decide(state: Growing, config: RunnableConfig) -> Any:
        restored = drive(rollback.restore(config, node="decide", channels=builder.channels))
        reports.append(restored.report)
        return restored.update

    builder.add_node("decide", RunnableLambda(decide))
    builder.add_edge(START, "act")
    builder.add_edge("act", "decide")
    out = builder.compile().invoke({"log": ["first"]})

    assert out["log"] == ["first", "more"]
    assert [e["name"] for e in reports[0].could_not_undo] == ["log"]
    assert not reports[0].complete


@pytest.mark.parametrize(
    "result",
    [
        None,
        {"plan": "x"},
        Command(update={"plan": "x"}),
        Command(goto="after"),
        [Command(update={"plan": "x"}), Command(update={"total": 1})],
        [{"plan": "x"}, Command(goto=Send("after", {"plan": "x"}))],
    ],
    ids=["None", "dict", "Command", "Command without update", "Commands", "mixed"],
)
def test_whatever_a_node_returns_the_savepoint_is_added(run, result):
    rollback, ran = Rollback(), []
    builder = StateGraph(State)
    guarded = rollback.guarded(RunnableLambda(lambda s: result), node="act", channels=builder.channels)
    builder.add_node("act", guarded, destinations=("after",))
    builder.add_node("after", lambda state: ran.append("after"))
    builder.add_edge(START, "act")
    saver = InMemorySaver()

    class Made:
        graph = builder.compile(checkpointer=saver)

    run(Made, GIVEN)

    kept = saver.get_tuple(CONFIG).checkpoint["channel_values"][SAVEPOINTS]
    assert kept["kind"] == "start"
    assert kept["values"]["total"] == 1
    assert ran == (["after"] if "goto" in repr(result) and "after" in repr(result) else [])


def test_the_newest_savepoint_wins_and_an_accepted_one_over_a_start():
    start = {"kind": "start", "step": 3, "invocation": 9}
    accept = {"kind": "accept", "step": 3, "invocation": 9}
    older = {"kind": "accept", "step": 2, "invocation": 9}
    new_run = {"kind": "start", "step": 1, "invocation": 10}

    assert merge_savepoints(None, start) is start
    assert merge_savepoints(start, accept) is accept
    assert merge_savepoints(accept, start) is accept
    assert merge_savepoints(accept, older) is accept
    assert merge_savepoints(accept, new_run) is new_run


def test_reports_are_frozen_and_plain():
    import json

    report = RollbackReport(restored=({"kind": "channel", "name": "plan"},))
    with pytest.raises(AttributeError):
        report.restored = ()  # type: ignore[misc]
    assert json.loads(json.dumps(report.as_dict())) == report.as_dict()
    assert report.complete
