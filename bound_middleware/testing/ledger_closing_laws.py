"""Laws of closing: settlement, release, expiry, what comes late, and the lines of a breakdown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.ledger import Labels
from ..ledgers.port import Ledger
from .ledger_checks import (
    NOW_MS,
    LedgerSuite,
    admitted,
    balances,
    booked,
    equal,
    fails,
    lines,
    make_hold,
    picture,
    refused,
)


class ClosingLaws(LedgerSuite):
    """Each id is booked once, exactly, whatever the ceilings say; settled amounts never go down."""

    def test_settling_books_what_was_used_and_gives_the_rest_back(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:
            ledger.hold(make_hold("a", tokens=8, iterations=1), NOW_MS)
            settlement = ledger.settle("a", {"tokens": 5, "iterations": 1, "model_calls": 1}, NOW_MS)
            expected = {"tokens": 5, "iterations": 1, "model_calls": 1}
            equal(booked(settlement), (True, expected, {}), "a settlement says what it booked")
            equal(
                balances(ledger), {"held": {}, "settled": expected}, "what was used is settled, nothing stays held"
            )
            admitted(ledger.hold(make_hold("b", tokens=5), NOW_MS), "what was not used can be held again")

    def test_settling_twice_changes_nothing(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ledger.hold(make_hold("a", tokens=8), NOW_MS)
            ledger.settle("a", {"tokens": 5}, NOW_MS)
            before = picture(ledger)
            for used in ({"tokens": 5}, {"tokens": 9}, {}):
                equal(
                    booked(ledger.settle("a", used, NOW_MS)), (False, {}, {}), "a settled hold books nothing more"
                )
            equal(picture(ledger), before, "settling twice changes nothing")

    def test_an_overrun_is_recorded_exactly_and_latches_the_account(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=100) as ledger:
            ledger.open("child", ceilings={"tokens": 100}, parent_id="root")
            ledger.hold(make_hold("a", "child", tokens=80, nanousd=7), NOW_MS)
            settlement = ledger.settle("a", {"tokens": 11_210, "nanousd": 7, "cache_read_tokens": 5}, NOW_MS)
            equal(
                booked(settlement)[2],
                {"tokens": 11_130},
                "the overrun is what was used above the hold, of what was held",
            )
            for account_id in ("child", "root"):
                settled = balances(ledger, account_id)["settled"]["tokens"]
                equal(settled, 11_210, "what was paid is recorded exactly, also above the ceiling")
            short = refused(
                ledger.hold(make_hold("b", "child", tokens=0), NOW_MS),
                "above its ceiling an account admits nothing",
            )
            equal((short.account_id, short.settled), ("root", 11_210), "the refusal names the overrun")
            admitted(ledger.hold(make_hold("c", "child", nanousd=1), NOW_MS), "other meters are not latched")

    def test_releasing_gives_everything_back(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:
            ledger.open("child", ceilings={}, parent_id="root")
            ledger.hold(make_hold("a", "child", tokens=10), NOW_MS)
            equal(booked(ledger.release("a", NOW_MS)), (True, {}, {}), "a release books nothing")
            for account_id in ("child", "root"):
                equal(
                    balances(ledger, account_id), {"held": {}, "settled": {}}, "a released hold is gone everywhere"
                )
            admitted(ledger.hold(make_hold("b", "child", tokens=10), NOW_MS), "a released amount can be held again")

    def test_releasing_what_is_closed_changes_nothing(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            for id in ("settled", "released"):
                ledger.hold(make_hold(id, tokens=8), NOW_MS)
            ledger.hold(make_hold("expired", tokens=2, expires_ms=NOW_MS), NOW_MS - 1)
            ledger.settle("settled", {"tokens": 5}, NOW_MS)
            ledger.release("released", NOW_MS)
            before = picture(ledger)
            for id in ("settled", "released", "expired"):
                equal(booked(ledger.release(id, NOW_MS)), (False, {}, {}), f"a hold that was {id} is not released")
            equal(picture(ledger), before, "releasing a closed hold gives nothing back")

    def test_a_hold_expires_at_its_time_and_settles_in_full_as_an_estimate(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:
            ledger.hold(make_hold("a", tokens=6, iterations=1, expires_ms=NOW_MS + 5), NOW_MS)
            equal(
                balances(ledger, now_ms=NOW_MS + 4)["held"],
                {"tokens": 6, "iterations": 1},
                "before its time a hold is open",
            )
            expected = {"held": {}, "settled": {"tokens": 6, "iterations": 1, "estimated_calls": 1}}
            equal(
                balances(ledger, now_ms=NOW_MS + 5),
                expected,
                "at expires_ms a hold is settled in full, as one estimate",
            )
            equal(ledger.holds("root"), (), "an expired hold is not open")
            refused(ledger.hold(make_hold("b", tokens=5), NOW_MS + 5), "what expired is spent, not given back")

    def test_a_hold_without_an_expiry_stays_open(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ledger.hold(make_hold("a", tokens=6), NOW_MS)
            equal(balances(ledger, now_ms=10**15)["held"], {"tokens": 6}, "expires_ms None never expires")

    def test_every_operation_that_is_told_the_time_settles_what_is_due_before_it_looks(
        self, tmp_path: Path
    ) -> None:
        with self.fresh(tmp_path) as ledger:
            operations: dict[str, Callable[[], Any]] = {
                "chain": lambda: ledger.chain("root", NOW_MS),
                "hold": lambda: ledger.hold(make_hold("new"), NOW_MS),
                "extend": lambda: ledger.extend("new", {}, NOW_MS),
                "settle": lambda: ledger.settle("new", {}, NOW_MS),
                "release": lambda: ledger.release("new", NOW_MS),
                "book": lambda: ledger.book("root", "more", {}, NOW_MS),
            }
            for number, (name, call) in enumerate(operations.items(), start=1):
                ledger.hold(make_hold(f"due {name}", tokens=1, expires_ms=NOW_MS), NOW_MS - 1)
                equal(
                    [h.id for h in ledger.holds("root") if h.id.startswith("due")],
                    [f"due {name}"],
                    "it is open before",
                )
                call()
                equal(
                    [h for h in ledger.holds("root") if h.id.startswith("due")], [], f"{name}() settles what is due"
                )
                equal(
                    balances(ledger)["settled"],
                    {"tokens": number, "estimated_calls": number},
                    "and settles it once",
                )

    def test_a_settlement_after_the_expiry_books_only_the_excess(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            for id in ("more", "less"):
                ledger.hold(make_hold(id, tokens=6, expires_ms=NOW_MS), NOW_MS - 1)
            late = ledger.settle("more", {"tokens": 10, "output_tokens": 3}, NOW_MS)
            equal(
                booked(late)[:2], (True, {"tokens": 4, "output_tokens": 3}), "it books what is above the estimate"
            )
            late = ledger.settle("less", {"tokens": 2}, NOW_MS)
            equal(booked(late)[1], {}, "a settlement below the estimate gives nothing back: spend is monotone")
            expected = {"tokens": 16, "output_tokens": 3, "estimated_calls": 2}
            equal(
                balances(ledger), {"held": {}, "settled": expected}, "the larger of estimate and usage is settled"
            )
            before = picture(ledger)
            for id in ("more", "less"):
                equal(
                    booked(ledger.settle(id, {"tokens": 99}, NOW_MS)), (False, {}, {}), "it settles late once only"
                )
            equal(picture(ledger), before, "a second late settlement changes nothing")

    def test_a_settlement_after_a_release_books_all_of_it(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=5) as ledger:
            ledger.hold(make_hold("a", tokens=5), NOW_MS)
            ledger.release("a", NOW_MS)
            equal(
                booked(ledger.settle("a", {"tokens": 3}, NOW_MS))[:2],
                (True, {"tokens": 3}),
                "what was paid is booked",
            )
            equal(balances(ledger), {"held": {}, "settled": {"tokens": 3}}, "and taken off no hold")
            equal(booked(ledger.settle("a", {"tokens": 3}, NOW_MS)), (False, {}, {}), "once only")

    def test_booking_needs_no_room_and_happens_once_for_each_id(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=5) as ledger:
            ledger.open("child", ceilings={"tokens": 0}, parent_id="root")
            settlement = ledger.book("child", "a", {"tokens": 7}, NOW_MS)
            equal(
                booked(settlement)[:2], (True, {"tokens": 7}), "what was paid is booked, whatever the ceilings say"
            )
            equal(
                booked(ledger.book("child", "a", {"tokens": 7}, NOW_MS)),
                (False, {}, {}),
                "the same id is booked once",
            )
            for account_id in ("child", "root"):
                equal(balances(ledger, account_id)["settled"], {"tokens": 7}, f"it counts once in {account_id}")
            refused(ledger.hold(make_hold("b", tokens=1), NOW_MS), "what was booked counts against the ceiling")

    def test_booking_the_id_of_a_hold_changes_nothing(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ledger.hold(make_hold("open", tokens=2), NOW_MS)
            ledger.hold(make_hold("closed", tokens=2), NOW_MS)
            ledger.settle("closed", {"tokens": 2}, NOW_MS)
            before = picture(ledger)
            for id in ("open", "closed"):
                equal(
                    booked(ledger.book("root", id, {"tokens": 9}, NOW_MS)),
                    (False, {}, {}),
                    f"the id of an {id} hold is taken",
                )
            equal(picture(ledger), before, "booking the id of a hold changes nothing")

    def test_lines_break_settled_amounts_down_in_the_account_and_all_above_it(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ledger.open("child", ceilings={}, parent_id="root")
            writer, search = Labels(model="m", agent="writer"), Labels(tool="search", agent="writer")
            ledger.hold(make_hold("a", "child", tokens=9, labels=writer), NOW_MS)
            equal(lines(ledger), {}, "what is held is in no line")
            ledger.settle("a", {"tokens": 5}, NOW_MS)
            ledger.book("child", "b", {"tokens": 2, "model_calls": 1}, NOW_MS, labels=writer)
            ledger.book("root", "c", {"nanousd": 4}, NOW_MS, labels=search)
            ledger.book("root", "d", {"tokens": 1}, NOW_MS)
            expected = {writer: {"tokens": 7, "model_calls": 1}}
            equal(lines(ledger, "child"), expected, "amounts under the same labels are one line")
            expected = {**expected, search: {"nanousd": 4}, Labels(): {"tokens": 1}}
            equal(lines(ledger), expected, "a line of a child is in every account above it")
            equal(
                balances(ledger)["settled"],
                {"tokens": 8, "model_calls": 1, "nanousd": 4},
                "lines add up to what is settled",
            )

    def test_labels_given_at_the_settlement_replace_those_of_the_hold(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            asked, answered = Labels(model="asked"), Labels(model="answered")
            ledger.hold(make_hold("a", tokens=5, labels=asked), NOW_MS)
            ledger.settle("a", {"tokens": 4}, NOW_MS, labels=answered)
            equal(lines(ledger), {answered: {"tokens": 4}}, "the settlement's labels win")
            ledger.hold(make_hold("b", tokens=5, labels=asked, expires_ms=NOW_MS + 1), NOW_MS)
            ledger.chain("root", NOW_MS + 1)
            expired = {"tokens": 5, "estimated_calls": 1}
            equal(
                lines(ledger),
                {answered: {"tokens": 4}, asked: expired},
                "an expired hold is booked under its own labels",
            )
            ledger.settle("b", {"tokens": 8}, NOW_MS + 1, labels=answered)
            equal(
                lines(ledger),
                {answered: {"tokens": 7}, asked: expired},
                "the excess is booked under the labels given",
            )
            ledger.hold(make_hold("c", tokens=5, labels=asked), NOW_MS + 1)
            ledger.release("c", NOW_MS + 1)
            ledger.settle("c", {"tokens": 1}, NOW_MS + 1)
            expected = {answered: {"tokens": 7}, asked: {"tokens": 6, "estimated_calls": 1}}
            equal(lines(ledger), expected, "without labels a late settlement keeps those of the hold")

    def test_open_holds_are_listed_in_the_account_and_all_above_it(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ledger.open("child", ceilings={}, parent_id="root")
            low = make_hold("low", "child", tokens=5, labels=Labels(model="m"), expires_ms=NOW_MS + 9)
            high = make_hold("high", tokens=1)
            for hold in (low, high):
                ledger.hold(hold, NOW_MS)
            equal(ledger.holds("child"), (low,), "a hold is listed as it was given")
            equal({h.id for h in ledger.holds("root")}, {"low", "high"}, "holds of a child are listed above it")
            ledger.settle("low", {}, NOW_MS)
            ledger.release("high", NOW_MS)
            equal(ledger.holds("root"), (), "closed holds are not listed")

    def test_nobody_is_blocked_by_a_call_that_failed(self, tmp_path: Path) -> None:
        """A call of 200 of 300 fails and is released; 150 fits afterwards; a cancelled call books its estimate."""
        with self.fresh(tmp_path, tokens=300) as ledger:
            _hold_and_release(ledger, "failed", 200)
            admitted(ledger.hold(make_hold("next", tokens=150), NOW_MS), "a failed call leaves no hold behind")
            ledger.settle("next", {"tokens": 60}, NOW_MS)
            ledger.hold(make_hold("cancelled", tokens=200), NOW_MS)
            ledger.settle("cancelled", {"tokens": 40, "estimated_calls": 1}, NOW_MS)
            expected = {"held": {}, "settled": {"tokens": 100, "estimated_calls": 1}}
            equal(balances(ledger), expected, "every way out of a call leaves nothing held")

    def test_closing_the_ledger_twice_is_no_error(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ledger.close()
            ledger.close()

    def test_a_failed_operation_does_not_use_up_its_id(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            fails("unknown_hold", "there is nothing to release", ledger.release, "a", NOW_MS)
            admitted(ledger.hold(make_hold("a", tokens=1), NOW_MS), "an id that was only asked for is not closed")


def _hold_and_release(ledger: Ledger, id: str, tokens: int) -> None:
    ledger.hold(make_hold(id, tokens=tokens), NOW_MS)
    ledger.release(id, NOW_MS)
