"""The rules of csrc/."""

from __future__ import annotations

import re
from pathlib import Path

from codebase.scan import code, includes
from codebase.tree import Complaints, Tree, cxx, lines_with

LAYERS = ["base", "text", "formats", "packed", "kernels", "nn", "model", "bind"]


def includes_go_one_way(tree: Tree) -> Complaints:
    for path, text in cxx(tree):
        layer = path.split("/")[1]
        if layer not in LAYERS:
            yield f"{path}: {layer} is no layer"
            continue
        for target in includes(text):
            if target[0] == "<":
                continue
            name = target.strip('"')
            if f"csrc/{name}" not in tree:
                yield f"{path}: {target} is not a path from csrc/"
            elif LAYERS.index(name.split("/")[0]) > LAYERS.index(layer):
                yield f"{path}: {layer} must not include {name}"


def no_architecture_in_csrc(tree: Tree) -> Complaints:
    table = re.search(r"^ARCHS\b.*", tree.get("pyrt/archs.py", ""), re.M | re.S)
    known = re.findall(r'^    "(\w+)":', table[0], re.M) if table else []
    families = ["llama", "gemma", "gpt2", "gpt_2", "qwen", "phi3", "mistral", "mixtral", "deepseek", "falcon"]
    names = "|".join(sorted({*known, *families}))
    pattern = rf"(?i)(?<![a-z])({names})(?![a-z]|\.cpp)"  # llama.cpp is a source that may be cited
    for path, text in cxx(tree):
        yield from lines_with(pattern, path, text)


def intrinsics_stay_in_simd(tree: Tree) -> Complaints:
    intrinsic = (
        r"\b_mm\d*_\w+|\b__m\d{3}\w*|__builtin_(?:ia32|neon|aarch64)\w*"
        r"|\bv[a-z0-9]+q?_(?:n_|lane_|laneq_|high_)?[fsup]\d+\b"
        r"|\w*mmintrin\.h|\w*intrin\.h|arm_\w+\.h|cpuid\.h|__(?:AVX|SSE|FMA|F16C|ARM_NEON|ARM_FEATURE)\w*"
    )
    for path, text in cxx(tree):
        if path.startswith(("csrc/kernels/simd/", "csrc/kernels/amx/")) or path == "csrc/base/cpu.cc":
            continue
        yield from lines_with(intrinsic, path, code(text, keep_strings=True))
        if path != "csrc/kernels/registry.cc":  # it picks the rows of isas.def that this machine can hold
            yield from lines_with(r"__(?:x86_64|aarch64|i386|arm)__", path, code(text))


def isa_objects_are_freestanding(tree: Tree) -> Complaints:
    allowed = {"<stdint.h>", "<stddef.h>", "<cstdint>", "<cstddef>", "<immintrin.h>", "<arm_neon.h>"}
    waiting = [path for path, _ in cxx(tree, "kernels/isa/", "kernels/simd/")]
    waiting += [path for path, _ in cxx(tree, "kernels/") if path.endswith(".inl.h")]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen or path not in tree:
            continue
        seen.add(path)
        for target in includes(tree[path]):
            if target[0] == '"':
                waiting.append("csrc/" + target.strip('"'))
            elif target not in allowed:
                yield f"{path}: {target} would put library code into an ISA object"
        yield from lines_with(r"\bstd::\w+", path, code(tree[path]))


def isa_rows_are_whole(tree: Tree) -> Complaints:
    rows = re.findall(r"^ISA\((\w+)", tree.get("csrc/kernels/isas.def", ""), re.M)
    cmake = tree.get("CMakeLists.txt", "")
    for isa in rows:
        for need in (f"csrc/kernels/isa/{isa}.cc", f"csrc/kernels/simd/{isa}.h"):
            if need not in tree:
                yield f"isas.def: {isa} lacks {need}"
        if not re.search(rf"^set\(PYRT_ISA_\w+?_{isa}\b", cmake, re.M):
            yield f"isas.def: {isa} has no flags in CMakeLists.txt"
    for path, text in cxx(tree, "kernels/isa/"):
        if Path(path).stem not in rows:
            yield f"{path} has no row in isas.def"
        if text.count("\n") > 40:
            yield f"{path}: a stub has 40 lines at most"


def format_rows_are_whole(tree: Tree) -> Complaints:
    for name in re.findall(r"^FORMAT\((\w+)", tree.get("csrc/formats/formats.def", ""), re.M):
        if f"csrc/formats/{name.lower()}.h" not in tree:
            yield f"formats.def: {name} lacks csrc/formats/{name.lower()}.h"


def threads_come_from_the_pool(tree: Tree) -> Complaints:
    pattern = (
        r"\bthread_local\b|std::j?thread\b|std::async\b|<thread>|<future>|pthread_create"
        r"|#\s*pragma\s+omp|omp\.h|cblas\w*"
    )
    for path, text in cxx(tree):
        if not path.startswith("csrc/base/thread_pool."):
            yield from lines_with(pattern, path, code(text, keep_strings=True))


def nothing_aborts(tree: Tree) -> Complaints:
    pattern = r"\b(?:assert|abort|exit|terminate|quick_exit)\s*\(|<cassert>"
    for path, text in cxx(tree):
        yield from lines_with(pattern, path, code(text))


def rows_instead_of_switches(tree: Tree) -> Complaints:
    for path, text in cxx(tree):
        yield from lines_with(r"\bswitch\s*\(", path, code(text))


def every_source_is_reachable(tree: Tree) -> Complaints:
    built = [f"csrc/{folder}" for folder in re.findall(r"csrc/(\w+)/\*\.cc", tree.get("CMakeLists.txt", ""))]
    sources = [path for path, _ in cxx(tree) if path.endswith(".cc")]
    for path in sources:
        if str(Path(path).parent) not in [*built, "csrc/kernels/isa"]:
            yield f"{path}: CMakeLists.txt does not build it"
    waiting, seen = sources, set()
    while waiting:
        path = waiting.pop()
        if path not in seen and path in tree:
            seen.add(path)
            waiting += ["csrc/" + target.strip('"') for target in includes(tree[path])]
    yield from (f"{path}: nothing includes it" for path, _ in cxx(tree) if path not in seen)
