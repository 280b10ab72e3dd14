"""Ledgers that book too much, too little or in the wrong place, or let no hold go: one realistic fault each."""

from dataclasses import replace

from bound_middleware.core import ledger as rules
from bound_middleware.core.errors import LedgerError
from bound_middleware.core.ledger import Settlement
from bound_middleware.ledgers import MemoryLedger

from .broken import rejected_by


@rejected_by("settling_twice_changes_nothing", "twenty_threads_that_settle_the_same_hold_book_it_once")
class SettlesTwice(MemoryLedger):
    def settle(self, hold_id, used, now_ms, labels=None):
        if hold_id in self._closed:
            closed = self._closed[hold_id]
            self.book(closed.account_id, f"{hold_id} again {id(used)} {len(self._closed)}", used, now_ms, labels)
            return Settlement(hold_id=hold_id, amounts=used, overrun={})
        return super().settle(hold_id, used, now_ms, labels)


@rejected_by("releasing_what_is_closed_changes_nothing", "random_schedules_agree_with_a_model_at_every_step")
class RefundsAfterTheSettlement(MemoryLedger):
    def release(self, hold_id, now_ms):
        closed = self._closed.get(hold_id)
        if closed is not None and closed.booked:
            chain = self._chain(closed.account_id)
            self._put(tuple(replace(a, settled=rules.subtracted(a.settled, closed.booked)) for a in chain))
        return super().release(hold_id, now_ms)


@rejected_by("a_hold_expires_at_its_time_and_settles_in_full_as_an_estimate")
class NeverExpires(MemoryLedger):
    def _expire(self, now_ms):
        pass


@rejected_by("a_hold_expires_at_its_time_and_settles_in_full_as_an_estimate")
class ExpiresOneLate(MemoryLedger):
    def _expire(self, now_ms):
        super()._expire(now_ms - 1)


@rejected_by("a_hold_expires_at_its_time_and_settles_in_full_as_an_estimate")
class GivesBackWhatExpires(MemoryLedger):
    def _expire(self, now_ms):
        for hold in [h for h in self._open.values() if rules.is_due(h, now_ms)]:
            self._close(hold, {}, hold.labels, final=False)


@rejected_by("every_operation_that_is_told_the_time_settles_what_is_due_before_it_looks")
class ExpiresOnlyWhenItHolds(MemoryLedger):
    holding = False

    def hold(self, hold, now_ms):
        self.holding = True
        try:
            return super().hold(hold, now_ms)
        finally:
            self.holding = False

    def _expire(self, now_ms):
        if self.holding:
            super()._expire(now_ms)


@rejected_by("a_settlement_after_the_expiry_books_only_the_excess")
class DoublesLateSettlements(MemoryLedger):
    def _settle_late(self, hold_id, used, labels):
        closed = self._closed.get(hold_id)
        if closed is not None and not closed.final:
            self._closed[hold_id] = replace(closed, booked={})
        return super()._settle_late(hold_id, used, labels)


@rejected_by("a_settlement_after_the_expiry_books_only_the_excess", "a_settlement_after_a_release_books_all_of_it")
class IgnoresLateSettlements(MemoryLedger):
    def _settle_late(self, hold_id, used, labels):
        if hold_id not in self._closed:
            raise LedgerError("unknown_hold", id=hold_id)
        return Settlement(hold_id=hold_id, amounts={}, overrun={}, closed=False)


@rejected_by("lines_break_settled_amounts_down_in_the_account_and_all_above_it")
class WritesLinesInTheLeafOnly(MemoryLedger):
    def _add_line(self, chain, used, labels):
        super()._add_line(chain[-1:], used, labels)


@rejected_by("labels_given_at_the_settlement_replace_those_of_the_hold")
class IgnoresTheLabelsOfTheSettlement(MemoryLedger):
    def settle(self, hold_id, used, now_ms, labels=None):
        return super().settle(hold_id, used, now_ms)


@rejected_by("booking_needs_no_room_and_happens_once_for_each_id")
class RefusesToBookAboveTheCeiling(MemoryLedger):
    def book(self, account_id, id, used, now_ms, labels=None):
        if rules.shortfalls(self.chain(account_id, now_ms), used):
            return Settlement(hold_id=id, amounts={}, overrun={}, closed=False)
        return super().book(account_id, id, used, now_ms, labels)


@rejected_by("what_the_caller_does_with_its_dictionaries_later_changes_nothing")
class KeepsTheCallersDictionaries(MemoryLedger):
    def hold(self, hold, now_ms):
        result = super().hold(hold, now_ms)
        if hold.id in self._open:
            self._open[hold.id] = hold
        return result


@rejected_by("a_hold_without_an_expiry_stays_open")
class ExpiresEverythingInTheEnd(MemoryLedger):
    def _expire(self, now_ms):
        for id, hold in list(self._open.items()):
            if hold.expires_ms is None and now_ms > 10**12:
                self._open[id] = replace(hold, expires_ms=now_ms)
        super()._expire(now_ms)


@rejected_by("an_unknown_hold_is_an_error_everywhere")
class SettlesTheUnknown(MemoryLedger):
    def settle(self, hold_id, used, now_ms, labels=None):
        if hold_id not in self._open and hold_id not in self._closed:
            return self.book("root", hold_id, used, now_ms, labels)
        return super().settle(hold_id, used, now_ms, labels)


@rejected_by("a_failed_operation_does_not_use_up_its_id")
class UsesUpIdsItWasAskedFor(MemoryLedger):
    def release(self, hold_id, now_ms):
        try:
            return super().release(hold_id, now_ms)
        except LedgerError:
            self.book("root", hold_id, {}, now_ms)
            raise


@rejected_by("booking_the_id_of_a_hold_changes_nothing")
class BooksUnderTheIdOfAHold(MemoryLedger):
    def book(self, account_id, id, used, now_ms, labels=None):
        if id in self._open:
            return self.settle(id, used, now_ms, labels)
        return super().book(account_id, id, used, now_ms, labels)


@rejected_by("closing_the_ledger_twice_is_no_error")
class ClosesOnce(MemoryLedger):
    def close(self):
        del self._lock


@rejected_by("nobody_is_blocked_by_a_call_that_failed", "releasing_gives_everything_back")
class LeavesPhantomHolds(MemoryLedger):
    def release(self, hold_id, now_ms):
        hold = self._open.get(hold_id)
        result = super().release(hold_id, now_ms)
        if hold is not None:
            self._put(
                tuple(replace(a, held=rules.added(a.held, hold.amounts)) for a in self._chain(hold.account_id))
            )
        return result


@rejected_by("open_holds_are_listed_in_the_account_and_all_above_it")
class ListsTheHoldsOfOneAccount(MemoryLedger):
    def holds(self, account_id):
        return tuple(h for h in super().holds(account_id) if h.account_id == account_id)


@rejected_by("settling_books_what_was_used_and_gives_the_rest_back")
class BooksWhatWasHeld(MemoryLedger):
    def settle(self, hold_id, used, now_ms, labels=None):
        hold = self._open.get(hold_id)
        return super().settle(hold_id, used if hold is None else {**used, **hold.amounts}, now_ms, labels)
