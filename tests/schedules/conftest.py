"""Every interleaving of concurrent calls, without threads.

A call is a generator that yields wherever another call may run in between: after it read the balances, after it
decided, after it held, while its answer streams, after it closed its hold. The explorer runs every order in
which such calls can take their steps. An order that leads to a state that was seen before is not followed
further: what can come after it has been seen too.
"""

from types import SimpleNamespace

import pytest

from bound_middleware.core.errors import LedgerError
from bound_middleware.core.gateway import Facts, Request, balances_of, decide, more_output, output_amounts
from bound_middleware.core.ledger import Hold, Labels, added
from bound_middleware.core.limits import Limits
from bound_middleware.ledgers.memory import MemoryLedger

RATE = 1_000_000
WAITING = ("waiting",)
LIMITS = Limits(iteration_unit="superstep")


class World:
    """A ledger, some flows, and the truth: what the flows themselves know to be held and paid."""

    def __init__(self, accounts, new_ledger=MemoryLedger):
        self.accounts = {name: (parent, dict(ceilings)) for name, (parent, ceilings) in accounts.items()}
        self.ledger, self.now_ms = new_ledger(), 0
        for name, (parent, ceilings) in self.accounts.items():
            self.ledger.open(name, ceilings=ceilings, parent_id=parent)
        self.flows, self.at, self.waits_since = {}, {}, {}
        self.open, self.paid, self.overrun, self.ends = {}, {}, {}, {}
        self.order, self.expires = (), False
        self.most_settled, self.verdicts = {}, {}
        self.paths = {name: set(self.path(name)) for name in self.accounts}

    def add(self, name, flow):
        self.flows[name], self.at[name] = flow, ("new",)

    def path(self, account):
        while account is not None:
            yield account
            account = self.accounts[account][0]

    def balances(self):
        """Held and settled of every account, as they are: a time of 0 lets nothing expire."""
        chains = {name: self.ledger.chain(name, 0)[-1] for name in self.accounts}
        return {name: (dict(a.held), dict(a.settled)) for name, a in chains.items()}

    def state(self):
        ids = sorted((h.id, h.expires_ms) for h in self.ledger.holds(next(iter(self.accounts))))
        flows = (sorted(d.items()) for d in (self.at, self.waits_since, self.open, self.paid, self.overrun))
        return repr((self.balances(), ids, self.now_ms, *flows))

    def runnable(self):
        """The flows that can take a step. One that waits can when balances changed, or when no other can."""
        alive = [name for name in self.flows if name not in self.ends]
        now = repr(self.balances())
        able = [n for n in alive if n not in self.waits_since or self.waits_since[n] != now]
        return able or alive

    def step(self, name):
        over = name in self.waits_since and self.waits_since.pop(name) == repr(self.balances())
        try:
            first = self.at[name] == ("new",)
            self.at[name] = self.flows[name].send(None if first else over)
        except StopIteration as end:
            self.at[name] = ("end", end.value)
            self.ends[name] = end.value
        if self.at[name] == WAITING:
            self.waits_since[name] = repr(self.balances())

    def check(self):
        """What must hold after every step of every order."""
        for name, (held, settled) in self.balances().items():
            true, over = self.sums(name, self.open, self.paid), self.sums(name, self.overrun)
            used = added(held, settled)
            for meter, limit in self.accounts[name][1].items():
                most = limit + over.get(meter, 0)
                assert used.get(meter, 0) <= most, f"{name}: {used[meter]} {meter} counted, of {limit}"
                assert true.get(meter, 0) <= most, f"{name}: {true[meter]} {meter} in truth, of {limit}"
            for meter in used | true:
                counted, real = used.get(meter, 0), true.get(meter, 0)
                assert counted >= real if self.expires else counted == real, (
                    f"{name}: {counted} {meter} counted for {real}"
                )
            assert all(n > 0 for n in held.values())
            for meter, most in self.most_settled.get(name, {}).items():
                assert settled.get(meter, 0) >= most, f"{name}: settled {meter} went down from {most}"
            self.most_settled[name] = settled

    def sums(self, account, *entries):
        result = {}
        for entry in entries:
            for (owner, _), amounts in entry.items():
                if account in self.paths[owner]:
                    result = added(result, amounts)
        return result

    def decide(self, request, chain, waited):
        """The verdict of the gateway; it is pure, so what one order has asked need not be asked again."""
        asked = (request.kind, request.output_max_tokens, repr(request.amounts), repr(chain), waited)
        if asked not in self.verdicts:
            facts = Facts(balances=balances_of(chain), output_nanousd_per_mtok=RATE, waited=waited)
            self.verdicts[asked] = decide(request, facts, LIMITS)
        return self.verdicts[asked]

    def admitted(self):
        return sorted(name for name, end in self.ends.items() if end not in ("refused", None))


