"""Rubrics: written rules that a model, or a program, judges the work by.

``port`` is what an evaluator must be, ``bundle`` what it is shown, ``reply`` what it must say, ``quorum`` how its
runs become one verdict. Whatever goes wrong is ``uncertain``, never a pass.
"""

from .port import Evaluator, EvaluatorFailed, Said
from .reply import BadReply, Reply, parse_reply

__all__ = ["BadReply", "Evaluator", "EvaluatorFailed", "Reply", "Said", "parse_reply"]
