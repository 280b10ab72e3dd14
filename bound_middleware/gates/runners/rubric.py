"""Runs rubrics: shows the bundle to an evaluator as often as declared, and counts the votes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from ... import _doors
from ...core.redaction import Redactor
from ...decision.collectors.git_private import GitFailed
from ...decision.collectors.site import Site
from ..contract.evaluators import CommandEvaluator
from ..digests import framed, json_text
from ..rubrics.bundle import BundleTooLarge, make_bundle
from ..rubrics.command import Program
from ..rubrics.disclosure import withheld_below
from ..rubrics.port import Evaluator, EvaluatorFailed
from ..rubrics.prompt import VERSION
from ..rubrics.quorum import Vote, tally
from ..rubrics.reply import BadReply, parse_reply
from ..rubrics.secrets import FILE, SecretsProblem, load_secrets, secret_values, with_secrets
from ..rubrics.work_diff import work_diff
from ..values import Finding, Result
from ..watch import Unreadable, Watch
from .base import GateSite, found

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..contract.evaluators import AnthropicEvaluator, OpenAIEvaluator
    from ..contract.evaluators import Evaluator as Declared
    from ..contract.kinds import Rubric

    #: Makes the evaluator of a provider from what the contract declares, and a key.
    Models = Callable[[OpenAIEvaluator | AnthropicEvaluator, str], Evaluator]

RATIONALE_CHARS_MAX, REASON_CHARS_MAX = 4_000, 1_000
#: More than one judgement can have used or cost.
COUNT_MAX, COST_USD_MAX = 10**12, 10**6


class Rubrics:
    """Connects the rubrics of a contract with who judges them.

    Args:
        evaluators: who judges, by the id of an evaluator of the contract, in place of what is declared there.
        models: makes the evaluators ``openai`` and ``anthropic``; LangChain's integrations by default.
    """

    def __init__(self, *, evaluators: Mapping[str, Evaluator] | None = None, models: Models | None = None) -> None:
        self._evaluators, self._models = dict(evaluators or {}), models

    def prepare(
        self, constraint: Rubric, evaluator: Declared, site: GateSite, earlier: tuple[Result, ...]
    ) -> RubricCase:
        """The rubric with everything that it is judged by. What is missing makes it ``uncertain``, not a fault.

        Args:
            evaluator: what the contract declares.
                earlier: the results so far; the evaluator sees those that are not of rubrics.
        """
        try:
            given = self._evaluators.get(evaluator.id)
            secrets = {} if given is not None else load_secrets(site.root, site.environment)
            redact = _redactor(site, secrets)
            site = replace(site, environment=with_secrets(site.environment, secrets))
            judge = self._judge(evaluator, site, redact) if given is None else given
            bundle = _bundle(constraint, site, earlier, redact)
        except (SecretsProblem, GitFailed, EvaluatorFailed, BundleTooLarge, Unreadable) as error:
            reason = str(error)[:REASON_CHARS_MAX]
            return RubricCase(rubric=constraint, site=site, redact=site.redact, problem=reason)
        return RubricCase(rubric=constraint, site=site, redact=redact, judge=judge, bundle=bundle)

    def _judge(self, declared: Declared, site: GateSite, redact: Callable[[str], str]) -> Evaluator:
        if isinstance(declared, CommandEvaluator):
            environment = site.environment_for(declared.environment)
            timeout_ms = math.ceil(declared.timeout_seconds * 1000)
            return Program(
                declared,
                run=lambda given: site.command(
                    declared.argv, timeout_ms=timeout_ms, environment=environment, given=given
                ),
                redact=redact,
            )
        key = site.environment.get(declared.api_key_env, "").strip()
        if not key:
            raise EvaluatorFailed(f"{declared.api_key_env} is not set, neither in the environment nor in {FILE}")
        return (self._models or _doors.rubric_model)(declared, key)


@dataclass(frozen=True, slots=True, kw_only=True)
class RubricCase:
    """One rubric, ready to be judged; without a ``judge`` there is a ``problem``."""

    rubric: Rubric
    site: GateSite
    redact: Callable[[str], str]
    judge: Evaluator | None = None
    bundle: str = ""
    problem: str = ""

    @property
    def digest(self) -> str:
        """What a verdict depends on: the whole bundle, who judges, how often, and what it was told."""
        who = {} if self.judge is None else dict(self.judge.identity)
        rubric = self.rubric
        return framed(f"rubric {VERSION}", json_text([who, rubric.runs, rubric.quorum]), self.bundle, self.problem)

    def run(self) -> Result:
        """The verdict of all runs. Each of them is made, and recorded with what it used and cost."""
        started_ms = self.site.clock.now_ms()
        if self.judge is None:
            return found(self.rubric, "uncertain", self.problem, category="environment")
        votes = self._votes(self.judge)
        sum_of = tally(votes, self.rubric.quorum)
        return found(
            self.rubric,
            sum_of.verdict,
            self.redact(sum_of.message)[:RATIONALE_CHARS_MAX],
            category="constraint" if sum_of.reliable else "environment",
            duration_ms=self.site.clock.now_ms() - started_ms,
            value=sum_of.score,
            findings=tuple(self._redacted(finding) for finding in sum_of.findings),
            evaluator_calls=tuple(vote.call for vote in votes),
        )

    def _votes(self, judge: Evaluator) -> list[Vote]:
        runs = range(1, self.rubric.runs + 1)
        workers = min(self.rubric.runs, self.site.contract.settings.concurrency)
        if not judge.concurrent or workers == 1:
            return [self._vote(judge, run) for run in runs]
        with ThreadPoolExecutor(max_workers=workers) as pool:
            # Each in a copy of this context: a session that bounds the caller bounds the calls of the evaluator.
            made = [pool.submit(copy_context().run, self._vote, judge, run) for run in runs]
            return [vote.result() for vote in made]

    def _vote(self, judge: Evaluator, run: int) -> Vote:
        started_ms, call = self.site.clock.now_ms(), {"run": run, "evaluator": self.rubric.evaluator}
        usage: Mapping[str, int] = {}
        cost_usd: str | None = None
        reply, error = None, None
        try:
            if self.site.stop.is_set():
                raise EvaluatorFailed("called off")
            said = judge.evaluate(self.bundle)
            usage, cost_usd = said.usage, said.cost_usd
            reply = parse_reply(said.text)
            usage, cost_usd = usage or _counts(reply.metadata), cost_usd or _cost(reply.metadata)
        except EvaluatorFailed as failed:
            error, usage, cost_usd = failed.reason, failed.usage, failed.cost_usd
        except BadReply as bad:
            error = str(bad)
        except Exception as raised:  # noqa: BLE001 - a foreign evaluator that fails has not said yes
            error = f"{type(raised).__name__}: {raised}"
        error = None if error is None else self.redact(error)[:REASON_CHARS_MAX]
        rationale = None if reply is None else self.redact(reply.rationale)[:RATIONALE_CHARS_MAX]
        call |= {
            "identity": dict(judge.identity),
            "verdict": "uncertain" if reply is None else reply.verdict,
            "score": None if reply is None else reply.score,
            "rationale": rationale,
            "error": error,
            "duration_ms": self.site.clock.now_ms() - started_ms,
            "usage": dict(usage),
            "cost_usd": cost_usd,
        }
        return Vote(reply=reply, error=error, call=call)

    def _redacted(self, finding: Finding) -> Finding:
        suggestion = finding.suggestion
        return replace(
            finding,
            message=self.redact(finding.message)[:RATIONALE_CHARS_MAX],
            file_path=None if finding.file_path is None else self.redact(finding.file_path)[:REASON_CHARS_MAX],
            suggestion=None if suggestion is None else self.redact(suggestion)[:RATIONALE_CHARS_MAX],
        )


def _redactor(site: GateSite, secrets: Mapping[str, str]) -> Callable[[str], str]:
    """The site's redaction, and the values of keys: of the file, of the environment."""
    values = (*secrets.values(), *secret_values(site.environment))
    own = Redactor(secrets=values)
    return lambda text: own(site.redact(text))


