"""The code base keeps its own rules (CONTRIBUTING.md, "Where code goes").

A rule is one row of RULES: a function from a tree of files to complaints, and small trees that it must
complain about, so that no rule can rot into one that never fails.
"""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from codebase import cxx_rules, python_rules
from codebase.scan import functions
from codebase.tree import ROOT, Complaints, Tree, read_tree

RULES: list[tuple[Callable[[Tree], Complaints], list[Tree]]] = [
    (cxx_rules.includes_go_one_way, [
        {"csrc/base/a.h": '#include "nn/b.h"\n', "csrc/nn/b.h": ""},
        {"csrc/base/a.h": '#include "b.h"\n', "csrc/base/b.h": ""},
        {"csrc/util/a.h": ""},
    ]),
    (cxx_rules.no_architecture_in_csrc, [
        {"csrc/nn/a.cc": "// for Gemma only\n"},
        {"csrc/nn/a.cc": "if (x) run_llama();\n"},
        {"pyrt/archs.py": 'ARCHS = {\n    "newnet": 1,\n}\n', "csrc/nn/a.cc": "bool newnet;\n"},
    ]),
    (cxx_rules.intrinsics_stay_in_simd, [
        {"csrc/nn/a.cc": "auto x = _mm256_setzero_ps();\n"},
        {"csrc/kernels/vec/a.inl.h": "auto x = vdotq_s32(a, b, c);\n"},
        {"csrc/nn/a.cc": "#ifdef __AVX2__\n#endif\n"},
        {"csrc/nn/a.cc": "#include <immintrin.h>\n"},
        {"csrc/nn/a.cc": "#ifdef __aarch64__\n#endif\n"},
    ]),
    (cxx_rules.isa_objects_are_freestanding, [
        {"csrc/kernels/isa/avx2.cc": "#include <vector>\n"},
        {"csrc/kernels/vec/a.inl.h": '#include "base/b.h"\n', "csrc/base/b.h": "#include <algorithm>\n"},
        {"csrc/kernels/simd/avx2.h": "int f() { return std::min(1, 2); }\n"},
    ]),
    (cxx_rules.isa_rows_are_whole, [
        {"csrc/kernels/isas.def": "ISA(new, x86, 0)\n"},
        {"csrc/kernels/isas.def": "", "csrc/kernels/isa/old.cc": ""},
    ]),
    (cxx_rules.format_rows_are_whole, [{"csrc/formats/formats.def": "FORMAT(Q9_0, 32, W9)\n"}]),
    (cxx_rules.threads_come_from_the_pool, [
        {"csrc/nn/a.cc": "thread_local int x;\n"},
        {"csrc/nn/a.cc": "#pragma omp parallel for\n"},
        {"csrc/nn/a.cc": "std::thread t;\n"},
    ]),
    (cxx_rules.nothing_aborts, [
        {"csrc/nn/a.cc": "void f(int n) { assert(n > 0); }\n"},
        {"csrc/nn/a.cc": "std::abort ();\n"},
    ]),
    (cxx_rules.rows_instead_of_switches, [{"csrc/nn/a.cc": "void f(int t) { switch (t) { default:; } }\n"}]),
    (cxx_rules.every_source_is_reachable, [
        {"CMakeLists.txt": "csrc/nn/*.cc", "csrc/nn/a.cc": "", "csrc/nn/lonely.h": ""},
        {"CMakeLists.txt": "csrc/nn/*.cc", "csrc/model/a.cc": ""},
    ]),
    (python_rules.python_imports_go_one_way, [
        {"pyrt/archs.py": "from pyrt.engine import Engine\n"},
        {"pyrt/archs.py": "def f():\n    from pyrt import cli\n"},
        {"pyrt/unplaced.py": ""},
        {"pyrt/archs.py": "import pyrt.gguf\n", "pyrt/gguf.py": "import pyrt.archs\n"},
    ]),
    (python_rules.architectures_are_data, [
        {"pyrt/weights.py": "if config.arch == 'llama': pass\n"},
        {"pyrt/weights.py": "x = 1 if arch in ('a', 'b') else 2\n"},
        {"pyrt/weights.py": "match c.arch:\n    case 'a': pass\n"},
    ]),
    (python_rules.reference_stands_alone, [{"tests/reference/a.py": "from pyrt.gguf import open_gguf\n"}]),
    (python_rules.sizes_stay_small, [
        {"csrc/nn/a.h": "\n" * 401},
        {"pyrt/kv.py": "def f():\n" + "    pass\n" * 60},
        {"csrc/nn/a.cc": "struct A {\n  int f() const {\n" + "    g();\n" * 60 + "  }\n};\n"},
        {"csrc/nn/a.cc": "A::A() : a_{0} {\n" + "  if (x) {\n  }\n" * 30 + "}\n"},
        {"csrc/model/forward.cc": "template <class T>\nvoid f(T x) {\n" + "  g();\n" * 120 + "}\n"},
    ]),
    (python_rules.versions_agree, [
        {"pyproject.toml": 'version = "1.0"\n', "pyrt/__init__.py": '__version__ = "1.1"\n'},
    ]),
]  # fmt: skip


