"""Approvals in an agent: one question before any tool of a batch runs, and each approved call happens once."""

import asyncio
import json

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
)
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from bound_middleware import BoundSession, SpecError
from bound_middleware.langchain import BoundMiddleware
from bound_middleware.testing import FakeClock, ScriptedChatModel

reply = ScriptedChatModel.reply
GO = {"messages": [("user", "go")]}
CONFIG = {"configurable": {"thread_id": "t"}, "metadata": {"user": "ann"}}
SPEC = {
    "bounds": {
        "iteration_limit": 20,
        "reversibility_envelope": {
            "reversible_by_default": ["log"],
            "requires_human_approval": ["pay", "send"],
            "approval_ttl_seconds": 60,
        },
    }
}


class World:
    """What the tools did."""

    def __init__(self) -> None:
        self.did: list[object] = []

        @tool
        def pay(amount: float) -> str:
            """Pays."""
            self.did.append(amount)
            return f"paid {amount}"

        @tool
        def send(to: str) -> str:
            """Sends."""
            self.did.append(f"to {to}")
            return "sent"

        @tool
        def log(text: str = "") -> str:
            """Writes a line."""
            self.did.append(f"log {text}".strip())
            return "noted"

        self.tools = [pay, send, log]


@pytest.fixture
def world():
    return World()


def batch(*calls):
    """A reply with these calls, each under an id of its own."""
    return reply(
        tool_calls=[{"name": n, "args": a, "id": f"c{i}", "type": "tool_call"} for i, (n, a) in enumerate(calls)]
    )


def approve(*decisions):
    return Command(resume={"decisions": [d if isinstance(d, dict) else {"type": d} for d in decisions]})


def shown(result):
    (interrupt,) = result["__interrupt__"]
    return interrupt.value


def answers(result):
    return {m.tool_call_id: m for m in result["messages"] if isinstance(m, ToolMessage)}


class Agents:
    """Agents built anew for each use on one checkpointer, all in one session."""

    def __init__(self, threads, world, replies, **arguments):
        self.threads, self.world, self.arguments = threads, world, arguments
        self.model = ScriptedChatModel(replies)
        self.session = None
        if "session" in arguments:
            self.session = arguments["session"]

    def build(self, saver):
        spec = () if self.session is not None else (self.arguments.get("spec", SPEC),)
        more = {k: v for k, v in self.arguments.items() if k != "spec"}
        return create_agent(
            self.model, self.world.tools, middleware=[BoundMiddleware(*spec, **more)], checkpointer=saver
        )

    def invoke(self, given, config=CONFIG):
        return self.threads.invoke(self.build, given, config)


@pytest.fixture
def agents(threads, world):
    return lambda *replies, **arguments: Agents(threads, world, replies, **arguments)


@pytest.fixture
def session():
    return BoundSession(SPEC, clock=FakeClock())


def names(session):
    return [e.name for e in session.events if e.name.startswith("appro")]


def test_nothing_of_a_batch_runs_before_it_was_asked_about_at_once(agents, world, session):
    agent = agents(
        batch(("log", {"text": "a"}), ("pay", {"amount": 1}), ("send", {"to": "b"})), "done", session=session
    )
    asked = shown(agent.invoke(GO))
    assert world.did == []
    assert [(a["name"], a["args"]) for a in asked["action_requests"]] == [
        ("pay", {"amount": 1}),
        ("send", {"to": "b"}),
    ]
    assert asked["review_configs"] == [
        {"action_name": name, "allowed_decisions": ["approve", "edit", "reject", "respond"]}
        for name in ("pay", "send")
    ]
    assert set(asked) == {"action_requests", "review_configs"}
    assert all(set(action) == {"name", "args", "description"} for action in asked["action_requests"])
    assert session.outcome.status == "pending_approval"

    result = agent.invoke(approve("approve", {"type": "reject", "message": "not to b"}))
    assert sorted(world.did, key=str) == [1, "log a"]
    assert "not to b" in answers(result)["c2"].content
    assert [answers(result)[f"c{i}"].status for i in range(3)] == ["success", "success", "error"]
    assert names(session) == ["approval_requested"] * 2 + ["approval_decided"] * 2 + ["approval_rejected"]
    decided = [e.detail for e in session.events if e.name == "approval_decided"]
    assert [(d["decision"], d["by"], d["why"]) for d in decided] == [
        ("approve", "ann", ""),
        ("reject", "ann", "not to b"),
    ]
    assert session.outcome.status in ("running", "completed")


