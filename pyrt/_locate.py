"""Find the compiled core when Python was started inside a source folder that has none."""

from __future__ import annotations

import importlib
from types import ModuleType

HOW = "install it (`pip install .` in the clone, or `pip install pyrt-llm`), or start Python elsewhere"


def core(path: list[str], version: str) -> ModuleType:
    """Import pyrt._core; if it is not beside the sources, from the installed pyrt-llm of the same version.

    path: the package's __path__, extended by the installed folder. ImportError that says what to do
    otherwise.
    """
    try:
        return importlib.import_module("pyrt._core")
    except ModuleNotFoundError as error:
        if error.name != "pyrt._core":
            raise
    path.append(_installed(path[0], version))
    return importlib.import_module("pyrt._core")


def _installed(here: str, version: str) -> str:
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution("pyrt-llm")
    except PackageNotFoundError:
        raise ImportError(
            f"pyrt at {here} has no compiled core, and pyrt-llm is not installed: {HOW}"
        ) from None
    if found.version != version:
        raise ImportError(
            f"pyrt at {here} is version {version} without a compiled core, but the installed pyrt-llm is "
            f"{found.version}: {HOW}"
        )
    for file in found.files or []:
        if file.parent.name == "pyrt" and file.name.startswith("_core.") and file.suffix in (".so", ".pyd"):
            return str(found.locate_file(file.parent))
    raise ImportError(f"the installed pyrt-llm has no compiled core for this Python: {HOW}")
