"""See every bound at work: no key, and no network but 127.0.0.1.

A real agent, the real OpenAI client and real tools run against a local server that speaks the provider's protocol,
with bounds and without. What is printed is what the server counted. Exit code 1 when a promise did not hold.
With --model local the server is a small real model, which has to be installed (docs/local-model.md).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from . import FAILED, OK
from .display import money

if TYPE_CHECKING:
    from .demo_acts import Act

#: All that the acts import, before the first of them: the OpenAI client fails loudly, though without harm, when the
#: remains of a cut stream are collected while another import is on its way.
NEEDS = ("langchain", "langchain.agents", "langchain_openai")
INSTALL = 'pip install "bound-middleware[demo]"'
#: What would send the demo elsewhere: proxies, tracing, another endpoint or key.
_ELSEWHERE = ("LANGSMITH_", "LANGCHAIN_", "OPENAI_")


#: --model -> what answers
SERVERS = {
    "scripted": "a local server",
    "local": "a small real model",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("--fast", action="store_true", help="the same acts with smaller numbers")
    parser.add_argument(
        "--model",
        choices=SERVERS,
        default="scripted",
        help="who answers: a server with a script (default), or a small real model on this machine",
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")


def run(args: argparse.Namespace) -> int:
    """Plays the acts and returns 0 when every promise held."""
    from importlib import import_module

    from ..testing.local_model_setup import LocalModelError

    started = time.perf_counter()
    with staying_here():
        if not args.json:
            print(
                f"bound demo: a real agent and the real OpenAI client, against {SERVERS[args.model]}\n", flush=True
            )
        for name in NEEDS:
            try:
                import_module(name)
            except ImportError as error:
                print(f"error: the demo needs {error.name or name}: {INSTALL}", file=sys.stderr)
                return FAILED
        acts = []
        try:
            with plays(args.model) as playing:
                for play in playing:
                    act = play(fast=args.fast)
                    acts.append(act)
                    if not args.json:
                        print(rendered(act), flush=True)
        except LocalModelError as error:
            print(f"error: {error}", file=sys.stderr)
            return FAILED
    seconds = time.perf_counter() - started
    broken = [promise.text for act in acts for promise in act.promises if not promise.held]
    if args.json:
        print(json.dumps(figures(acts, seconds), indent=2))
    else:
        promises = sum(len(act.promises) for act in acts)
        print(f"{promises - len(broken)} of {promises} promises held, in {seconds:.1f} s.")
    for text in broken:
        print(f"error: did not hold: {text}", file=sys.stderr)
    return FAILED if broken else OK


@contextmanager
def plays(model: str) -> Iterator[tuple[Callable[..., Act], ...]]:
    """The acts, with the server that they need.

    Raises:
        LocalModelError: the real model is not installed, or does not start.
    """
    if model == "scripted":
        from .demo_acts import ACTS

        yield ACTS
        return
    from .demo_local import acts_with

    with acts_with() as acts:
        yield acts


@contextmanager
def staying_here() -> Iterator[None]:
    """An environment in which nothing leaves this machine: no proxy, no tracing, no settings of a real account."""
    before = dict(os.environ)
    for name in before:
        if name.lower().endswith("_proxy") or name.startswith(_ELSEWHERE):
            del os.environ[name]
    os.environ["LANGSMITH_TRACING"] = "false"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def rendered(act: Act) -> str:
    """An act as text of at most 80 columns."""
    lines = [f"Act {act.number}  {act.title}", ""]
    lines.append(f"  {'the server counted':<22}{'requests':>10}{'paid':>8}{'tokens':>12}{'money':>16}")
    for count in act.counts:
        tokens = count.input_tokens + count.output_tokens
        lines.append(
            f"  {count.label:<22}{count.requests:>10,}{count.paid:>8,}{tokens:>12,}{money(count.cost_nanousd):>16}"
        )
    lines.append("")
    for label, outcome in act.outcomes.items():
        words = " by ".join(filter(None, (outcome["status"], outcome["stop_reason"])))
        truncated = ", the answer is truncated" if outcome["truncated"] else ""
        lines.append(f"  {'outcome, ' + label:<24}{words}{truncated}")
    lines += [f"  {'ok' if promise.held else 'NO':<4}{promise.text}" for promise in act.promises]
    return "\n".join([*lines, ""])


def figures(acts: list[Act], seconds: float) -> dict[str, Any]:
    """The figures of all acts as JSON values."""
    return {
        "ok": all(promise.held for act in acts for promise in act.promises),
        "seconds": round(seconds, 3),
        "acts": [asdict(act) for act in acts],
    }
