"""``bound demo --model local``, in a process of its own."""

import json
import subprocess
import sys


def test_every_promise_of_the_demo_holds_with_the_real_model(local_model):
    command = [sys.executable, "-m", "bound_middleware.cli", "demo", "--model", "local", "--fast", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures["ok"]
    assert [len(act["promises"]) for act in figures["acts"]] == [4, 5, 4]
    for act in figures["acts"]:
        for count in act["counts"]:
            outcome = act["outcomes"].get(count["label"])
            if outcome is not None and not outcome["usage"]["estimated"]:
                assert outcome["usage"]["cost_nanousd"] == count["cost_nanousd"]