def test_a_specification_without_approvals_adds_no_node_to_the_agent(world):
    plain = create_agent(ScriptedChatModel(["x"]), world.tools, middleware=[BoundMiddleware({"bounds": {}})])
    gated = create_agent(ScriptedChatModel(["x"]), world.tools, middleware=[BoundMiddleware(SPEC)])
    assert set(gated.get_graph().nodes) - set(plain.get_graph().nodes) == {"BoundMiddleware.after_model"}


def test_a_respond_answers_the_call_in_its_place(agents, world):
    agent = agents(batch(("pay", {"amount": 1})), "done")
    agent.invoke(GO)
    result = agent.invoke(approve({"type": "respond", "message": "already paid"}))
    assert world.did == []
    assert (answers(result)["c0"].content, answers(result)["c0"].status) == ("already paid", "success")


def test_edited_arguments_run_and_stand_in_the_message_under_the_same_id(agents, world):
    agent = agents(batch(("pay", {"amount": 9})), "done")
    agent.invoke(GO)
    result = agent.invoke(approve({"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 2}}}))
    assert world.did == [2]
    (call,) = next(m for m in result["messages"] if isinstance(m, AIMessage)).tool_calls
    assert (call["id"], call["args"]) == ("c0", {"amount": 2})


def test_a_call_that_is_edited_to_a_forbidden_tool_is_refused_on_the_same_id(agents, world):
    spec = {
        "bounds": {
            "action_surface": {"forbidden": ["send"]},
            "reversibility_envelope": SPEC["bounds"]["reversibility_envelope"],
        }
    }
    agent = agents(batch(("pay", {"amount": 9})), "done", spec=spec)
    agent.invoke(GO)
    result = agent.invoke(approve({"type": "edit", "edited_action": {"name": "send", "args": {"to": "x"}}}))
    assert world.did == []
    assert "not available" in answers(result)["c0"].content


def test_a_call_that_is_edited_to_another_gated_tool_is_asked_for_again(agents, world):
    agent = agents(batch(("pay", {"amount": 9})), "done")
    agent.invoke(GO)
    again = agent.invoke(approve({"type": "edit", "edited_action": {"name": "send", "args": {"to": "x"}}}))
    assert [a["name"] for a in shown(again)["action_requests"]] == ["send"]
    assert world.did == []
    agent.invoke(approve("approve"))
    assert world.did == ["to x"]


def test_a_call_that_is_edited_to_a_free_tool_runs(agents, world):
    agent = agents(batch(("pay", {"amount": 9})), "done")
    agent.invoke(GO)
    agent.invoke(approve({"type": "edit", "edited_action": {"name": "log", "args": {"text": "no"}}}))
    assert world.did == ["log no"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({"decisions": []}, "0 decisions were given for 1 calls"),
        ({"decisions": [{"type": "approve"}] * 2}, "2 decisions"),
        ({"decisions": [{"type": "maybe"}]}, "is no decision"),
        ({"decisions": [None]}, "is no decision"),
        ({"decisions": ["approve"]}, "is no decision"),
        ({"decisions": [{"type": ["approve"]}]}, "is no decision"),
        ({"decisions": [{"type": "respond"}]}, "needs a message"),
        ({"decisions": [{"type": "reject", "message": 4}]}, "is no message"),
        ({"decisions": [{"type": "edit"}]}, "edited_action"),
        ({"decisions": [{"type": "edit", "edited_action": {"name": "pay", "args": [1]}}]}, "edited_action"),
        ("yes", "is no answer"),
        (True, "is no answer"),
        ({"decision": "approve"}, "is no answer"),
    ],
)
def test_what_is_no_answer_lets_nothing_run_and_is_asked_again(world, run, answer, says):
    agent = create_agent(
        ScriptedChatModel([batch(("pay", {"amount": 1})), "done"]),
        world.tools,
        middleware=[BoundMiddleware(SPEC)],
        checkpointer=InMemorySaver(),
    )
    run(agent, GO, CONFIG)
    again = shown(run(agent, Command(resume=answer), CONFIG))
    assert world.did == []
    assert says in again["action_requests"][0]["description"]
    result = run(agent, approve("approve"), CONFIG)
    assert world.did == [1]
    assert result["messages"][-1].content == "done"


def test_an_approval_for_other_arguments_than_were_shown_is_none(agents, world):
    agent = agents(batch(("pay", {"amount": 1})), "done")
    agent.invoke(GO)

    def change(built):
        def changed(state):
            message = next(m for m in state.values["messages"] if isinstance(m, AIMessage))
            call = {**message.tool_calls[0], "args": {"amount": 82_000}}
            return {"messages": [message.model_copy(update={"tool_calls": [call]})]}

        if agent.threads.sync:
            return built.update_state(CONFIG, changed(built.get_state(CONFIG)), as_node="model")

        async def achange():
            return await built.aupdate_state(CONFIG, changed(await built.aget_state(CONFIG)), as_node="model")

        return achange()

    agent.threads.use(agent.build, change)
    again = agent.invoke(approve("approve"))
    assert world.did == []
    assert shown(again)["action_requests"][0]["args"] == {"amount": 82_000}
    agent.invoke(approve("approve"))
    assert world.did == [82_000]


def test_an_answer_that_comes_too_late_is_asked_for_again(agents, world, session):
    agent = agents(batch(("pay", {"amount": 1})), "done", session=session)
    agent.invoke(GO)
    session.clock.advance(seconds=60.001)
    again = agent.invoke(approve("approve"))
    assert world.did == []
    assert "not answered in time" in shown(again)["action_requests"][0]["description"]
    assert "approval_expired" in names(session)
    session.clock.advance(seconds=60)
    agent.invoke(approve("approve"))
    assert world.did == [1]


def test_the_same_call_in_a_later_answer_of_the_model_is_asked_for_again(agents, world):
    """Some servers number the calls of each reply from zero."""
    agent = agents(batch(("pay", {"amount": 1})), batch(("pay", {"amount": 1})), "done")
    agent.invoke(GO)
    again = agent.invoke(approve("approve"))
    assert world.did == [1]
    assert len(shown(again)["action_requests"]) == 1
    agent.invoke(approve("approve"))
    assert world.did == [1, 1]


def test_a_rejected_call_is_asked_for_twice_and_then_ends_the_run(agents, world, session):
    turns = [batch(("pay", {"amount": 7}))] * 6
    agent = agents(*turns, session=session)
    agent.invoke(GO)
    questions, result = 1, agent.invoke(approve("reject"))
    while "__interrupt__" in result:
        questions += 1
        result = agent.invoke(approve("reject"))
    assert questions == 2
    assert agent.model.call_count <= 4
    assert world.did == []
    assert result["bound"]["outcome"]["status"] == "stopped"
    assert result["bound"]["outcome"]["stop_reason"] == "approval_rejected"


def test_another_call_is_asked_for_although_one_was_rejected(agents, world):
    turns = [batch(("pay", {"amount": 7}))] * 2 + [batch(("pay", {"amount": 7}), ("pay", {"amount": 8})), "done"]
    agent = agents(*turns)
    agent.invoke(GO)
    agent.invoke(approve("reject"))
    third = agent.invoke(approve("reject"))
    assert [a["args"] for a in shown(third)["action_requests"]] == [{"amount": 8}]
    result = agent.invoke(approve("approve"))
    assert world.did == [8]
    assert result["messages"][-1].content == "done"


def test_a_call_that_another_bound_refuses_is_not_asked_for(agents, world, session):
    session = BoundSession({"bounds": {**SPEC["bounds"], "iteration_limit": {"max": 0, "unit": "tool_call"}}})
    agent = agents(batch(("pay", {"amount": 1})), "done", session=session)
    result = agent.invoke(GO)
    assert "__interrupt__" not in result
    assert world.did == []


def test_without_a_checkpointer_the_call_is_refused_and_says_why(world, run):
    agent = create_agent(
        ScriptedChatModel([batch(("pay", {"amount": 1}), ("log", {"text": "a"})), "done"]),
        world.tools,
        middleware=[BoundMiddleware(SPEC)],
    )
    result = run(agent, GO)
    assert world.did == ["log a"]
    assert "nobody can give here" in answers(result)["c0"].content
    assert result["bound"]["outcome"]["detail"]["refused"] == ["approver_failed"]


@pytest.mark.parametrize("name", ["delte", "Pay", "p\u0430y"])
def test_an_approval_for_a_tool_that_does_not_exist_is_an_error(world, run, name):
    spec = {"bounds": {"reversibility_envelope": {"requires_human_approval": [name]}}}
    with pytest.raises(SpecError, match=name):
        run(create_agent(ScriptedChatModel(["x"]), world.tools, middleware=[BoundMiddleware(spec)]), GO)


# -- a function in a person's place ------------------------------------------------------------------------


def agent_with(world, approver, *calls):
    replies = [batch(*(calls or [("pay", {"amount": 1})])), "done"]
    session = BoundSession(SPEC, approver=approver)
    agent = create_agent(ScriptedChatModel(replies), world.tools, middleware=[BoundMiddleware(session=session)])
    return agent, session


def raising(error):
    def approver(action):
        raise error

    return approver


@pytest.mark.parametrize(
    "approver",
    [
        raising(EOFError()),
        raising(TimeoutError()),
        raising(ValueError("x")),
        lambda action: None,
        lambda action: "maybe",
        lambda action: 1,
        lambda action: {"type": "perhaps"},
        lambda action: {"decisions": [{"type": "approve"}]},
    ],
    ids=["EOF", "timeout", "error", "None", "maybe", "1", "unknown", "batch"],
)
def test_an_approver_that_fails_lets_nothing_run(world, run, approver):
    agent, session = agent_with(world, approver)
    result = run(agent, GO)
    assert world.did == []
    assert session.outcome.detail["refused"] == ["approver_failed"]
    assert answers(result)["c0"].status == "error"
    assert result["messages"][-1].content == "done"


@pytest.mark.parametrize(
    "approver",
    [lambda a: True, lambda a: "approve", lambda a: {"type": "approve"}],
    ids=["True", "name", "decision"],
)
def test_an_approver_that_says_yes_lets_the_call_run_without_a_pause(world, run, approver):
    agent, session = agent_with(world, approver)
    result = run(agent, GO)
    assert world.did == [1]
    assert result["messages"][-1].content == "done"
    decided = next(e.detail for e in session.events if e.name == "approval_decided")
    assert decided["by"].startswith("policy ")


def test_an_approver_sees_what_is_wanted_and_may_edit_or_reject_it(world, run):
    seen = []

    def approver(action):
        seen.append((action["name"], action["args"]))
        if action["args"].get("amount", 0) > 5:
            return {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 5}}}
        return action["name"] == "pay"

    agent, _ = agent_with(world, approver, ("pay", {"amount": 9}), ("send", {"to": "x"}))
    result = run(agent, GO)
    assert seen == [("pay", {"amount": 9}), ("send", {"to": "x"})]
    assert world.did == [5]
    assert answers(result)["c1"].status == "error"


