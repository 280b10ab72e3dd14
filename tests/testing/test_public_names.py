"""`bound_middleware.testing` loads its names when they are used, and no framework for those that need none."""

import subprocess
import sys

import pytest

from bound_middleware import testing


def loaded_after(statement):
    code = f"import sys; {statement}; print(*sorted(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(run.stdout.split())


def test_the_clock_and_the_server_import_no_framework():
    loaded = loaded_after("from bound_middleware.testing import FakeClock, ProviderServer, Reply, token_text")
    assert not {name for name in loaded if name.partition(".")[0] in ("langchain_core", "pydantic", "tiktoken")}


def test_importing_the_package_alone_loads_none_of_its_parts():
    loaded = loaded_after("import bound_middleware.testing")
    assert not {name for name in loaded if name.startswith("bound_middleware.testing.")}


def test_every_name_but_the_ledger_suite_s_can_be_imported():
    for name in set(testing.__all__) - {"LedgerConformance"}:
        assert getattr(testing, name).__name__ == name
    assert set(testing.__all__) <= set(dir(testing))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="Missing"):
        _ = testing.Missing
