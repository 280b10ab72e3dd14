"""Ledgers that admit too much or too little, hold in the wrong place, or forget: one realistic fault each."""

import os
import threading
from dataclasses import replace

from bound_middleware.core import ledger as rules
from bound_middleware.core.errors import LedgerError
from bound_middleware.core.ledger import Shortfall
from bound_middleware.ledgers import MemoryLedger

from .broken import rejected_by


@rejected_by("twenty_threads_racing_for_five_get_exactly_five")
class ChecksThenActs(MemoryLedger):
    def hold(self, hold, now_ms):
        short = rules.shortfalls(self.chain(hold.account_id, now_ms), hold.amounts)
        os.sched_yield()
        if short and hold.id not in self._open:
            return short[0]
        with self._lock:
            return self._unchecked(hold)

    def _unchecked(self, hold):
        if hold.id in self._closed:
            raise LedgerError("hold_closed", id=hold.id)
        if hold.id not in self._open:
            self._put(
                tuple(replace(a, held=rules.added(a.held, hold.amounts)) for a in self._chain(hold.account_id))
            )
            self._open[hold.id] = hold


@rejected_by("threads_that_hold_and_settle_at_once_lose_nothing")
class HasNoLock(MemoryLedger):
    def __init__(self):
        super().__init__()
        self._lock = _NoLock()

    def _put(self, chain):
        os.sched_yield()
        super()._put(chain)


class _NoLock:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


@rejected_by("a_hold_counts_in_its_account_and_in_every_account_above", "two_children_stay_within_their_parent")
class HoldsInTheLeafOnly(MemoryLedger):
    def hold(self, hold, now_ms):
        before = {id: a.held for id, a in self._accounts.items()}
        result = super().hold(hold, now_ms)
        for account in self._chain(hold.account_id)[:-1]:
            self._put((replace(account, held=before[account.id]),))
        return result


@rejected_by("an_overrun_is_recorded_exactly_and_latches_the_account")
class ClipsTheOverrun(MemoryLedger):
    def settle(self, hold_id, used, now_ms, labels=None):
        hold = self._open.get(hold_id)
        clipped = used if hold is None else {m: min(n, hold.amounts.get(m, n)) for m, n in used.items()}
        return super().settle(hold_id, clipped, now_ms, labels)


@rejected_by("a_refusal_changes_nothing", "a_hold_that_an_ancestor_refuses_counts_nowhere")
class KeepsWhatItRefused(MemoryLedger):
    def hold(self, hold, now_ms):
        result = super().hold(hold, now_ms)
        if isinstance(result, Shortfall):
            leaf = self._chain(hold.account_id)[-1]
            self._put((replace(leaf, held=rules.added(leaf.held, hold.amounts)),))
        return result


@rejected_by("a_ceiling_of_zero_admits_nothing_that_touches_its_meter")
class ReadsZeroAsUnlimited(MemoryLedger):
    def open(self, account_id, *, ceilings, parent_id=None):
        return super().open(account_id, ceilings={m: n for m, n in ceilings.items() if n}, parent_id=parent_id)


@rejected_by("a_closed_id_is_refused")
class UsesClosedIdsAgain(MemoryLedger):
    def hold(self, hold, now_ms):
        self._closed.pop(hold.id, None)
        return super().hold(hold, now_ms)


@rejected_by("the_same_id_twice_is_the_same_hold")
class HoldsTheSameIdTwice(MemoryLedger):
    def hold(self, hold, now_ms):
        if hold.id in self._open:
            return self.extend(hold.id, hold.amounts, now_ms)
        return super().hold(hold, now_ms)


@rejected_by("an_exact_fit_is_admitted_and_one_more_is_not")
class AdmitsOneMore(MemoryLedger):
    def open(self, account_id, *, ceilings, parent_id=None):
        more = {meter: ceiling + 1 if ceiling else 0 for meter, ceiling in ceilings.items()}
        return super().open(account_id, ceilings=more, parent_id=parent_id)

    def chain(self, account_id, now_ms):
        return tuple(
            replace(a, ceilings={m: max(0, n - 1) for m, n in a.ceilings.items()})
            for a in super().chain(account_id, now_ms)
        )


@rejected_by("an_exact_fit_is_admitted_and_one_more_is_not", "two_children_stay_within_their_parent")
class RefusesTheExactFit(MemoryLedger):
    def hold(self, hold, now_ms):
        asked = hold.amounts
        short = rules.shortfalls(self.chain(hold.account_id, now_ms), {m: n + 1 for m, n in asked.items()})
        return replace(short[0], asked=asked[short[0].meter]) if short else super().hold(hold, now_ms)


@rejected_by("the_shortfall_nearest_the_root_is_named_first")
class ChecksTheParentAfterTheChild(MemoryLedger):
    def hold(self, hold, now_ms):
        chain = self.chain(hold.account_id, now_ms)
        result = super().hold(hold, now_ms)
        return None if result is None else rules.shortfalls(chain[::-1], hold.amounts)[0]


@rejected_by("integers_beyond_the_precision_of_a_float_are_exact")
class CountsInFloats(MemoryLedger):
    def _put(self, chain):
        for a in chain:
            settled = {m: int(float(n)) for m, n in a.settled.items()}
            super()._put((replace(a, held={m: int(float(n)) for m, n in a.held.items()}, settled=settled),))


