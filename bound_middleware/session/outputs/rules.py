"""Whether an answer has one of the forms that it may have.

An answer has a form when it keeps all of its rules; what has none of the forms does not leave, and a closed list
without any lets nothing leave. What cannot be judged is refused: a pattern that has no bounded time, a text that is
too long for one, a rule in Python that raises.

Patterns are looked for in the answer as it is and as a reader sees it: Unicode's compatible forms brought to one
(NFKC), letters that nobody sees dropped.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from ...core.errors import SpecError
from ...core.limits import ArgumentLimit, Limits
from ..tools.call import Fault
from ..tools.hosts import host_of, is_listed, links
from ..tools.patterns import Unjudged, matches
from ..tools.schema import faults_of
from .answer import Answer

Rule = Callable[[str], Any]
#: How much of what is wrong a person is shown.
SHOWN_CHARS_MAX = 120
#: The rules that hold for whatever leaves; the others say what an answer has to be.
_OF_ALL_TEXT = ("length_max", "forbidden", "hosts")
_NOT_ALLOWED = "the answer is not allowed"
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")


def checked_rules(rules: Any) -> Mapping[str, Rule]:
    """Rules in Python by form. Raises ``SpecError`` for what is no mapping of names to functions."""
    if rules is None:
        return {}
    if not isinstance(rules, Mapping) or not all(isinstance(k, str) and callable(v) for k, v in rules.items()):
        raise SpecError("not rules by form", key="output_rules", allowed="a mapping of forms to functions")
    return dict(rules)


def check_forms(limits: Limits, rules: Mapping[str, Rule]) -> None:
    """Checks that every form has a rule that says what it is, and every function a form.

    Raises:
        SpecError: one of them has not.
    """
    forms = limits.outputs or frozenset()
    ruled = {form for form, _, _ in limits.output_rules} | set(rules)
    for form in sorted(forms - ruled):
        raise SpecError(
            f"nothing says what an answer of the form {form!r} is",
            key="bounds.action_surface.outputs",
            value=form,
            allowed="a rule such as {name: ..., forbidden: [...]}, or output_rules={...: a function of the answer}",
        )
    for form in sorted(set(rules) - forms):
        raise SpecError(
            f"no form of an answer is called {form!r}",
            key="output_rules",
            value=form,
            allowed=", ".join(sorted(forms)) or "an entry in bounds.action_surface.outputs",
        )


def faults(limits: Limits, answer: Answer, called: Collection[str], rules: Mapping[str, Rule]) -> tuple[Fault, ...]:
    """What keeps an answer from leaving: of each form, what it breaks; nothing when it has one of them.

    Args:
        limits: with the forms.
        answer: what is about to leave.
        called: the tools that this run has called.
        rules: the rules in Python, by form.
    """
    found: list[Fault] = []
    for form in sorted(limits.outputs or ()):
        broken = list(_broken(limits, form, answer, called, rules.get(form)))
        if not broken:
            return ()
        if len(limits.outputs or ()) > 1:
            broken = [Fault(person=f"{form}: {one.person}", model=f"as {form!r}: {one.model}") for one in broken]
        found += broken
    return tuple(found) or (Fault(person="no form of an answer is allowed", model=_NOT_ALLOWED),)


def _broken(
    limits: Limits, form: str, answer: Answer, called: Collection[str], rule: Rule | None
) -> Iterator[Fault]:
    for named, name, limit in limits.output_rules:
        if named != form:
            continue
        if name == "hosts_once_read":
            rule_of = json.loads(str(limit))
            if {*called, *answer.called}.intersection(rule_of["tools"]):
                yield from _hosts(answer, tuple(rule_of["hosts"]))
        elif answer.whole or name in _OF_ALL_TEXT:
            yield from _RULES[name](answer, limit)
    if rule is not None and answer.whole:
        yield from _by_function(rule, answer.text)


def readers(limits: Limits) -> frozenset[str]:
    """The tools after whose calls links are looked at."""
    conditions = (json.loads(str(limit)) for _, name, limit in limits.output_rules if name == "hosts_once_read")
    return frozenset(tool for condition in conditions for tool in condition["tools"])


def _length(answer: Answer, limit: ArgumentLimit) -> Iterator[Fault]:
    if len(answer.text) > int(limit):  # type: ignore[arg-type]
        yield Fault(person=f"is longer than {limit} characters", model="it is too long")


def _pattern(answer: Answer, limit: ArgumentLimit) -> Iterator[Fault]:
    pattern = str(limit)
    if not _found(pattern, (answer.text,), matches, unjudged=False):
        yield Fault(person=f"is not of the form {pattern}", model="it does not have the form that it needs")


def _required(answer: Answer, limit: ArgumentLimit) -> Iterator[Fault]:
    for pattern in _each(limit):
        if not _found(pattern, (answer.text,), _within, unjudged=False):
            yield Fault(person=f"has nothing of the form {pattern}", model="something that it needs is missing")


def _forbidden(answer: Answer, limit: ArgumentLimit) -> Iterator[Fault]:
    texts = [form for text in (answer.text, *answer.beside) for form in _seen(text)]
    for pattern in _each(limit):
        if _found(pattern, texts, _within, unjudged=True):
            yield Fault(
                person=f"has something of the form {pattern}", model="it says something that it may not say"
            )


def _hosts(answer: Answer, limit: ArgumentLimit) -> Iterator[Fault]:
    hosts = tuple(_each(limit))
    for text in (answer.text, *answer.beside):
        for link in links(text):
            if not is_listed(link, hosts):
                model = f"its links and images may lead only to {', '.join(hosts) or 'no host'}"
                yield Fault(
                    person=f"leads to {host_of(link) or 'an unclear address'}, which is no host of the list",
                    model=model,
                )
                return


def _schema(answer: Answer, limit: ArgumentLimit) -> Iterator[Fault]:
    try:
        value = json.loads(answer.text)
    except (ValueError, RecursionError):
        yield Fault(person="is no JSON", model="it has to be JSON and nothing else")
        return
    for text in faults_of(value, json.loads(str(limit)), "the answer"):
        yield Fault(person=text, model=text)


_RULES: Mapping[str, Callable[[Answer, ArgumentLimit], Iterator[Fault]]] = {
    "length_max": _length,
    "pattern": _pattern,
    "required": _required,
    "forbidden": _forbidden,
    "hosts": _hosts,
    "json_schema": _schema,
}


def _by_function(rule: Rule, text: str) -> Iterator[Fault]:
    try:
        said = rule(text)
    except Exception as error:  # noqa: BLE001 - a rule that fails has not said yes
        yield Fault(person=f"the rule raised {type(error).__name__}", model=_NOT_ALLOWED)
        return
    if said is not True:
        words = said if isinstance(said, str) and said else _NOT_ALLOWED
        yield Fault(person=f"the rule said: {repr(said)[:SHOWN_CHARS_MAX]}", model=words)


def _each(limit: ArgumentLimit) -> tuple[str, ...]:
    return tuple(map(str, limit)) if isinstance(limit, tuple) else (str(limit),)


def _seen(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((text, _UNSEEN.sub("", unicodedata.normalize("NFKC", text)))))


def _within(pattern: str, text: str) -> bool:
    return matches(f"(?s:.*)(?:{pattern})(?s:.*)", text)


def _found(pattern: str, texts: Iterable[str], look: Callable[[str, str], bool], *, unjudged: bool) -> bool:
    """Whether one of the texts is, or has in it, what the pattern says; ``unjudged`` where nobody can tell."""
    try:
        return any(look(pattern, text) for text in texts)
    except (Unjudged, re.error, RecursionError):
        return unjudged
