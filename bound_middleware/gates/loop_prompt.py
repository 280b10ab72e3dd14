"""What an agent is told about a repair loop: one paragraph, the same protocol in the words of each host.

It names no budget: an agent that knows how many attempts are left has a reason to spend them.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..core.errors import SpecError

if TYPE_CHECKING:
    from .contract import GateContract

_HOSTS = {
    "claude": "with your shell tool, from the root of the project",
    "codex": "in the project's root, outside of any background session",
    "langgraph": "with the tool you have for commands, in the project's root, alone in its turn",
}
#: The hosts there are words for.
ADAPTERS: tuple[str, ...] = tuple(_HOSTS)

_PROTOCOL: Mapping[str, str] = MappingProxyType(
    {
        "repair": "make one focused change that removes what `blocking_constraints` names, then take the next step",
        "waiting": "change nothing, wait for `wake_after_seconds`, then take the next step",
        "passed": "stop and say that the work is done",
        "human_required": "stop and tell the person which constraints are open and what you tried",
        "budget_exhausted": "do the same as for `human_required`; you may not go on by yourself",
        "error": "stop and report the message: the gates could not be judged, and guessing repairs nothing",
    }
)


def loop_prompt(contract: GateContract, name: str, adapter: str) -> str:
    """The repair protocol of a loop for an agent, as one paragraph.

    Args:
        adapter: one of ``ADAPTERS``.

    Raises:
        SpecError: there is no such loop, or no such adapter.
    """
    if name not in contract.loops:
        allowed = ", ".join(contract.loops) or "the contract has none"
        raise SpecError(f"there is no loop {name!r}", key="loops", value=name, allowed=allowed)
    if adapter not in _HOSTS:
        raise SpecError(f"there are no words for {adapter!r}", value=adapter, allowed=", ".join(ADAPTERS))
    command = f"bound gate cycle {shlex.quote(name)} --json"
    answers = "; ".join(f"on `{state}` {what}" for state, what in _PROTOCOL.items())
    return (
        f"Whether this work is done is decided by the gates of the {contract.loops[name].phase} phase, not by you. "
        f"To take a step, run `{command}` {_HOSTS[adapter]}, and act on the `state` it prints: {answers}. "
        "Take one step per change and at most one change per step. Read `bound gate status` for the evidence of a "
        "constraint. Do not edit the contract, its baselines or the gates' state, do not waive anything, do not "
        "begin a new task to get around an answer, and never call the work done on any state but `passed`."
    )
