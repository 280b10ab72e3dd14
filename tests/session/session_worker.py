"""A process that spends from a session on a file, run as a script. It speaks in lines.

``stream PATH URL``   streams one bounded call and says how many chunks it has, one line each
``charge PATH N``     charges 10 tokens N times as fast as it can, says how many were booked
"""

import os
import sys

from bound_middleware import BoundExceeded, BoundSession, Usage
from bound_middleware.ledgers import SqliteLedger

SPEC = {"bounds": {"token_budget": {"total": 1_000}}}
PRICES = {"gpt-4o": {"input": "2.50", "output": "10"}}


def say(word: object) -> None:
    os.write(1, f"{word}\n".encode())


def main(command: str, path: str, what: str) -> None:
    session = BoundSession(SPEC, ledger=SqliteLedger(path), session_id="r1", prices=PRICES)
    if command == "charge":
        say("ready")
        sys.stdin.readline()
        booked = 0
        for _ in range(int(what)):
            try:
                session.charge(usage=Usage(input_tokens=10))
            except BoundExceeded:
                continue
            booked += 1
        say(booked)
        return
    from langchain_openai import ChatOpenAI

    from bound_middleware.langchain import bound_model

    model = bound_model(ChatOpenAI(model="gpt-4o", base_url=what, api_key="none", max_tokens=200), session)
    for number, _ in enumerate(model.stream("hello")):
        say(number)


if __name__ == "__main__":
    main(*sys.argv[1:])
