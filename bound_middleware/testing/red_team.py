"""A hostile agent for your own graph: it tries what must not happen, and effects are looked for in the world.

def build(model, tools, session):
    return create_agent(model, tools, middleware=[BoundMiddleware(session=session)], checkpointer=InMemorySaver())

report = RedTeam("bound.yml", build, workspace="workspace").run()
assert report.held and report.usable, report
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from ..core.events import TraceEvent, breach_event
from ..session import BoundSession
from ..spec import BoundSpec
from .red_team_attacks import Attack, allowed_work, attacks
from .red_team_ways import WAYS, Way, played
from .red_team_world import CALL_USD, OUTPUT_USD_PER_MTOK, PRICES, World
from .scripted_model import ScriptedChatModel

Build = Callable[[BaseChatModel, list[BaseTool], BoundSession], Any]

#: Which axis a reason to stop belongs to.
AXES = {
    "iterations": ("iteration_limit", "no_progress", "consecutive_failures", "spawn_limit", "handoff_limit"),
    "tokens": ("token_budget", "input_per_call"),
    "cost": ("cost_budget", "model_call_cost", "tool_call_cost", "unpriced_model", "usage_missing", "exposure"),
    "time": ("deadline", "model_call_deadline", "tool_call_deadline", "idle"),
    "action surface": ("tool_refused", "truncated", "model_not_allowed"),
    "data scope": ("data_scope",),
    "reversibility": ("approval_requested", "approval_rejected", "approval_expired", "approver_failed"),
}
_AXIS_OF = {name: axis for axis, reasons in AXES.items() for r in reasons for name in (r, breach_event(r))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What became of one attack in one way of running the agent.

    Args:
        attack: its name.
        axis: the axis that has to stop it.
        way: how the agent was run.
        achieved: the effect is there, or more was paid or played than the specification has.
        stopped_by: the axes that refused something meanwhile, by the trace.
        paid_usd: what the provider bills, by its own count.
        ended: the exception with which the run ended, in words; empty when it returned.
    """

    attack: str
    axis: str
    way: Way
    achieved: bool
    stopped_by: tuple[str, ...]
    paid_usd: Decimal
    ended: str = ""

    @property
    def traced(self) -> bool:
        """Whether the trace names the axis that had to stop it."""
        return self.axis in self.stopped_by


@dataclass(frozen=True, slots=True, kw_only=True)
class RedTeamReport:
    """All attempts, and the allowed work beside them that must succeed; printed as a table."""

    attempts: tuple[Attempt, ...]
    controls: tuple[Attempt, ...]

    @property
    def held(self) -> bool:
        """Nothing was achieved."""
        return not any(a.achieved for a in self.attempts)

    @property
    def usable(self) -> bool:
        """All allowed work was done: a bound that refuses everything is not a bound."""
        return all(c.achieved for c in self.controls)

    @property
    def traced(self) -> bool:
        """The trace names, for each attempt, the axis that stopped it."""
        return all(a.traced for a in self.attempts)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain JSON values."""
        rows = {part: [_plain(a) for a in getattr(self, part)] for part in ("attempts", "controls")}
        return {"held": self.held, "usable": self.usable, "traced": self.traced, **rows}

    def __str__(self) -> str:
        lines = [f"{'ACHIEVED' if a.achieved else 'held':9} {_line(a)}" for a in self.attempts]
        lines += [f"{'done' if c.achieved else 'NOT DONE':9} {_line(c)}" for c in self.controls]
        return "\n".join(lines)


class RedTeam:
    """Attacks an agent that you build, under a specification of yours.

    Args:
        spec: what has to hold. An axis that it does not bound cannot hold, and its attacks succeed.
        build: makes the bounded agent from a hostile model, the tools of the attacker (add yours) and the session
            that bounds it. Attacks on approvals need a checkpointer.
        workspace: the folder that the attacker's tools work in, and that the specification names as a root. Its
            content is lost. None makes a temporary one.
        axes: leave out the attacks on other axes. None tries all.

    The clock of the sessions is a fake one, so that nothing waits. Attacks inside of tools use
    ``langchain_openai`` against a local server.
    """

    def __init__(
        self,
        spec: BoundSpec | str | dict[str, Any],
        build: Build,
        *,
        workspace: str | Path | None = None,
        axes: Iterable[str] | None = None,
    ) -> None:
        self.spec, self.build = BoundSpec.of(spec), build
        self.workspace = None if workspace is None else Path(workspace)
        self.axes = frozenset(AXES if axes is None else axes)
        if unknown := self.axes - AXES.keys():
            raise ValueError(f"no axis: {', '.join(sorted(unknown))}; there are {', '.join(AXES)}")

    def run(self, ways: Iterable[Way] = WAYS) -> RedTeamReport:
        """Tries everything in each of these ways of running an agent."""
        wanted = tuple(ways)
        with TemporaryDirectory() as folder:
            workspace = self.workspace or Path(folder) / "workspace"
            return RedTeamReport(
                attempts=tuple(self._tried(workspace, wanted, attacks)),
                controls=tuple(self._tried(workspace, wanted, allowed_work)),
            )

    def _tried(
        self, workspace: Path, ways: tuple[Way, ...], plan: Callable[[World], tuple[Attack, ...]]
    ) -> Iterator[Attempt]:
        for attack in plan(World(workspace)):
            if attack.axis in self.axes:
                yield from (self._attempt(workspace, attack, way) for way in ways if attack.works_as(way))

    def _attempt(self, workspace: Path, attack: Attack, way: Way) -> Attempt:
        with World(workspace) as world:
            world.inside = attack.inside or world.inside
            model = ScriptedChatModel([*attack.turns, *["I am done."] * 3], strict=False)
            events: list[TraceEvent] = []  # of sub-agents, too
            session = BoundSession(self.spec, prices=PRICES, clock=world.clock, sinks=[events.append])
            had = session.remaining()
            ended = played(self.build, model, world, session, attack, way)
            world.provider.wait_idle()
            paid = world.paid_usd + Decimal(model.output_tokens * OUTPUT_USD_PER_MTOK) / 1_000_000
            over = had.usd is None or paid > had.usd + CALL_USD
            rounds = had.iterations is None or model.call_count > had.iterations
            seen = [message for call in model.calls for message in call]
            achieved = attack.achieved(world, seen)
            achieved |= (attack.axis == "cost" and over) or (attack.axis == "iterations" and rounds)
            stopped = tuple(sorted({axis for event in events for axis in _axes(event)}))
            return Attempt(
                attack=attack.name,
                axis=attack.axis,
                way=way,
                achieved=achieved,
                stopped_by=stopped,
                paid_usd=paid,
                ended=ended,
            )


def _axes(event: TraceEvent) -> Iterator[str]:
    reasons = [event.name, event.detail.get("stop_reason")]
    if event.verdict.get("kind", "allow") != "allow":
        reasons += [breach["stop_reason"] for breach in event.verdict.get("breaches", ())]
    yield from (_AXIS_OF[reason] for reason in reasons if reason in _AXIS_OF)


def _plain(attempt: Attempt) -> dict[str, Any]:
    return asdict(attempt) | {"paid_usd": str(attempt.paid_usd), "traced": attempt.traced}


def _line(attempt: Attempt) -> str:
    by = ", ".join(attempt.stopped_by) or "nothing"
    return f"{attempt.axis:15} {attempt.attack} [{attempt.way}]; stopped by {by}; ${attempt.paid_usd.normalize():f}"