def _bundle(rubric: Rubric, site: GateSite, earlier: tuple[Result, ...], redact: Callable[[str], str]) -> str:
    # What ran before may have written files, so the folder is looked at anew.
    watch = Watch(site.root)
    withheld = withheld_below(site.root)
    place = Site(
        workspace=site.root, clock=site.clock, environment=site.environment, redact=site.redact, stop=site.stop
    )
    work = work_diff(place, watch.files(("**/*",)), withheld)
    named = {pattern for pattern in rubric.include if not set("*?[") & set(pattern)}
    # What git ignores is shown only where the contract names it letter by letter.
    paths = [
        path
        for path in watch.files(rubric.include)
        if (path not in work.ignored or path in named) and path.rpartition("/")[2] != ".git"
    ]
    hide = Redactor(secrets=withheld.values)
    return make_bundle(
        rubric=rubric,
        root=site.root,
        paths=paths,
        goal=site.goal,
        work=work,
        # One reviewer does not see what another one said.
        earlier=[result for result in earlier if result.kind != "rubric"],
        withheld=withheld,
        redact=lambda text: hide(redact(text)),
        bytes_max=site.contract.settings.evaluation_bundle_limit,
    )


def _counts(metadata: Mapping[str, Any]) -> dict[str, int]:
    """What a program says that it used; what is no count of this world is left out."""
    usage = metadata.get("usage")
    if not isinstance(usage, dict):
        return {}
    return {str(name): n for name, n in usage.items() if type(n) is int and 0 <= n <= COUNT_MAX}


def _cost(metadata: Mapping[str, Any]) -> str | None:
    """What a program says that it cost, in USD; ``None`` where it does not, or says nonsense."""
    cost = metadata.get("cost_usd")
    if isinstance(cost, bool) or not isinstance(cost, int | float | str):
        return None
    try:
        amount = Decimal(str(cost))
    except InvalidOperation:
        return None
    return f"{amount:f}" if amount.is_finite() and 0 <= amount <= COST_USD_MAX else None
