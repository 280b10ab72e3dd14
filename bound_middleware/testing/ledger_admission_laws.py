"""Laws of admission: what is held, where, and what a refusal leaves behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..core.ledger import Hold, Shortfall
from .ledger_checks import (
    NOW_MS,
    LedgerSuite,
    admitted,
    balances,
    booked,
    equal,
    fails,
    is_an_error,
    lines,
    make_hold,
    picture,
    refused,
)

#: The first integer that a float cannot hold.
BEYOND_FLOAT = 2**53 + 1


class AdmissionLaws(LedgerSuite):
    """Holds never exceed a ceiling, count in the account and all above it, and leave nothing when refused."""

    def test_an_exact_fit_is_admitted_and_one_more_is_not(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:
            admitted(ledger.hold(make_hold("a", tokens=4), NOW_MS), "4 of 10 fits")
            admitted(
                ledger.hold(make_hold("b", tokens=6), NOW_MS),
                "what is held plus what is asked may equal the ceiling",
            )
            refused(ledger.hold(make_hold("c", tokens=1), NOW_MS), "one above the ceiling is refused")
            ledger.settle("a", {"tokens": 3}, NOW_MS)
            refused(ledger.hold(make_hold("d", tokens=2), NOW_MS), "settled amounts count like held ones")
            admitted(ledger.hold(make_hold("e", tokens=1), NOW_MS), "what a settlement gave back can be held")

    def test_a_refusal_changes_nothing(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:
            ledger.open("child", ceilings={"tokens": 8}, parent_id="root")
            ledger.hold(make_hold("a", "child", tokens=7, nanousd=3), NOW_MS)
            before = picture(ledger, "root", "child")
            refused(ledger.hold(make_hold("b", "child", tokens=2), NOW_MS), "9 of 8 is refused")
            equal(
                picture(ledger, "root", "child"),
                before,
                "a refused hold leaves balances, holds and lines as they were",
            )
            fails("unknown_hold", "a refused hold does not exist", ledger.settle, "b", {}, NOW_MS)
            admitted(
                ledger.hold(make_hold("b", "child", tokens=1), NOW_MS),
                "the id of a refused hold can be tried again",
            )

    def test_a_hold_counts_in_its_account_and_in_every_account_above(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ledger.open("middle", ceilings={}, parent_id="root")
            ledger.open("leaf", ceilings={}, parent_id="middle")
            ledger.open("other", ceilings={}, parent_id="root")
            ledger.hold(make_hold("a", "leaf", tokens=5), NOW_MS)
            for account_id in ("leaf", "middle", "root"):
                equal(balances(ledger, account_id)["held"], {"tokens": 5}, f"a hold in leaf counts in {account_id}")
            equal(balances(ledger, "other")["held"], {}, "a hold counts in no other branch")
            ledger.settle("a", {"tokens": 4}, NOW_MS)
            for account_id in ("leaf", "middle", "root"):
                expected = {"held": {}, "settled": {"tokens": 4}}
                equal(balances(ledger, account_id), expected, f"a settlement in leaf counts in {account_id}")

    def test_a_hold_that_an_ancestor_refuses_counts_nowhere(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ledger.open("middle", ceilings={"tokens": 4}, parent_id="root")
            ledger.open("leaf", ceilings={"tokens": 100}, parent_id="middle")
            refused(ledger.hold(make_hold("a", "leaf", tokens=5), NOW_MS), "the middle account has room for 4")
            for account_id in ("leaf", "middle", "root"):
                equal(
                    balances(ledger, account_id)["held"],
                    {},
                    f"a refused hold counts nowhere, so not in {account_id}",
                )

    def test_the_shortfall_nearest_the_root_is_named_first(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=3) as ledger:
            ledger.open("child", ceilings={"tokens": 2}, parent_id="root")
            short = refused(ledger.hold(make_hold("a", "child", tokens=5), NOW_MS), "5 fits in neither account")
            equal(short.account_id, "root", "when parent and child are both short, the parent is named")
            short = refused(ledger.hold(make_hold("a", "child", tokens=3), NOW_MS), "3 does not fit in the child")
            equal(short.account_id, "child", "when the child alone is short, the child is named")

    def test_a_shortfall_carries_the_numbers_of_the_account_that_is_short(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:
            ledger.book("root", "spent", {"tokens": 3}, NOW_MS)
            ledger.hold(make_hold("a", tokens=4), NOW_MS)
            equal(
                ledger.hold(make_hold("b", tokens=5, nanousd=9), NOW_MS),
                Shortfall(meter="tokens", account_id="root", limit=10, settled=3, held=4, asked=5),
                "a Shortfall says limit, settled, held and asked",
            )

    def test_a_ceiling_of_zero_admits_nothing_that_touches_its_meter(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=0) as ledger:
            refused(
                ledger.hold(make_hold("a", tokens=1), NOW_MS), "a ceiling of 0 is a ceiling, not the lack of one"
            )
            refused(
                ledger.hold(make_hold("b", tokens=0), NOW_MS),
                "a ceiling of 0 refuses even a hold of 0 on its meter",
            )
            admitted(
                ledger.hold(make_hold("c", nanousd=1), NOW_MS), "a ceiling of 0 says nothing about other meters"
            )

    def test_a_meter_without_a_ceiling_is_not_bounded(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, nanousd=1) as ledger:
            admitted(ledger.hold(make_hold("a", tokens=10**15), NOW_MS), "no ceiling on a meter is no bound")
            equal(balances(ledger)["held"], {"tokens": 10**15}, "a meter without a ceiling is counted all the same")

    def test_two_children_stay_within_their_parent(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:
            for child in ("left", "right"):
                ledger.open(child, ceilings={"tokens": 8}, parent_id="root")
            admitted(ledger.hold(make_hold("a", "left", tokens=7), NOW_MS), "7 of 8 fits in the left child")
            short = refused(
                ledger.hold(make_hold("b", "right", tokens=4), NOW_MS), "7 + 4 is above the parent's 10"
            )
            equal(short.account_id, "root", "the children's sum is bounded by the parent")
            admitted(ledger.hold(make_hold("c", "right", tokens=3), NOW_MS), "7 + 3 is the parent's 10 exactly")

    def test_the_same_id_twice_is_the_same_hold(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:
            admitted(ledger.hold(make_hold("a", tokens=6, expires_ms=9_000), NOW_MS), "6 of 10 fits")
            before = picture(ledger)
            admitted(ledger.hold(make_hold("a", tokens=6), NOW_MS), "an open id is admitted: it is held already")
            admitted(
                ledger.hold(make_hold("a", tokens=99), NOW_MS), "an open id asks for nothing, whatever its amounts"
            )
            equal(picture(ledger), before, "an id that is open already is the same hold: nothing changes")

    def test_a_closed_id_is_refused(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            for id in ("settled", "released"):
                ledger.hold(make_hold(id, tokens=1), NOW_MS)
            ledger.hold(make_hold("expired", tokens=1, expires_ms=NOW_MS + 1), NOW_MS)
            ledger.settle("settled", {"tokens": 1}, NOW_MS)
            ledger.release("released", NOW_MS)
            ledger.book("root", "booked", {"tokens": 1}, NOW_MS)
            later_ms = NOW_MS + 1
            before = picture(ledger, now_ms=later_ms)
            for id in ("settled", "released", "expired", "booked"):
                again = make_hold(id, tokens=1)
                fails("hold_closed", f"an id that was {id} is not held again", ledger.hold, again, later_ms)
            equal(picture(ledger, now_ms=later_ms), before, "a closed id that is tried again changes nothing")

    def test_extending_a_hold_adds_under_the_same_rules(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:
            ledger.open("child", ceilings={}, parent_id="root")
            ledger.hold(make_hold("a", "child", tokens=4), NOW_MS)
            admitted(ledger.extend("a", {"tokens": 5, "nanousd": 2}, NOW_MS), "4 + 5 of 10 fits")
            before = picture(ledger, "root", "child")
            short = refused(ledger.extend("a", {"tokens": 2}, NOW_MS), "an extension is checked like a hold")
            equal(
                (short.account_id, short.asked),
                ("root", 2),
                "a refused extension names the account and what was asked",
            )
            equal(picture(ledger, "root", "child"), before, "a refused extension changes nothing")
            admitted(ledger.extend("a", {"tokens": 1}, NOW_MS), "an exact fit is admitted")
            ledger.release("a", NOW_MS)
            equal(balances(ledger)["held"], {}, "closing a hold gives its extensions back as well")

    def test_extending_moves_the_expiry_only_when_one_is_given(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ledger.hold(make_hold("a", tokens=1, expires_ms=NOW_MS + 10), NOW_MS)
            ledger.extend("a", {"tokens": 1}, NOW_MS)
            equal([h.expires_ms for h in ledger.holds("root")], [NOW_MS + 10], "no new expiry: the old one stays")
            ledger.extend("a", {}, NOW_MS + 9, expires_ms=NOW_MS + 30)
            equal([h.expires_ms for h in ledger.holds("root")], [NOW_MS + 30], "a new expiry replaces the old one")
            equal(
                balances(ledger, now_ms=NOW_MS + 29)["held"], {"tokens": 2}, "the hold lives until the new expiry"
            )
            equal(balances(ledger, now_ms=NOW_MS + 30)["held"], {}, "the hold expires at the new expiry")

    def test_extending_a_closed_or_unknown_hold_is_an_error(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ledger.hold(make_hold("a", tokens=1), NOW_MS)
            ledger.settle("a", {"tokens": 1}, NOW_MS)
            before = picture(ledger)
            fails("hold_closed", "a closed hold is not extended", ledger.extend, "a", {"tokens": 1}, NOW_MS)
            fails("unknown_hold", "an unknown hold is not extended", ledger.extend, "b", {"tokens": 1}, NOW_MS)
            equal(picture(ledger), before, "a failed extension changes nothing")

    def test_an_unknown_account_is_an_error_everywhere(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            rule = "an account that was never opened is an error"
            fails("unknown_account", f"open: {rule}", ledger.open, "child", ceilings={}, parent_id="nobody")
            fails("unknown_account", f"chain: {rule}", ledger.chain, "nobody", NOW_MS)
            fails("unknown_account", f"hold: {rule}", ledger.hold, make_hold("a", "nobody", tokens=1), NOW_MS)
            fails("unknown_account", f"book: {rule}", ledger.book, "nobody", "b", {"tokens": 1}, NOW_MS)
            fails("unknown_account", f"lines: {rule}", ledger.lines, "nobody")
            fails("unknown_account", f"holds: {rule}", ledger.holds, "nobody")
            fails("unknown_account", "open() below an unknown parent opens nothing", ledger.chain, "child", NOW_MS)
            admitted(ledger.hold(make_hold("a", tokens=1), NOW_MS), "the id of a failed hold was not used up")
            equal(ledger.book("root", "b", {}, NOW_MS).closed, True, "the id of a failed booking was not used up")

    def test_an_unknown_hold_is_an_error_everywhere(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            fails("unknown_hold", "nothing to settle under this id", ledger.settle, "a", {"tokens": 1}, NOW_MS)
            fails("unknown_hold", "nothing to release under this id", ledger.release, "a", NOW_MS)
            equal(balances(ledger), {"held": {}, "settled": {}}, "a failed settlement books nothing")

    def test_opening_again_keeps_balances_and_replaces_ceilings(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10, nanousd=5) as ledger:
            ledger.book("root", "spent", {"tokens": 6}, NOW_MS)
            ledger.hold(make_hold("a", tokens=1), NOW_MS)
            account = ledger.open("root", ceilings={"tokens": 8})
            equal(dict(account.ceilings), {"tokens": 8}, "open() gives the account with the new ceilings")
            expected = {"held": {"tokens": 1}, "settled": {"tokens": 6}}
            equal(balances(ledger), expected, "opening a known account keeps what was held and settled")
            refused(
                ledger.hold(make_hold("b", tokens=2), NOW_MS), "the new ceiling of 8 holds, 6 + 1 + 2 is above it"
            )
            admitted(ledger.hold(make_hold("c", nanousd=50), NOW_MS), "a ceiling that is not given again is gone")
            ledger.open("root", ceilings={"tokens": 3})
            short = refused(ledger.hold(make_hold("d", tokens=1), NOW_MS), "a ceiling below what was used refuses")
            equal((short.limit, short.settled), (3, 6), "a lowered ceiling does not touch what was settled")

    def test_a_hold_is_admitted_by_the_tighter_of_the_asker_and_the_account(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:
            ledger.open("child", ceilings={"nanousd": 9}, parent_id="root")
            asker = {"root": {"tokens": 6, "iterations": 1}, "child": {"nanousd": 50}, "elsewhere": {"tokens": 0}}
            ours = replace(make_hold("a", "child", tokens=4, iterations=1), ceilings=asker)
            admitted(ledger.hold(ours, NOW_MS), "4 is in the 10 of the account and in the 6 of the asker")
            for amounts, place, limit in (
                ({"tokens": 3}, "root", 6),
                ({"iterations": 1}, "root", 1),
                ({"nanousd": 10}, "child", 9),
            ):
                more = Hold(id="b", account_id="child", amounts=amounts, ceilings=asker)
                before = picture(ledger, "root", "child")
                for short in (ledger.hold(more, NOW_MS), ledger.extend("a", amounts, NOW_MS, ceilings=asker)):
                    found = refused(short, "the tighter of two ceilings admits, also one that the account lacks")
                    equal((found.account_id, found.limit), (place, limit), "the shortfall names it")
                equal(picture(ledger, "root", "child"), before, "and a refusal changes nothing")
            equal(dict(ledger.chain("root", NOW_MS)[-1].ceilings), {"tokens": 10}, "the account keeps its own")
            admitted(ledger.extend("a", {"tokens": 2}, NOW_MS, ceilings=asker), "an exact fit of the asker's")
            admitted(ledger.hold(make_hold("c", "child", tokens=4), NOW_MS), "others have all of the account")

    def test_another_parent_is_a_conflict(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ledger.open("other", ceilings={})
            ledger.open("child", ceilings={"tokens": 1}, parent_id="root")
            for parent_id in ("other", None):
                wrong = {"ceilings": {"tokens": 9}, "parent_id": parent_id}
                fails("conflict", "an account keeps its parent", ledger.open, "child", **wrong)
            equal(
                [(a.id, dict(a.ceilings)) for a in ledger.chain("child", NOW_MS)],
                [("root", {}), ("child", {"tokens": 1})],
                "a conflict leaves parent and ceilings as they were",
            )

    def test_amounts_that_are_no_whole_numbers_are_errors_and_change_nothing(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, tokens=10) as ledger:
            ledger.hold(make_hold("a", tokens=4), NOW_MS)
            before = picture(ledger)
            for value in (-1, 0.5, float("nan"), True, "3"):
                wrong: dict[str, int] = {"tokens": value}  # type: ignore[dict-item]
                says = f"an amount of {value!r} is an error"
                is_an_error(f"hold: {says}", ledger.hold, Hold(id="b", account_id="root", amounts=wrong), NOW_MS)
                is_an_error(f"extend: {says}", ledger.extend, "a", wrong, NOW_MS)
                is_an_error(f"settle: {says}", ledger.settle, "a", wrong, NOW_MS)
                is_an_error(f"book: {says}", ledger.book, "root", "c", wrong, NOW_MS)
                is_an_error(f"open: {says}", ledger.open, "root", ceilings=wrong)
            equal(picture(ledger), before, "an amount that is an error changes nothing")

    def test_integers_beyond_the_precision_of_a_float_are_exact(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path, nanousd=BEYOND_FLOAT) as ledger:
            refused(ledger.hold(make_hold("a", nanousd=BEYOND_FLOAT + 1), NOW_MS), "2**53 + 2 is above 2**53 + 1")
            admitted(ledger.hold(make_hold("b", nanousd=BEYOND_FLOAT), NOW_MS), "2**53 + 1 is an exact fit")
            equal(balances(ledger)["held"], {"nanousd": BEYOND_FLOAT}, "2**53 + 1 is held exactly")
            settlement = ledger.settle("b", {"nanousd": BEYOND_FLOAT + 2}, NOW_MS)
            equal(booked(settlement)[2], {"nanousd": 2}, "the overrun of a large amount is exact")
            equal(balances(ledger)["settled"], {"nanousd": BEYOND_FLOAT + 2}, "2**53 + 3 is settled exactly")
            equal([*lines(ledger).values()], [{"nanousd": BEYOND_FLOAT + 2}], "2**53 + 3 is in the line exactly")

    def test_any_text_is_an_id(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            texts = (
                "",
                "a'b\"c;--",
                "%_*?",
                "a\nb\tc",
                "nul\0nul",
                "ünï 🙂",
                "\ud800",
                "json:x",
                'json:"x"',
                "x" * 3_000,
            )
            for text in texts:
                ledger.open(f"account {text}", ceilings={"tokens": 1}, parent_id="root")
                admitted(
                    ledger.hold(make_hold(text, f"account {text}", tokens=1), NOW_MS), f"{text[:9]!r} is an id"
                )
            equal(sorted(h.id for h in ledger.holds("root")), sorted(texts), "ids come back as they were given")
            for text in texts:
                chain = [a.id for a in ledger.chain(f"account {text}", NOW_MS)]
                equal(chain, ["root", f"account {text}"], "ids of accounts come back as they were given")
                equal(
                    booked(ledger.settle(text, {"tokens": 1}, NOW_MS))[0],
                    True,
                    f"the hold {text[:9]!r} is found again",
                )
            equal(balances(ledger)["settled"], {"tokens": len(texts)}, "no two ids are taken for the same")

    def test_what_the_caller_does_with_its_dictionaries_later_changes_nothing(self, tmp_path: Path) -> None:
        with self.fresh(tmp_path) as ledger:
            ceilings, amounts, used = {"tokens": 10}, {"tokens": 4}, {"tokens": 3}
            ledger.open("child", ceilings=ceilings, parent_id="root")
            ledger.hold(Hold(id="b", account_id="child", amounts=amounts), NOW_MS)
            amounts["tokens"] = ceilings["tokens"] = 1_000
            equal(dict(ledger.chain("child", NOW_MS)[-1].ceilings), {"tokens": 10}, "ceilings are copied")
            ledger.settle("b", used, NOW_MS)
            used["tokens"] = 1_000
            equal(balances(ledger), {"held": {}, "settled": {"tokens": 3}}, "amounts are copied")
            equal([*lines(ledger).values()], [{"tokens": 3}], "amounts in lines are copied")