CASES = [(rule, tree) for rule, trees in RULES for tree in trees]


@pytest.mark.parametrize("rule", [rule for rule, _ in RULES], ids=lambda rule: rule.__name__)
def test_the_code_keeps(rule: Callable[[Tree], Complaints]) -> None:
    complaints = list(rule(read_tree()))
    assert not complaints, "\n".join(complaints)


@pytest.mark.parametrize(("rule", "tree"), CASES, ids=[rule.__name__ for rule, _ in CASES])
def test_the_rule_can_fail(rule: Callable[[Tree], Complaints], tree: Tree) -> None:
    assert list(rule(tree))


SIZED = """\
namespace a {
enum class E { x, y };
const int k[] = {1, 2};
int n{3};
template <class T>
T f(T x) {
  auto g = [&](int y) {
    return y;
  };
  return g(x);
}
class C : public B {
 public:
  C(int v) : v_{v}, w_(v) { go(); }
  int get() const { return v_; }
  int v_ = 50'000;
};
// void h() {
void C::run(
    int x) noexcept {
  if (x) {
  }
}
}
"""


def test_sizes_of_functions_are_read_right() -> None:
    expected = [("f", 5, 7), ("C", 13, 2), ("get", 15, 1), ("C::run", 19, 5)]
    assert [tuple(function) for function in functions(SIZED)] == expected


def test_import_is_light() -> None:
    """`import pyrt` loads nothing that a program may never need, and not the compiled core either."""
    spec = importlib.util.find_spec("pyrt")
    assert spec is not None
    assert spec.origin is not None
    heavy = ["numpy", "tokenizers", "jinja2", "huggingface_hub", "rich", "torch", "pyrt._core"]
    program = f"import sys, pyrt; print([name for name in {heavy!r} if name in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(Path(spec.origin).parents[1])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=environment, check=True)
    assert done.stdout.strip() == "[]"


def test_stub_agrees_with_the_core() -> None:
    """_core.pyi names what the compiled module has, no more and no less, members of classes too."""
    core = pytest.importorskip("pyrt._core", reason="the compiled core is not there", exc_type=ImportError)
    stub = ast.parse((ROOT / "pyrt" / "_core.pyi").read_text("utf-8"))

    def told(body: list[ast.stmt]) -> set[str]:
        names = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for node in body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
        return {name for name in names if not name.startswith("_")}

    def there(thing: object) -> set[str]:
        return {name for name in vars(thing) if not name.startswith("_")}

    assert told(stub.body) == there(core)
    for node in stub.body:
        if isinstance(node, ast.ClassDef):
            assert told(node.body) == there(getattr(core, node.name)), node.name


def test_helpers_of_the_tests_hide_no_library() -> None:
    """What pytest puts on the path goes before what is installed: a `kernels` here hid transformers' own."""
    tests = ROOT / "tests"
    packages = {path.parent for path in tests.rglob("__init__.py")}
    ours = {package.name for package in packages}
    ours |= {path.stem for path in tests.rglob("*.py") if path.parent not in packages}
    assert sorted(ours & set(importlib.metadata.packages_distributions())) == []
