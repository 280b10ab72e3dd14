"""Recorded agent runs, replayed under bounds: is the session's figure the provider's figure?

    python examples/replay_recorded.py PATH [--limit N] [--json]

PATH is a folder with two files, one JSON object per line and run: ``text_subset.jsonl.gz`` (all messages, and the
usage that the provider reported for each reply) and ``runs.jsonl.gz`` (the steps of each run, without texts).

1. **Replayed.** Each run with texts goes through ``create_agent`` under ``BoundMiddleware``. The model answers with
   the recorded replies, tool calls and usage, the tools with the recorded results. What the session counted for
   each call must be what the record says, and its cost the list price of that usage; for Gemini that is also what
   the router charged. Runs without recorded usage are replayed without any: the session must call each of their
   calls an estimate.
2. **Stopped.** The same runs with half of that cost as their budget. The rule: call k is the last when its prompt,
   at the price of fresh input, and its reply cost more than the calls before it left (a hold counts on no cache
   discount). It is refused when not even its prompt and one token fit, else cut. With the prompts as the session
   estimated them, the agent must stop at exactly that call and in that way. With the prompts as recorded the call
   may be one off, since an estimate is one; the table says how often it is the same.
3. **Re-priced.** The library prices the steps of all runs anew. The result must be the list price, and what was
   charged at the time must be what a known fault of that charge makes of the same steps.

List prices, the reading of the records and the stops are written in the package beside this file a second time, on
purpose: nothing that is checked says what it is checked against.

Exit code 0: every check holds; 3: one does not; 2: the input is bad. The whole takes a minute.
"""

from __future__ import annotations

import sys

from replay_recorded.command import main  # the package beside this file

if __name__ == "__main__":
    sys.exit(main())
