"""The paragraph that an agent is given."""

import re

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.gates.contract import parse
from bound_middleware.gates.loop_prompt import ADAPTERS, loop_prompt
from bound_middleware.gates.loops import EXIT_CODES


@pytest.fixture
def contract():
    budgets = {"max_repair_attempts": 37, "max_unchanged_repairs": 41, "max_duration_seconds": 4321}
    return parse(
        {
            "constraints": {"x": {"kind": "command", "command": ["true"]}},
            "loops": {"ship": {"phase": "stop", "interval_seconds": 29, **budgets}},
        }
    )


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_it_is_one_paragraph_that_names_the_command_and_every_state(contract, adapter):
    text = loop_prompt(contract, "ship", adapter)
    assert "\n" not in text
    assert "`bound gate cycle ship --json`" in text
    assert [state for state in EXIT_CODES if f"`{state}`" not in text] == []


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_it_tells_no_budget_and_no_other_number(contract, adapter):
    assert re.findall(r"\d+", loop_prompt(contract, "ship", adapter)) == []


def test_each_host_has_its_own_words():
    assert ADAPTERS == ("claude", "codex", "langgraph")


def test_the_words_of_two_hosts_differ(contract):
    assert len({loop_prompt(contract, "ship", adapter) for adapter in ADAPTERS}) == len(ADAPTERS)


def test_an_unknown_loop_or_host_is_refused_with_what_there_is(contract):
    with pytest.raises(SpecError, match=r"no loop 'shop'.*allowed: ship"):
        loop_prompt(contract, "shop", "claude")
    with pytest.raises(SpecError, match=r"no words for 'vim'.*allowed: claude, codex, langgraph"):
        loop_prompt(contract, "ship", "vim")
