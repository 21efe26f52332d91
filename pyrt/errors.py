"""The errors a caller of pyrt can meet; every one of them is a PyrtError."""

from __future__ import annotations


class PyrtError(Exception):
    """Base of all errors that pyrt raises on purpose."""


class ModelFormatError(PyrtError):
    """A model file is damaged, truncated or lies about itself; the message names file, field and reason."""


class UnsupportedModelError(PyrtError):
    """The file is sound, but pyrt lacks something it needs; the message names what is missing."""


class ContextLengthError(PyrtError):
    """A request does not fit into the context.

    Attributes: ``n_prompt`` tokens asked for, ``n_ctx`` tokens there are.
    """

    def __init__(self, n_prompt: int, n_ctx: int) -> None:
        super().__init__(f"the prompt has {n_prompt} tokens, but the context holds {n_ctx}")
        self.n_prompt = n_prompt
        self.n_ctx = n_ctx


class MemoryLimitError(PyrtError):
    """A request or a model does not fit into ``memory_limit``; the message shows the arithmetic."""


class TemplateError(PyrtError):
    """A chat template is missing, broken, hostile or refuses the messages."""


class GrammarError(PyrtError):
    """A structured-output constraint is invalid or unsatisfiable."""


class Cancelled(PyrtError):
    """The model was closed under the request, or the request stayed behind in the process that forked.

    A request that its caller cancels, or whose deadline passes, is no error: it ends with what there is and
    ``finish_reason="cancelled"``.
    """


class DownloadError(PyrtError):
    """A model could not be fetched whole and sound; nothing half-written is left behind."""


class ModelNotFoundError(PyrtError, FileNotFoundError):
    """Nothing is known under a name or path; also a FileNotFoundError, as befits a path."""