def call(
    world,
    name,
    *,
    kind="model_call",
    hold=10,
    used=None,
    grow=0,
    greedy=False,
    account="s",
    short=False,
    end="settle",
    expires_ms=None,
    id=None,
):
    """One call: read, decide, hold, stream, and settle, release or crash; the return value is how it ended.

    It holds ``hold`` tokens (a charge never less; a model call, of which one is input, less when there is less;
    a greedy one whatever there is), and uses ``used`` of them, by default all. A short one decides as it reads
    and does not stream: nothing is shared in these steps. One that can ``grow`` asks for so many tokens more
    while it streams.
    """
    key = (account, id or name)
    if kind == "charge":
        request = Request(kind="charge", id=id or name, amounts={"tokens": hold})
    else:
        most = None if greedy else hold - 1
        request = Request(kind="model_call", id=id or name, input_tokens=1, output_max_tokens=most)
    waited = False
    while True:
        chain = world.ledger.chain(account, world.now_ms)
        yield ("read", repr(chain), waited)
        verdict = world.decide(request, chain, waited)
        if not short:
            yield ("decided", repr(verdict.amounts), verdict.may_fit_later, waited)
        if verdict.kind == "refuse":
            if waited or not verdict.may_fit_later:
                return "refused"
            waited = yield WAITING
            continue
        amounts = {m: n for m, n in verdict.amounts.items() if n}
        wanted = Hold(
            id=request.id, account_id=account, amounts=amounts, expires_ms=expires_ms, labels=Labels(agent=name)
        )
        try:
            shortfall = yield from _held(world, wanted)
        except LedgerError as error:
            return error.reason
        if shortfall is None:
            break
        yield ("lost the race", waited)
    world.open.setdefault(key, amounts)
    for i in range(1 if short else 2):
        yield ("streams", i, tuple(amounts.items()))
    while grow:
        balances = balances_of(world.ledger.chain(account, world.now_ms))
        yield ("asks for more", grow, repr(balances), tuple(amounts.items()))
        more = output_amounts(more_output(balances, RATE, grow), RATE)
        if more["tokens"] == 0:
            break
        if world.ledger.extend(request.id, more, world.now_ms) is None:
            world.open[key] = amounts = added(amounts, more)
            grow -= more["tokens"]
        yield ("has more", grow, tuple(amounts.items()))
    if end == "crash":
        world.open.pop(key)
        return "crashed"
    if end == "release":
        world.ledger.release(request.id, world.now_ms)
        world.open.pop(key, None)
        return "released"
    bill = amounts if used is None else {**amounts, "tokens": used}
    world.ledger.settle(request.id, bill, world.now_ms)
    world.open.pop(key, None)
    world.paid.setdefault(key, bill)
    world.overrun[key] = {m: n - amounts.get(m, 0) for m, n in bill.items() if n > amounts.get(m, 0)}
    return "settled"


def clock(world, *times_ms):
    """Time that passes between any two steps of the others."""
    for world.now_ms in times_ms:
        yield ("clock", world.now_ms)


def _held(world, hold):
    in_steps = getattr(world.ledger, "hold_in_steps", None)
    if in_steps is not None:
        return (yield from in_steps(hold, world.now_ms))
    return world.ledger.hold(hold, world.now_ms)


def explore(new_world, *, at_end=None, every_order=False):
    """Take every order of steps from a new world, check after each, and return the worlds that came to an end."""
    seen, orders, ends, verdicts = set(), [()], [], {}
    while orders:
        order = orders.pop()
        world = new_world()
        world.order, world.verdicts = order, verdicts
        for name in order[:-1]:
            world.step(name)
        world.check()
        if order:
            world.step(order[-1])
            world.check()
        state = None if every_order else world.state()
        if state in seen:
            continue
        if state is not None:
            seen.add(state)
        able = world.runnable()
        orders.extend((*order, name) for name in able)
        if not able:
            ends.append(world)
            if at_end is not None:
                at_end(world)
    return SimpleNamespace(states=len(seen), ends=ends)


@pytest.fixture(scope="session")
def schedules():
    return SimpleNamespace(World=World, call=call, clock=clock, explore=explore)
