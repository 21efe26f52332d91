"""Run a job of one side: ``python bench/peers SCRIPT JOB REQUEST``; REQUEST is the job's arguments as JSON.

``speed`` and ``perplexity`` print one line of JSON. ``first`` prints its first text as soon as it is there.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

# The scripts bear the names of the packages that they call, so their folder must not be where imports look.
sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
import peers  # noqa: E402, F401

del sys.path[0]


def main() -> None:
    script, job, request = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")  # what libraries say on stdout is no answer
    os.dup2(2, 1)
    found = getattr(import_module(f"peers.{script}"), job)(**json.loads(request))
    if job != "first":
        print(json.dumps(found), file=answers, flush=True)
        return
    for text in found:
        if text:
            print(text, end="", file=answers, flush=True)
            return


if __name__ == "__main__":
    main()
