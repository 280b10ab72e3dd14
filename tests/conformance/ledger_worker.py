"""A process that works on a ledger's file, run as a script. It speaks in lines and acts when it is told to.

``ledger_worker.py PATH``, then one command in each line of its input:

    open                    opens the file, says ``opened``
    race N                  holds 1 token N times, settles what it got, says ``admitted COUNT``
    hold ID TOKENS          holds, says ``held``
    settle ID TOKENS        settles, says ``settled``
    fork                    works on both sides of a fork, says what the child saw and what the parent saw
    spend SEED              a child holds, pays and settles until nothing fits; says ``child PID``, then
                            ``paid PID TOKENS``, ..., ``full PID``, and ``gone PID`` when it was killed
    unpickle HEX            settles ``pickled`` on the ledger that it is given, says its path
"""

import os
import pickle
import signal
import sys
from random import Random

from bound_middleware.core.ledger import Hold
from bound_middleware.ledgers import SqliteLedger

NOW_MS = 1_000
MOST_TOKENS = 100


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def hold(ledger: SqliteLedger, id: str, tokens: int) -> bool:
    return ledger.hold(Hold(id=id, account_id="child", amounts={"tokens": tokens}), NOW_MS) is None


def race(ledger: SqliteLedger, count: int) -> None:
    ids = [id for id in (f"{os.getpid()}/{number}" for number in range(count)) if hold(ledger, id, 1)]
    for id in ids:
        ledger.settle(id, {"tokens": 1}, NOW_MS)
    say("admitted", len(ids))


def fork(ledger: SqliteLedger) -> None:
    hold(ledger, "parent", 1)
    worked_out, worked_in = os.pipe()
    closed_out, closed_in = os.pipe()
    child = os.fork()
    if child == 0:
        hold(ledger, "child", 2)
        ledger.settle("parent", {"tokens": 1}, NOW_MS)
        say("child", sorted(h.id for h in ledger.holds("root")))
        os.write(worked_in, b".")
        os.read(closed_out, 1)
        ledger.settle("child", {"tokens": 2}, NOW_MS)
        ledger.close()
        say("child closed")
        os._exit(0)
    os.read(worked_out, 1)
    say("parent", sorted(h.id for h in ledger.holds("root")), ledger.chain("root", NOW_MS)[0].settled["tokens"])
    ledger.close()
    os.write(closed_in, b".")
    os.waitpid(child, 0)


def spend(path: str, seed: str) -> None:
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        say("gone", child)
        return
    say("child", os.getpid())
    try:
        pay(path, seed)
    except BaseException as error:
        say("failed", repr(error))
    os._exit(1)


def pay(path: str, seed: str) -> None:
    ledger, dice, number = SqliteLedger(path), Random(seed), 0
    while True:
        number += 1
        id = f"{seed}/{number}"
        if hold(ledger, id, MOST_TOKENS):
            tokens = dice.randint(0, MOST_TOKENS)
            say("paid", os.getpid(), tokens)
            ledger.settle(id, {"tokens": tokens}, NOW_MS)
        else:
            say("full", os.getpid())
            signal.pause()


def main(path: str) -> None:
    ledger: SqliteLedger | None = None
    say("ready")
    for line in sys.stdin:
        command, *words = line.split()
        if command == "spend":
            spend(path, words[0])
            continue
        if command == "unpickle":
            with pickle.loads(bytes.fromhex(words[0])) as given:
                given.settle("pickled", {"tokens": 1}, NOW_MS)
                say(given.path)
            continue
        ledger = ledger or SqliteLedger(path)
        match command:
            case "open":
                say("opened")
            case "race":
                race(ledger, int(words[0]))
            case "hold":
                hold(ledger, words[0], int(words[1]))
                say("held")
            case "settle":
                ledger.settle(words[0], {"tokens": int(words[1])}, NOW_MS)
                say("settled")
            case "fork":
                fork(ledger)
    if ledger is not None:
        ledger.close()


if __name__ == "__main__":
    main(sys.argv[1])
