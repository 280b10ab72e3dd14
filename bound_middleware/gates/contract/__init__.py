"""The contract of the gates: what must be true, when, and who says so."""

from .evaluators import AnthropicEvaluator, CommandEvaluator, Evaluator, OpenAIEvaluator
from .kinds import Artifact, Command, Constraint, Metric, Parser, Ratchet, Rubric, Threshold
from .load import FILES, contract_of, find, load, parse
from .loops import Loop, Settings
from .model import GateContract
from .schema import json_schema

__all__ = [
    "FILES",
    "AnthropicEvaluator",
    "Artifact",
    "Command",
    "CommandEvaluator",
    "Constraint",
    "Evaluator",
    "GateContract",
    "Loop",
    "Metric",
    "OpenAIEvaluator",
    "Parser",
    "Ratchet",
    "Rubric",
    "Settings",
    "Threshold",
    "contract_of",
    "find",
    "json_schema",
    "load",
    "parse",
]
