"""The quality report, and the corpus that shows where it is blind."""

import json

import pytest

from bound_middleware.core.errors import SpecError
from bound_middleware.decision import AcceptanceCheck, BoundPlan, assess_contract, assess_step, load_contract_corpus
from bound_middleware.decision.corpus import read_corpus
from bound_middleware.decision.quality import (
    BLIND_SPOTS,
    OBSERVABLE_WORDS,
    ContractQualityExperimentSummary,
    run_contract_quality_experiment,
    summarize_contract_quality_experiment,
)

from .vectors import step

KINDS = {
    "all-optional": [],
    "budget-of-nothing": [],
    "hollow-words": ["vague", "no_observable"],
    "measurable-and-vague": ["vague"],
    "migration-in-three-steps": [],
    "no-observable-outcome": ["no_observable"],
    "one-honest-check": [],
    "oversized": ["oversized"],
    "perfect-about-the-wrong-subject": [],
    "risks-without-words": [],
    "trivially-met": [],
    "zero-budget": [],
}


def test_the_corpus_has_twelve_plans_and_says_what_each_shows():
    summary = run_contract_quality_experiment()
    assert {f.name: [w.kind for w in f.report.findings] for f in summary.findings} == KINDS
    assert all(len(finding.note) > 20 for finding in summary.findings)
    assert (summary.total_plans, summary.plans_with_warnings) == (12, 4)
    assert summary.aggregate_measurable_ratio == 32 / 37
    assert {f.name for f in summary.findings if f.report.has_budget} == {
        "migration-in-three-steps",
        "perfect-about-the-wrong-subject",
        "zero-budget",
    }
    assert ContractQualityExperimentSummary.model_validate_json(summary.model_dump_json()) == summary


def test_a_perfect_plan_about_the_wrong_subject_is_perfect_and_the_summary_says_why():
    plan = load_contract_corpus()["perfect-about-the-wrong-subject"]
    report = assess_contract(plan)
    assert (report.measurable_ratio, report.warnings, report.never_accepts) == (1.0, (), ())
    text = summarize_contract_quality_experiment(run_contract_quality_experiment())
    assert BLIND_SPOTS[0] in text
    assert text.startswith(
        "12 plans, 4 with warnings\nmeasurable checks: 0.865\n- all-optional: 1.00, 0 warnings; "
    )


def test_an_all_optional_plan_has_no_warning_and_is_said_to_accept_never():
    report = assess_contract(load_contract_corpus()["all-optional"])
    assert (report.measurable_ratio, report.warnings, report.never_accepts) == (1.0, (), ("publish",))


def test_a_warning_is_a_sentence_about_its_step():
    report = assess_contract(load_contract_corpus()["hollow-words"])
    assert report.warnings == (
        "step 'improve' has 3 vague checks",
        "step 'improve' has no check that names an observable outcome",
    )
    assert assess_step(step(checks=["tests"])).warnings == ()


def test_the_words_are_whole_words():
    assert len(OBSERVABLE_WORDS) == 82
    assert assess_step(step(checks=["trespass"])).measurable_ratio == 1.0  # its description says "pass"
    plan = {
        "id": "s",
        "description": "d",
        "goal": "g",
        "acceptance_checks": [{"id": "a", "description": "trespassing is bad"}],
    }
    assert assess_contract(BoundPlan(goal="g", steps=[plan])).measurable_ratio == 0.0


def test_a_corpus_of_ones_own_is_a_folder_or_a_file(tmp_path):
    plan = BoundPlan(goal="g", steps=[step()])
    (tmp_path / "mine.json").write_text(plan.model_dump_json())
    assert load_contract_corpus(tmp_path) == {"mine": plan}
    file = tmp_path / "all.json"
    file.write_text(json.dumps({"one": {"note": "why", "plan": plan.model_dump(mode="json")}}))
    assert load_contract_corpus(file) == {"one": plan}


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "cannot be read"), (b"{", "is no JSON"), (b"\xff", "is no JSON"), (b"[]", "holds no JSON object")],
)
def test_a_corpus_that_is_not_there_is_an_error_and_not_zero_plans(tmp_path, content, words):
    file = tmp_path / "corpus.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SpecError, match=words):
        load_contract_corpus(file)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match=r"no \*\.json in this folder"):
        load_contract_corpus(tmp_path / "empty")


def test_a_step_that_has_one_required_check_can_accept():
    mixed = step(
        checks=[
            AcceptanceCheck(id="tests", description="All tests pass"),
            AcceptanceCheck(id="lint", description="The linter passes", required=False),
        ]
    )
    advice = step(checks=[AcceptanceCheck(id="lint", description="The linter passes", required=False)])
    assert assess_step(mixed).never_accepts == ()
    assert assess_step(advice).never_accepts == (advice.id,)


def test_a_corpus_is_reported_in_the_order_of_its_names():
    corpus = read_corpus(None)
    backwards = dict(sorted(corpus.items(), reverse=True))
    summary = run_contract_quality_experiment(backwards)
    assert [finding.name for finding in summary.findings] == sorted(corpus)
    assert summary == run_contract_quality_experiment(corpus)
