"""What a model takes: anonymous memory beside the mapped file, at its peak and after many loads."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from files.models import real_model

SLACK = 150_000_000  # the interpreter, its libraries, scratch

# The peak is looked for every millisecond or two, since the kernel keeps none for anonymous memory alone.
WATCH = """
import json, sys, threading, time
import pyrt
def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024
peak, done = anonymous(), threading.Event()
def watch():
    global peak
    while not done.wait(0.001):
        peak = max(peak, anonymous())
watcher = threading.Thread(target=watch)
watcher.start()
path = sys.argv[1]
"""
TOKENIZER = "before = anonymous(); kept = pyrt.load_tokenizer(path); found = {'grown': anonymous() - before}"
GENERATE = """
with pyrt.load(path, threads=2) as model:
    n = len(model.generate(list(range(1000, 1600)), max_tokens=40, ignore_eos=True).tokens)
    found = {"packed": model.info.packed_bytes, "kv": (600 + n) * model.info.kv_bytes_per_token}
"""
FILE = """
def mapped():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssFile")) * 1024
import pyrt.model, pyrt.tokenizer, tokenizers
pyrt.load_tokenizer(path)
before = mapped()
with pyrt.load(path) as model:
    found = {"file": mapped() - before, "packed": model.info.packed_bytes}
"""
LOADS = """
sizes = []
for _ in range(20):
    with pyrt.load(path, threads=2) as model:
        model.generate("The capital of France is", max_tokens=4)
    sizes.append(anonymous())
found = {"sizes": sizes}
"""
FINISH = "\ndone.set(); watcher.join(); print(json.dumps({**found, 'peak': peak}))"


def measure(name: str, what: str) -> dict[str, Any]:
    command = [sys.executable, "-c", WATCH + what + FINISH, str(real_model(name))]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("name", ["smollm2.gguf", "gemma3.gguf"])
def test_peak(name: str) -> None:
    """At most packed weights, cache in use, tokenizer and a constant; the mapped file is no part of it."""
    tokenizer = measure(name, TOKENIZER)["grown"]
    found = measure(name, GENERATE)
    assert found["peak"] > found["packed"]  # else this measures nothing
    assert found["peak"] <= found["packed"] + found["kv"] + tokenizer + SLACK


def test_the_file_does_not_stay_in_memory_beside_what_was_packed_from_it() -> None:
    found = measure("smollm2.gguf", FILE)
    assert found["file"] < found["packed"] / 10


def test_loads_and_closes_leak_nothing() -> None:
    """What the allocator keeps settles early; a lost model of 96 MB, or a tokenizer of 20, would show."""
    sizes = measure("smollm2.gguf", LOADS)["sizes"]
    assert max(sizes[10:]) <= max(sizes[:10]) + 10_000_000
    assert max(sizes) < 200_000_000