@rejected_by("opening_again_keeps_balances_and_replaces_ceilings")
class ResetsOnOpening(MemoryLedger):
    def open(self, account_id, *, ceilings, parent_id=None):
        known = self._accounts.get(account_id)
        if known is not None and known.parent_id == parent_id:
            self._put((replace(known, settled={}),))
        return super().open(account_id, ceilings=ceilings, parent_id=parent_id)


@rejected_by("opening_again_keeps_balances_and_replaces_ceilings")
class KeepsOldCeilings(MemoryLedger):
    def open(self, account_id, *, ceilings, parent_id=None):
        known = self._accounts.get(account_id)
        old = known.ceilings if known else {}
        return super().open(account_id, ceilings={**ceilings, **old}, parent_id=parent_id)


@rejected_by("another_parent_is_a_conflict")
class MovesAccounts(MemoryLedger):
    def open(self, account_id, *, ceilings, parent_id=None):
        known = self._accounts.get(account_id)
        if known is not None and (parent_id is None or parent_id in self._accounts):
            self._put((replace(known, parent_id=parent_id),))
        return super().open(account_id, ceilings=ceilings, parent_id=parent_id)


@rejected_by("extending_a_hold_adds_under_the_same_rules")
class ExtendsWithoutAsking(MemoryLedger):
    def extend(self, hold_id, more, now_ms, expires_ms=None, ceilings=None):
        hold = self._open.get(hold_id)
        if hold is None:
            return super().extend(hold_id, more, now_ms, expires_ms, ceilings)
        self._put(tuple(replace(a, held=rules.added(a.held, more)) for a in self._chain(hold.account_id)))
        self._open[hold_id] = replace(hold, amounts=rules.added(hold.amounts, more))
        return super().extend(hold_id, {}, now_ms, expires_ms, ceilings)


@rejected_by("amounts_that_are_no_whole_numbers_are_errors_and_change_nothing")
class TakesAnyNumber(MemoryLedger):
    def hold(self, hold, now_ms):
        return super().hold(
            replace(hold, amounts={m: abs(int(n)) for m, n in hold.amounts.items() if n == n}), now_ms
        )


@rejected_by("two_event_loops_share_a_ledger", "twenty_threads_racing_for_five_get_exactly_five")
class BelongsToOneThread(MemoryLedger):
    def __init__(self):
        super().__init__()
        self._thread = threading.get_ident()

    def hold(self, hold, now_ms):
        if threading.get_ident() != self._thread:
            raise RuntimeError("used in another thread than the one that made it")
        return super().hold(hold, now_ms)


@rejected_by("a_durable_ledger_remembers_everything", "two_objects_on_a_durable_store_share_every_ceiling")
class ForgetsWhenItIsReopened(MemoryLedger):
    durable = True


@rejected_by("any_text_is_an_id")
class TrimsIds(MemoryLedger):
    def open(self, account_id, *, ceilings, parent_id=None):
        return super().open(account_id[:255], ceilings=ceilings, parent_id=parent_id)


@rejected_by("a_meter_without_a_ceiling_is_not_bounded")
class BoundsWhatNobodyBounded(MemoryLedger):
    def hold(self, hold, now_ms):
        for meter, amount in hold.amounts.items():
            if isinstance(amount, int) and amount > 10**12 and meter == "tokens":
                return Shortfall(
                    meter=meter, account_id=hold.account_id, limit=10**12, settled=0, held=0, asked=amount
                )
        return super().hold(hold, now_ms)


@rejected_by("a_ledger_says_whether_it_blocks_and_whether_it_lasts")
class DoesNotSayWhetherItBlocks(MemoryLedger):
    blocking = None


@rejected_by("an_unknown_account_is_an_error_everywhere")
class OpensWhatItDoesNotKnow(MemoryLedger):
    def chain(self, account_id, now_ms):
        if account_id not in self._accounts:
            self.open(account_id, ceilings={})
        return super().chain(account_id, now_ms)


@rejected_by("extending_a_closed_or_unknown_hold_is_an_error")
class ExtendsClosedHolds(MemoryLedger):
    def extend(self, hold_id, more, now_ms, expires_ms=None, ceilings=None):
        return None if hold_id in self._closed else super().extend(hold_id, more, now_ms, expires_ms, ceilings)


@rejected_by("extending_moves_the_expiry_only_when_one_is_given")
class DropsTheExpiryWhenItExtends(MemoryLedger):
    def extend(self, hold_id, more, now_ms, expires_ms=None, ceilings=None):
        result = super().extend(hold_id, more, now_ms, expires_ms, ceilings)
        self._open[hold_id] = replace(self._open[hold_id], expires_ms=expires_ms)
        return result


@rejected_by("a_shortfall_carries_the_numbers_of_the_account_that_is_short")
class CountsHoldsAsSettledWhenItRefuses(MemoryLedger):
    def hold(self, hold, now_ms):
        short = super().hold(hold, now_ms)
        return None if short is None else replace(short, settled=short.settled + short.held, held=0)


@rejected_by("a_hold_is_admitted_by_the_tighter_of_the_asker_and_the_account")
class ForgetsWhoAsks(MemoryLedger):
    def hold(self, hold, now_ms):
        return super().hold(replace(hold, ceilings={}), now_ms)


@rejected_by("a_hold_is_admitted_by_the_tighter_of_the_asker_and_the_account")
class ForgetsWhoExtends(MemoryLedger):
    def extend(self, hold_id, more, now_ms, expires_ms=None, ceilings=None):
        return super().extend(hold_id, more, now_ms, expires_ms)
