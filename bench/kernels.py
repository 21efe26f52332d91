"""How fast each kernel is beside what this machine can do: calls through the C table, no binding in between.

``python bench/kernels.py [--isa NAME ...] [--kernel WORD] [--shape N,K ...] [--rows R ...]``.  One thread.
ISAs take turns within a round, and peaks are measured in the same rounds: a busy neighbour slows all alike.
Times are processor time, best of the rounds.  GB/s are bytes of packed weights; multiply and add count 2.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cffi
import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from raw_kernels import inputs  # noqa: E402
from raw_kernels.calls import block_bytes  # noqa: E402
from raw_kernels.ctable import ISAS, ffi, table  # noqa: E402
from raw_kernels.exact import Acts  # noqa: E402
from raw_kernels.memory import pointer  # noqa: E402
from raw_kernels.packing import LAYOUTS, pack  # noqa: E402
from reference.kernels import Keys  # noqa: E402

Call = Callable[[], Any]
FLOATS = {"gemm_f32": np.float32, "gemm_f16": np.float16, "gemm_bf16": np.uint16}
TILES = [f"tiles_{layout.name.lower()}" for layout in LAYOUTS]  # of "fast" prompts, where there are tiles
KEYS = {"f16": np.float16, "f32": np.float32, "int8": np.int8}
READ_BYTES = 256 << 20


class Peaks:
    """Operations and bytes a second of the loops in peaks.c; all unknown where they do not compile."""

    def __init__(self) -> None:
        self.best: dict[str, float] = {}
        self.folder = tempfile.TemporaryDirectory()
        library = Path(self.folder.name) / "peaks.so"
        source = ROOT / "bench/peaks.c"
        command = ["cc", "-O3", "-shared", "-fPIC", "-w", source, "-o", library]
        self.loops: Any = None
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            raw = cffi.FFI()
            names = [f"{kind}_{isa}" for kind, isa in self.known()]
            raw.cdef("".join(f"int64_t {name}(int64_t);" for name in names))
            raw.cdef("int64_t read_stream(uint8_t*, int64_t, int64_t);")
            self.loops = raw.dlopen(str(library))
            self.memory = np.ones(READ_BYTES, np.uint8)
            self.address = raw.cast("uint8_t*", self.memory.ctypes.data)

    @staticmethod
    def known() -> list[tuple[str, str]]:
        return [
            ("bf16", "amx"),
            ("int8", "amx"),
            ("int8", "avx512"),
            ("int8", "avxvnni"),
            ("int8", "avx2"),
            ("float", "avx512"),
            ("float", "avx2"),
        ]

    def measure(self, isas: list[str]) -> None:
        """One round of every loop that these ISAs need."""
        if self.loops is None:
            return
        for kind, isa in self.known():
            beside = {"avx2": "avxvnni", "avx512": "amx"}.get(isa) if kind == "float" else None
            if isa in isas or beside in isas:
                start = time.thread_time()
                done = getattr(self.loops, f"{kind}_{isa}")(1 << 20)
                self.keep(f"{kind}_{isa}", done / (time.thread_time() - start))
        for ahead in (0, 1024, 4096):
            start = time.thread_time()
            self.loops.read_stream(self.address, READ_BYTES // 4, ahead)
            self.keep("read", READ_BYTES / 4 / (time.thread_time() - start))

    def keep(self, name: str, rate: float) -> None:
        self.best[name] = max(rate, self.best.get(name, 0))

    def of(self, kind: str, isa: str) -> float | None:
        if kind == "float":
            isa = {"avxvnni": "avx2", "amx": "avx512"}.get(isa, isa)
        return self.best.get(f"{kind}_{isa}")


class Work:
    """One call to measure: what it is, its operations, and the bytes of weights or keys that it reads."""

    def __init__(self, name: str, isa: str, shape: str, call: Call, ops: int, read: int) -> None:
        self.name, self.isa, self.shape, self.call, self.ops, self.read = name, isa, shape, call, ops, read
        self.seconds = float("inf")

    def run(self) -> None:
        """Keeps the best time of calls that together take about 20 ms."""
        start = time.thread_time()
        self.call()
        once = time.thread_time() - start
        self.seconds = min(self.seconds, once)
        for _ in range(min(100, int(0.02 / once))):
            start = time.thread_time()
            self.call()
            self.seconds = min(self.seconds, time.thread_time() - start)

    def row(self, peaks: Peaks) -> dict[str, Any]:
        kind = "float" if self.name in FLOATS or self.name.startswith("attn") else "int8"
        kind = "bf16" if "tiles" in self.name else kind
        peak, read = peaks.of(kind, self.isa), peaks.best.get("read")
        ops, bytes_read = self.ops / self.seconds, self.read / self.seconds
        return {
            "kernel": self.name,
            "isa": self.isa,
            "shape": self.shape,
            "us": round(self.seconds * 1e6, 2),
            "GB/s": round(bytes_read / 1e9, 2),
            "of_read": round(bytes_read / read, 3) if read else None,
            "GOP/s": round(ops / 1e9, 1),
            "of_peak": round(ops / peak, 3) if peak else None,
        }


def repeated(panels: np.ndarray, count: int) -> np.ndarray:
    return np.ascontiguousarray(np.tile(panels, (-(-count // len(panels)), 1))[:count])


def gemm_work(name: str, isas: list[str], ahead: int, n: int, k: int, rows: int) -> list[Work]:
    """The same weights and activations for every ISA."""
    rng = inputs.generator("bench", name, n, k)
    layout = next((one for one in LAYOUTS if one.kernel == name), None)
    shape, x, out = f"{n}x{k} rows {rows}", inputs.normal(rng, rows, k), np.empty((rows, n), np.float32)
    works = []
    if layout:
        panels = repeated(pack(layout, inputs.weights(layout, 64, k, rng)), n // 16)
        sizes = [((rows, k), np.int8), *[((rows, k // 32), np.float32)] * 2]
        sizes += [((rows, k // 32), np.int32), ((rows, k // 16), np.int32)]
        acts = Acts(*(np.empty(size, dtype) for size, dtype in sizes))
        struct = ffi.new("pyrt_acts*", [k, rows, *map(pointer, acts)])
        table("scalar").quantize(pointer(x), k, k, rows, struct)
        head: tuple[Any, ...] = (struct, rows)
        kept: Any = acts
    else:
        values = inputs.normal(rng, 4, 16 * k)
        stored = (values.view(np.uint32) >> 16) if name == "gemm_bf16" else values
        panels = repeated(stored.astype(FLOATS[name]).view(np.uint8), n // 16)
        head, kept = (pointer(x), k, k, rows), None
    for isa in isas:
        kernel = getattr(table(isa), name)
        arguments = (pointer(panels), panels.shape[1], len(panels), ahead, *head, pointer(out), n)

        def call(
            kernel: Any = kernel, arguments: Any = arguments, _keep: Any = (panels, x, out, kept)
        ) -> None:
            kernel(*arguments)

        works.append(Work(name, isa, shape, call, 2 * n * k * rows, panels.nbytes))
    return works


def tiles_work(name: str, isas: list[str], n: int, k: int, rows: int) -> list[Work]:
    """Products by bf16 tiles, of the ISAs that have them."""
    rng = inputs.generator("bench", name, n, k)
    layout = next(one for one in LAYOUTS if name == f"tiles_{one.name.lower()}")
    x, out = inputs.normal(rng, rows, k), np.empty((rows, n), np.float32)
    tiles = np.empty((-(-rows // 16) * 16, k), np.uint16)
    works = []
    for isa in isas:
        kernels = table(isa)
        if not kernels.to_tiles:
            continue
        panels = repeated(pack(layout, inputs.weights(layout, 64, k, rng)), n // 16)
        kernels.to_tiles(pointer(x), k, k, 0, rows, pointer(tiles))
        given = (pointer(panels), panels.shape[1], len(panels), pointer(tiles), k, rows, pointer(out), n)

        def call(run: Any = getattr(kernels, name), given: Any = given, _keep: Any = (panels, x)) -> None:  # noqa: B008
            run(*given)

        works.append(Work(name, isa, f"{n}x{k} rows {rows}", call, 2 * n * k * rows, panels.nbytes))
    return works


def attention_work(name: str, isas: list[str], tokens: int, d: int, rows: int) -> list[Work]:
    """Rows that see all of a split."""
    rng = inputs.generator("bench", name)
    dtype = KEYS[name.split("_")[-1]]
    keys = Keys(*(inputs.normal(rng, tokens, d, scale=9).astype(dtype) for _ in range(2)))
    scales = (np.full(tokens, 0.01, np.float32),) * 2 if dtype == np.int8 else None
    pages = [block_bytes(keys, scales, b) for b in range(tokens // 32)]
    pointers = ffi.new("void*[]", [pointer(page) for page in pages])
    q, out = (
        inputs.normal(rng, rows, d, scale=0.1),
        [np.empty(s, np.float32) for s in (rows, rows, (rows, d))],
    )
    low, high = np.zeros(rows, np.int64), np.full(rows, tokens)
    fields = [rows, d, *map(pointer, (q, low, high)), 0, tokens // 32, pointers, *map(pointer, out)]
    struct = ffi.new("pyrt_attn*", fields)
    works = []
    for isa in isas:
        kernel = getattr(table(isa), name)
        if not kernel:  # no tiles
            continue

        def call(kernel: Any = kernel, _keep: Any = (pages, pointers, q, low, high, out)) -> None:
            kernel(struct)

        shape = f"{tokens} keys, d {d}, rows {rows}"
        works.append(Work(name, isa, shape, call, 4 * tokens * d * rows, sum(p.nbytes for p in pages)))
    return works


def vector_work(isas: list[str], n: int) -> list[Work]:
    """Kernels over one row; bytes are those of the input."""
    x, w, out = (inputs.normal(inputs.generator("bench", i), n) for i in range(3))
    acts = Acts(np.empty(n, np.int8), *(np.empty(n // 16, t) for t in ("f4", "f4", "i4", "i4")))
    struct = ffi.new("pyrt_acts*", [n, 1, *map(pointer, acts)])
    p, q, o = map(pointer, (x, w, out))
    calls: dict[str, Callable[[Any], Any]] = {
        "quantize": lambda t: t.quantize(p, n, n, 1, struct),
        "rms_norm": lambda t: t.rms_norm(p, q, 1e-5, n, o),
        "silu": lambda t: t.silu(p, q, n, o),
        "gelu_tanh": lambda t: t.gelu_tanh(p, q, n, o),
        "exp": lambda t: t.exp(p, n, o),
    }
    works = []
    for name, run in calls.items():
        for isa in isas:

            def call(run: Any = run, kernels: Any = table(isa), _keep: Any = (x, w, out, acts)) -> None:  # noqa: B008
                run(kernels)

            works.append(Work(name, isa, f"{n}", call, n, 4 * n))
    return works


def shown(rows: list[dict[str, Any]]) -> str:
    """A table; unknown is a dash."""
    lines = [list(rows[0])] + [["-" if v is None else str(v) for v in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in lines)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    usable = [isa for isa in ISAS if table(isa) is not None]
    fast = [isa for isa in usable if isa != "scalar"]
    parser.add_argument("--isa", nargs="+", choices=usable, default=fast or usable)
    parser.add_argument("--kernel", default="", help="only kernels whose name has this word")
    parser.add_argument("--shape", type=numbers, nargs="+", default=[(2048, 2048)], metavar="N,K")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 16, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ahead", type=int, default=0, help="bytes of weights to fetch ahead")
    parser.add_argument("--attention", nargs="+", type=numbers, metavar="KEYS,D,ROWS",
                        default=[(512, 128, 1), (512, 64, 3), (512, 128, 4), (512, 128, 64)])  # fmt: skip
    parser.add_argument("--json", action="store_true", help="rows as JSON, with the peaks")
    args = parser.parse_args()

    names = [name for name in [*(one.kernel for one in LAYOUTS), *FLOATS] if args.kernel in name]
    sizes = [(n, k, rows) for n, k in args.shape for rows in args.rows]
    groups = [gemm_work(name, args.isa, args.ahead, *size) for name in names for size in sizes]
    groups += [tiles_work(name, args.isa, *size) for name in TILES if args.kernel in name for size in sizes]
    attention = [f"attn_{tiles}{kind}" for tiles in ("", "tiles_") for kind in KEYS]
    attention = [name for name in attention if args.kernel in name]
    groups += [attention_work(name, args.isa, *size) for name in attention for size in args.attention]
    groups.append([work for work in vector_work(args.isa, 4096) if args.kernel in work.name])

    peaks = Peaks()
    for _ in range(args.rounds):
        for group in groups:
            peaks.measure(args.isa)
            for work in group:
                work.run()
    rows = [work.row(peaks) for group in groups for work in group]
    if args.json:
        print(json.dumps({"peaks": peaks.best, "rows": rows}, indent=1))
        return
    print(shown(rows) if rows else f"no kernel here has {args.kernel} in its name")
    print("\npeaks: " + ", ".join(f"{name} {rate / 1e9:.1f} G/s" for name, rate in peaks.best.items()))


if __name__ == "__main__":
    main()
