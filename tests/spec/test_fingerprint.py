"""One specification, one fingerprint."""

import json
import subprocess
import sys
from decimal import Decimal

import pytest

from bound_middleware.spec import BoundSpec

PAIRS = [
    # the same specification, written differently
    ("{bounds: {cost_budget: {total_usd: 1}}}", "{bounds: {cost_budget: {total_usd: 1.0}}}"),
    ("{bounds: {cost_budget: {total_usd: 0.50}}}", "{bounds: {cost_budget: {total_usd: $0.5}}}"),
    ("{bounds: {iteration_limit: 5}}", "{bounds: {iteration_limit: {max: 5.0, unit: model_call}}}"),
    ("{bounds: {time_budget: {wall_clock_seconds: 30}}}", "{bounds: {time_budget: {wall_clock_seconds: 3e1}}}"),
    ("{agent: a, review_by: 2027-01-01}", "{review_by: '2027-01-01', agent: a, version: 1}"),
    ("{bounds: {action_surface: {allowed: [a, b]}}}", "{bounds: {action_surface: {allowed: [b, {tool: a}]}}}"),
    (
        "{bounds: {action_surface: {allowed: [a (x)]}}}",
        "{bounds: {action_surface: {allowed: [{tool: a, note: x}]}}}",
    ),
    ("{bounds: {stop: {truncated_retries: 1}}}", "{}"),
    (
        "{bounds: {token_budget: {}, cost_budget: {on_unpriced_tool: free}}, decision: {threshold: 0.6}}",
        "{bounds: }",
    ),
    ("{constraints: {t: {threshold: {value: 85}}}}", "{constraints: {t: {threshold: {value: 85.0}}}}"),
    ("{bounds: {iteration_limit: null}}", "{}"),
    (
        "{fleet: {tenant: {cost_budget: {total_usd: 5, per: day}}}}",
        "{fleet: {tenant: {cost_budget: [{per: day, total_usd: 5.00}]}}}",
    ),
    (
        "{bounds: {data_access_scope: {store_namespaces: [m/a, n], metadata: {k: [2, 1]}}}}",
        "{bounds: {data_access_scope: {store_namespaces: [[n], [m, a]], metadata: {k: [1, 2]}}}}",
    ),
    (
        "{bounds: {exposure: [{tool: a, sum_of: n, max: 1}, {tool: b, sum_of: n, max: 2}]}}",
        "{bounds: {exposure: [{tool: b, sum_of: n, max: 2.0}, {max: 1, sum_of: n, tool: a}]}}",
    ),
]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_the_way_of_writing_does_not_matter(one, other):
    assert BoundSpec.parse(one).fingerprint == BoundSpec.parse(other).fingerprint


DIFFERENT = [
    "{}", "{agent: a}", "{bounds: {iteration_limit: 0}}", "{bounds: {iteration_limit: 1}}",
    "{bounds: {iteration_limit: {max: 1, unit: action}}}", "{bounds: {token_budget: {total: 1}}}",
    "{bounds: {token_budget: {input_total: 1}}}", "{bounds: {cost_budget: {total_usd: 1}}}",
    "{bounds: {cost_budget: {total_usd: 1.000000001}}}", "{bounds: {action_surface: {allowed: []}}}",
    "{bounds: {action_surface: {allowed: [a]}}}", "{bounds: {action_surface: {allowed: [a (note)]}}}",
    "{bounds: {action_surface: {forbidden: [a]}}}", "{bounds: {reversibility_envelope: {}}}",
    "{bounds: {data_access_scope: {}}}", "{bounds: {data_access_scope: {roots: []}}}", "{agents: {a: {}}}",
    "{agents: {a: {iteration_limit: 1}}}", "{agents: {a: {iteration_limit: null}}}", "{review_by: 2027-01-01}",
    "{constraints: {t: {value: 1}}}", "{constraints: {t: {value: true}}}", "{constraints: {t: {value: '1'}}}",
    "{bounds: {action_surface: {forbidden: [{entry: payments}]}}}",
    "{bounds: {action_surface: {forbidden: [payments]}}}",
]  # fmt: skip


def test_whatever_says_something_else_has_another_fingerprint():
    prints = {BoundSpec.parse(text).fingerprint: text for text in DIFFERENT}
    assert len(prints) == len(DIFFERENT)


@pytest.mark.parametrize("text", DIFFERENT)
def test_the_canonical_form_of_each_is_itself(text):
    spec = BoundSpec.parse(text)
    assert BoundSpec.from_dict(spec.canonical()) == spec


def test_a_fingerprint_is_the_digest_of_the_canonical_bytes():
    import hashlib

    spec = BoundSpec.parse("{agent: é, bounds: {iteration_limit: 2}}")
    assert spec.canonical_bytes() == b'{"agent":"\\u00e9","bounds":{"iteration_limit":2}}'
    assert spec.fingerprint == f"sha256:{hashlib.sha256(spec.canonical_bytes()).hexdigest()}"


def test_every_key_has_a_canonical_form_in_json(every_key):
    spec = BoundSpec.parse(every_key)
    data = json.loads(json.dumps(spec.canonical()))
    assert data == spec.canonical()
    assert BoundSpec.from_dict(data) == spec
    assert BoundSpec.from_dict(data).limits("researcher") == BoundSpec.from_dict(spec.canonical()).limits(
        "researcher"
    )
    assert data["bounds"]["cost_budget"]["total_usd"] == "2"


def test_the_fingerprint_is_the_same_in_another_process(every_key, write):
    path = write("bound.yml", every_key)
    program = (
        "import sys; from bound_middleware.spec import BoundSpec; print(BoundSpec.load(sys.argv[1]).fingerprint)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", program, str(path)],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert found == {BoundSpec.parse(every_key).fingerprint}


def test_the_fingerprint_of_a_given_specification_never_changes(coding_assistant):
    assert BoundSpec.load(coding_assistant).fingerprint == (
        "sha256:4fe9e6e625809871ed8378a66efb837df1d3fa691b6592561dce9ce6b6a3aeb7"
    )
    assert (
        BoundSpec(usd=Decimal("0.5")).fingerprint
        == "sha256:3d7c1eb1187e45a53f4eeabc160081f52b354480daece81464e70b698a2c0dde"
    )


def test_two_files_that_say_the_same_are_the_same_specification(write):
    one, other = write("a.yml", "agent: x"), write("b.json", '{"agent": "x"}')
    assert BoundSpec.load(one) == BoundSpec.load(other)
    assert BoundSpec.load(one).path != BoundSpec.load(other).path
