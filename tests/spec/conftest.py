import pytest

#: A specification from a book on agents, with notes in parentheses and sentences that no tool is called like.
CODING_ASSISTANT = """\
agent: coding-assistant
bounds:
  iteration_limit: 30
  cost_budget:
    total_usd: 2.00
    per_tool_call_usd_max: 0.25
  time_budget:
    wall_clock_seconds: 180
    per_tool_call_seconds_max: 30
  action_surface:
    allowed:
      - read_file
      - write_file (sandboxed working dir only)
      - run_tests (sandboxed)
      - search_repo (read-only)
    forbidden:
      - any network egress
      - any process spawn outside sandbox
      - any write outside working dir
  data_access_scope:
    default_scope: per-session sandbox
    no_cross_session_memory_read: true
    no_external_index_read: true
  reversibility_envelope:
    reversible_by_default:
      - sandbox file writes
      - test runs
    requires_human_approval:
      - any commit to a real branch
      - any push to remote
      - any package install
"""

#: Every key that the form has.
EVERY_KEY = """\
version: 1
agent: everything
review_by: 2027-06-30
bounds:
  iteration_limit: {max: 30, unit: action, warn_at_share: 0.5}
  token_budget: {total: 200000, input_total: 150000, output_total: 50000, input_per_call_max: 60000,
                 output_per_call_max: 4096, warn_at_share: 0.9}
  cost_budget:
    total_usd: 2.00
    per_model_call_usd_max: $0.10
    per_tool_call_usd_max: 0.25
    tool_prices_usd: {web_search: 0.005}
    on_unknown_price: {input_usd_per_mtok: 3, output_usd_per_mtok: 15}
    on_unpriced_tool: refuse
    trusted_zero_models: [local-llama]
    warn_at_share: 0.75
  exposure: [{tool: refund, sum_of: amount, max: 500}]
  time_budget: {wall_clock_seconds: 180, per_model_call_seconds_max: 60, per_tool_call_seconds_max: .5,
                idle_seconds_max: 20, warn_at_share: 1}
  action_surface:
    allowed:
      - web_search
      - {tool: refund, note: small sums, max_calls: 3, price_usd: 0.01,
         args: {amount: {min: 0, max: 100.5}, currency: {one_of: [EUR, USD]}, path: path,
                text: {pattern: "[a-z]+", length_max: 80}}}
    forbidden: [shell, {entry: any network egress, enforced_by: [http_get]}]
    outputs: [answer]
    models: [gpt-5, claude-sonnet-4-5]
    concurrent_tools_max: 4
  data_access_scope:
    default_scope: the ticket at hand
    roots: [workspace]
    tenant: session
    user: ann
    store_namespaces: [memories/acme, [cache, acme]]
    metadata: {tenant: acme, level: [1, 2]}
    redact: ["sk-[a-z0-9]+"]
    cross_scope: [{to: handbook, reason: everyone reads it}]
    no_cross_session_memory_read: true
    no_external_index_read: true
  reversibility_envelope:
    reversible_by_default: [web_search]
    requires_human_approval: [refund]
    approval_ttl_seconds: 60
    unknown_tools: refuse
  stop:
    closing_call: true
    truncated_retries: 2
    consecutive_failures_max: 3
    no_progress: {identical_calls_max: 4, same_result_max: 5, cycle_window: 6, exempt_tools: [web_search]}
    attempts_per_call_max: 3
    tool_output_chars_max: 4000
    admission_wait_ms: 0
    warn_model: true
    raise_max: {iterations: 60, tokens: 400000, usd: 4, seconds: 600}
    strict_usage: true
  warn_at_share: 0.8
agents:
  researcher:
    iteration_limit: 5
    token_budget: {total: 1000}
    child_reserve: {iterations: 1, tokens: 100, usd: 0.05, seconds: 2}
    depth_max: 2
    spawns_max: 3
    concurrent_max: 4
    handoffs_max: 5
fleet:
  tenant: {cost_budget: {total_usd: 50, per: day}}
  user: {token_budget: [{total: 1000, per: minute}, {input_total: 90000, output_total: 9000, per: hour}]}
  agent: {iteration_limit: {max: 100, per: week}}
  all: {cost_budget: {total_usd: 500, per: month}}
decision: {acceptance_weight: 1.5, influence_weight: 0.5, risk_weight: 2, cost_weight: 1, threshold: 0.7,
           retry_margin: 0.2, rollback_risk_threshold: 0.9, max_retries: 3, max_replans: 2}
constraints:
  tests: {kind: command, command: [python, -m, pytest, -q], phases: [stop, ci]}
loops:
  repair: {phase: stop, interval_seconds: 1.5}
evaluators:
  judge: {type: openai, model: pinned}
settings: {max_auto_retries: 2}
"""


@pytest.fixture
def coding_assistant(tmp_path):
    path = tmp_path / "bound.yml"
    path.write_text(CODING_ASSISTANT)
    return path


@pytest.fixture
def every_key():
    return EVERY_KEY


@pytest.fixture
def write(tmp_path):
    """Writes a text to a file of the test's folder and returns its path."""

    def written(name, text):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return written
