"""pyrt: a minimal, exact and fast CPU runtime for language models.

    import pyrt
    pyrt.chat("Why is the sky blue?").text

Importing it loads nothing heavy: every public name comes from its module when it is first used.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from pyrt import _core as _core
    from pyrt._core import cpu as cpu
    from pyrt.bench import bench as bench
    from pyrt.errors import (
        Cancelled as Cancelled,
    )
    from pyrt.errors import (
        ContextLengthError as ContextLengthError,
    )
    from pyrt.errors import (
        DownloadError as DownloadError,
    )
    from pyrt.errors import (
        GrammarError as GrammarError,
    )
    from pyrt.errors import (
        MemoryLimitError as MemoryLimitError,
    )
    from pyrt.errors import (
        ModelFormatError as ModelFormatError,
    )
    from pyrt.errors import (
        ModelNotFoundError as ModelNotFoundError,
    )
    from pyrt.errors import (
        PyrtError as PyrtError,
    )
    from pyrt.errors import (
        TemplateError as TemplateError,
    )
    from pyrt.errors import (
        UnsupportedModelError as UnsupportedModelError,
    )
    from pyrt.loading import load as load
    from pyrt.model import Model as Model
    from pyrt.options import SamplingParams as SamplingParams
    from pyrt.results import Chunk as Chunk
    from pyrt.results import Completion as Completion
    from pyrt.shortcuts import (
        chat as chat,
    )
    from pyrt.shortcuts import (
        chat_stream as chat_stream,
    )
    from pyrt.shortcuts import (
        generate as generate,
    )
    from pyrt.shortcuts import (
        perplexity as perplexity,
    )
    from pyrt.shortcuts import (
        stream as stream,
    )
    from pyrt.shortcuts import (
        unload as unload,
    )
    from pyrt.tokenizer import load_tokenizer as load_tokenizer

_HOMES = {
    "_core": ["cpu"],
    "bench": ["bench"],
    "errors": [
        "Cancelled", "ContextLengthError", "DownloadError", "GrammarError", "MemoryLimitError",
        "ModelFormatError", "ModelNotFoundError", "PyrtError", "TemplateError", "UnsupportedModelError",
    ],
    "loading": ["load"],
    "model": ["Model"],
    "options": ["SamplingParams"],
    "results": ["Chunk", "Completion"],
    "shortcuts": ["chat", "chat_stream", "generate", "perplexity", "stream", "unload"],
    "tokenizer": ["load_tokenizer"],
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name == "_core":
        from pyrt import _locate

        return _locate.core(__path__, __version__)
    if name not in _HOME:
        raise AttributeError(f"module 'pyrt' has no attribute {name!r}")
    from importlib import import_module

    home = __getattr__("_core") if _HOME[name] == "_core" else import_module(f"pyrt.{_HOME[name]}")
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


class _Package(ModuleType):
    """Keeps `pyrt.generate` a function, though importing the submodule of that name would bind it here."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
