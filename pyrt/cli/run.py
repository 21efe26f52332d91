"""``pyrt run``: one prompt, one answer."""

from __future__ import annotations

import argparse

from pyrt.cli.console import Bars, UsageError, read_text
from pyrt.cli.session import load, remark, sampling, say, without_template
from pyrt.errors import TemplateError


def run(args: argparse.Namespace) -> None:
    """Answer the prompt through the model's template, or continue it as it is with ``--raw``."""
    if args.raw and args.system is not None:
        raise UsageError("--system goes through the chat template, which --raw leaves out")
    fields = sampling(args)
    prompt = read_text(args.prompt, "prompt")
    with Bars() as bars, load(args, bars) as model:
        bars.close()
        if args.raw:
            stream = model.stream(prompt, on_progress=bars.stage("prompt"), **fields)
        else:
            system = [] if args.system is None else [{"role": "system", "content": args.system}]
            messages = [*system, {"role": "user", "content": prompt}]
            try:
                stream = model.chat_stream(messages, on_progress=bars.stage("prompt"), **fields)
            except TemplateError as error:
                raise without_template(model, error) from error
        remark(say(stream, bars), args.verbose)