def test_an_async_approver_is_awaited_and_in_a_sync_call_it_is_no_answer(world):
    async def approver(action):
        await asyncio.sleep(0)
        return True

    agent, session = agent_with(world, approver)
    agent.invoke(GO)
    assert world.did == []
    assert session.outcome.detail["refused"] == ["approver_failed"]
    agent, _ = agent_with(world, approver)
    asyncio.run(agent.ainvoke(GO))
    assert world.did == [1]


def test_a_key_stroke_that_interrupts_the_approver_passes(world):
    agent, _ = agent_with(world, raising(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        agent.invoke(GO)
    assert world.did == []


def test_what_is_no_function_is_no_approver(world):
    with pytest.raises(SpecError, match="approver"):
        BoundMiddleware(SPEC, approver=3)
    with pytest.raises(SpecError, match="approver"):
        BoundSession(SPEC, approver=dict)
    assert BoundMiddleware(SPEC, approver=lambda action: True) is not None


# -- together with others ----------------------------------------------------------------------------------


def orders():
    from itertools import permutations

    return [pytest.param(p, id="-".join(p)) for p in permutations(("bound", "retry", "approval", "fallback"))]


@pytest.mark.parametrize("order", orders())
@pytest.mark.parametrize("who", ["ours", "langchain's"])
def test_a_call_is_asked_for_once_in_every_order_of_the_middleware(world, order, who):
    spec = SPEC if who == "ours" else {"bounds": {"iteration_limit": 20}}
    gates = {} if who == "ours" else {"pay": True}
    model = ScriptedChatModel([ConnectionError("503"), batch(("pay", {"amount": 1})), "done"])
    session = BoundSession(spec)
    made = {
        "bound": BoundMiddleware(session=session),
        "retry": ModelRetryMiddleware(max_retries=2, initial_delay=0, jitter=False),
        "approval": HumanInTheLoopMiddleware(gates),
        # The inner of the two meets the failure; a fallback there goes on with the same script.
        "fallback": ModelFallbackMiddleware(model),
    }
    chain = [made[name] for name in order]
    agent = create_agent(model, world.tools, middleware=chain, checkpointer=InMemorySaver())
    questions, result = 0, agent.invoke(GO, CONFIG)
    while "__interrupt__" in result:
        questions += 1
        result = agent.invoke(approve("approve"), CONFIG)
    assert (questions, world.did) == (1, [1])
    assert session.usage.model_calls == 3


def test_the_question_can_be_written_down_as_json(agents):
    agent = agents(batch(("pay", {"amount": 1})))
    assert json.loads(json.dumps(shown(agent.invoke(GO))))["action_requests"][0]["name"] == "pay"


def test_new_input_in_place_of_an_answer_leaves_nothing_waiting(agents, world, session):
    agent = agents(batch(("pay", {"amount": 1})), "done", session=session)
    agent.invoke(GO)
    assert session.outcome.status == "pending_approval"
    agent.invoke({"messages": [ToolMessage("no", tool_call_id="c0"), ("user", "go on")]})
    assert world.did == []
    assert session.outcome.status != "pending_approval"


def test_a_function_that_edits_for_ever_lets_nothing_run(world, run):
    def approver(action):
        other = {"pay": ("send", {"to": "x"}), "send": ("pay", {"amount": 1})}[action["name"]]
        return {"type": "edit", "edited_action": dict(zip(("name", "args"), other, strict=True))}

    agent, session = agent_with(world, approver)
    run(agent, GO)
    assert world.did == []
    assert session.outcome.detail["refused"] == ["approver_failed"]


@pytest.mark.parametrize("inner", [SPEC, {"bounds": {"iteration_limit": 9}}], ids=["both gate", "outer gates"])
def test_a_session_around_the_agent_is_asked_in_the_same_question(world, run, inner):
    outer = BoundSession(SPEC)
    model = ScriptedChatModel([batch(("pay", {"amount": 1})), "done"])
    agent = create_agent(model, world.tools, middleware=[BoundMiddleware(inner)], checkpointer=InMemorySaver())
    with outer:
        (question,) = run(agent, GO, CONFIG)["__interrupt__"]
        assert len(question.value["action_requests"]) == 1
        assert world.did == []
        result = run(agent, approve("approve"), CONFIG)
    assert world.did == [1]
    assert "__interrupt__" not in result


@pytest.mark.parametrize("first", ["bound", "approval"])
def test_what_another_middleware_edits_is_judged_again(world, run, first):
    spec = {"bounds": {"action_surface": {"forbidden": ["send"]}}}
    chain = [BoundMiddleware(spec), HumanInTheLoopMiddleware({"pay": True})]
    agent = create_agent(
        ScriptedChatModel([batch(("pay", {"amount": 1})), "done"]),
        world.tools,
        middleware=chain if first == "bound" else chain[::-1],
        checkpointer=InMemorySaver(),
    )
    run(agent, GO, CONFIG)
    edited = {"type": "edit", "edited_action": {"name": "send", "args": {"to": "x"}}}
    run(agent, approve(edited), CONFIG)
    assert world.did == []
