"""Who judges a rubric."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from .base import LIST, Argv, Part, Text, Variable, number, whole
from .common import argv_of, checked_command

_Timeout = Annotated[float, number(above=0, most=600)]


class _Model(Part):
    id: str = Field(default="", exclude=True)
    model: Text
    timeout_seconds: _Timeout = 60.0
    max_attempts: Annotated[int, whole(1, 5)] = 2
    concurrent: bool = False
    """Whether the runs of one rubric go side by side."""


class OpenAIEvaluator(_Model):
    """A model of OpenAI. The key is in the variable ``api_key_env``."""

    type: Literal["openai"] = "openai"
    api_key_env: Variable = "OPENAI_API_KEY"
    max_output_tokens: Annotated[int, whole(256, 16_384)] = 2_000
    reasoning_effort: Literal["minimal", "low", "medium", "high"] = "minimal"


class AnthropicEvaluator(_Model):
    """A model of Anthropic. The key is in the variable ``api_key_env``."""

    type: Literal["anthropic"] = "anthropic"
    api_key_env: Variable = "ANTHROPIC_API_KEY"
    max_output_tokens: Annotated[int, whole(256, 16_384)] = 2_048


class CommandEvaluator(Part):
    """A program that reads a bundle as JSON from its standard input and writes one reply."""

    id: str = Field(default="", exclude=True)
    type: Literal["command"] = "command"
    command: Argv
    shell: bool = False
    timeout_seconds: _Timeout = 60.0
    environment: Annotated[tuple[Variable, ...], LIST] = ()
    concurrent: bool = False

    @model_validator(mode="after")
    def _the_command_can_be_run(self) -> Self:
        checked_command(self.command, shell=self.shell)
        return self

    @property
    def argv(self) -> tuple[str, ...]:
        return argv_of(self.command)


Evaluator: TypeAlias = OpenAIEvaluator | AnthropicEvaluator | CommandEvaluator
EVALUATORS: dict[str, type[OpenAIEvaluator] | type[AnthropicEvaluator] | type[CommandEvaluator]] = {
    "openai": OpenAIEvaluator,
    "anthropic": AnthropicEvaluator,
    "command": CommandEvaluator,
}
