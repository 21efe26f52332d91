"""The compiled core: packed weights, kernels, KV cache and the forward pass. Its C++ is in csrc/bind.

Arrays are taken as they are, C-contiguous and of the type told here: nothing is converted. Error, a
ValueError, names the argument that cannot be.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__version__: str

class Cancelled(Exception):
    """The step's flag was set or its deadline passed. K and V of its rows are undefined: run them again."""

class Error(ValueError):
    """An argument, a shape, a name or a size that cannot be."""

class NonFiniteError(FloatingPointError):
    """An activation, a scale or a logit is not finite; the message names the layer."""

def cpu() -> dict[str, Any]:
    """What this machine offers and what was chosen.

    isas: names that run here, best first. isa: the chosen one, or None and isa_problem says why.
    why: {isa: reason}. threads: the default, or None and threads_problem says why. affinity,
    physical_cores: counts. quota: CPUs that the cgroup grants, or None. model_name. l1d, l2, l3: bytes.
    """

def string_offsets(file: Any, start: int, count: int) -> tuple[NDArray[np.int64], int]:
    """Where each of ``count`` strings of GGUF from ``start`` on begins, and where the last ends.

    The end is -1 if they do not all lie within ``file``, which is anything with a buffer.
    """

def strings(file: Any, offsets: NDArray[np.int64]) -> list[str]:
    """The strings of GGUF that begin at these offsets of ``file``; UnicodeDecodeError if one is not UTF-8."""

def piece_merges(pieces: list[str]) -> list[tuple[str, str]]:
    """Rules (left, right) that make pieces, best first, as `pyrt.vocab.spm` tells."""

def listed_merges(pieces: list[str], rules: list[str]) -> list[tuple[str, str]]:
    """The rules, listed as "left right", as pairs of pieces.

    They end before the first that is no two pieces with a space between or that makes no piece.
    """

def read_bandwidth(megabytes: float, threads: int = 0, seconds: float = 0.3) -> float:
    """GB/s that ``threads`` threads read from a buffer of that size."""

class ModelBuilder:
    """Takes the tensors of a model one by one and packs them."""

    def __init__(self, knobs: Mapping[str, Any], threads: int = 1) -> None:
        """knobs: the rows of csrc/model/config.def, all of them and no other."""

    def add(self, name: str, format: str, rows: int, cols: int, data: NDArray[Any], store: str = "") -> None:
        """Packs one tensor. format: as GGUF spells it. store: "" as it is, or F32 F16 BF16 Q8_0 Q4_0."""

    def add_all(self, tensors: Sequence[tuple[str, str, int, int, NDArray[Any], str, bool]]) -> None:
        """Packs tensors given as for `add`, all while other Python threads run.

        The last of each tuple tells whether its data are a view into a read-only map of a file: its pages are
        dropped from this process's memory as they are used up.
        """

    def set_threads(self, threads: int) -> None:
        """How many threads pack from now on. This, cancel and done are for any thread while another adds."""

    def cancel(self) -> None:
        """What is being added ends in Cancelled."""

    @property
    def done(self) -> int:
        """Bytes of the data that are packed."""

    def build(self) -> Model:
        """The finished model; Error names a tensor that is missing."""

class Model:
    """Knobs and packed weights; immutable."""

    @property
    def knobs(self) -> dict[str, Any]: ...
    @property
    def packed_bytes(self) -> int: ...
    @property
    def tensors(self) -> list[tuple[str, str, int, int, int]]:
        """(name, layout, rows, cols, bytes) of each."""

    def row(self, name: str, row: int) -> NDArray[np.float32]:
        """A row of a matrix, decoded from its packed form, [cols]."""

class KvCache:
    """Pages of PAGE_TOKENS tokens of keys and values, in one group for each distinct window of the layers."""

    PAGE_TOKENS: Final[int]

    def __init__(self, model: Model, kv_dtype: str = "f16") -> None: ...
    @property
    def groups(self) -> list[dict[str, int]]:
        """{"window": 0 = full, "layers", "page_bytes"} of each."""

    def resize(self, group: int, n_pages: int) -> None:
        """Grows a group by zeroed pages; 0 frees it."""

    def n_pages(self, group: int) -> int: ...

class CancelFlag:
    """Ends the step that runs with it, from any thread."""

    def __init__(self) -> None: ...
    def set(self) -> None: ...
    def clear(self) -> None: ...
    def is_set(self) -> bool: ...

class StepResult:
    """Results of the rows that wanted logits, in order; their memory is their own."""

    @property
    def logits(self) -> NDArray[np.float32]:
        """[rows, n_vocab]"""

    @property
    def block_max(self) -> NDArray[np.float32]:
        """[rows, ceil(n_vocab / 256)]"""

    @property
    def logsumexp(self) -> NDArray[np.float64]:
        """[rows]"""

    @property
    def saturated(self) -> int:
        """Keys and values of this step that f16 could not hold."""

class Runner:
    """Runs steps of one model over one cache with threads of its own; one step at a time."""

    def __init__(
        self, model: Model, cache: KvCache, isa: str = "", threads: int = 0, fast: bool = False
    ) -> None:
        """isa: "" for the best (or PYRT_ISA); Error if it cannot run here. threads: 0 for the default.

        fast: prompt rows multiply by bf16 tiles, where the ISA has them; see ``numerics``.
        """

    @property
    def isa(self) -> str: ...
    @property
    def threads(self) -> int: ...
    @property
    def numerics(self) -> str: ...
    def step(
        self,
        tokens: NDArray[np.int32],
        positions: NDArray[np.int32],
        sequences: NDArray[np.int32],
        want: NDArray[np.uint8],
        tables: Sequence[NDArray[np.int32]],
        flag: CancelFlag | None = None,
        deadline: float | None = None,
        prompt_rows: int = 0,
    ) -> StepResult:
        """Runs rows (token, position, sequence), with logits for those that want them.

        tokens, positions, sequences, want: [rows]; those of one sequence stand together, positions ascending.
        tables: one [sequences, pages] for each group of the cache, -1 for no page. deadline: of
        time.monotonic(). prompt_rows: so many first rows are of prompts, the others were generated. Raises
        Cancelled, NonFiniteError, and whatever a signal handler raises.
        """

def exp(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """e^x, the same bits on every machine; 0 below -80."""

def log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Natural logarithm, the same bits on every machine."""

def top_k(
    logits: NDArray[np.float32], block_max: NDArray[np.float32], k: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """(ids, logits) of the k largest, largest first, ties by id."""

def above(
    logits: NDArray[np.float32], block_max: NDArray[np.float32], threshold: float
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """(ids, logits) of all that reach the threshold, largest first, ties by id."""

def refresh_block_max(
    logits: NDArray[np.float32], block_max: NDArray[np.float32], ids: NDArray[np.int32]
) -> None:
    """Recomputes, in place, the maxima of the blocks that hold these ids."""

def logsumexp(logits: NDArray[np.float32], scale: float = 1.0) -> float:
    """log of the sum of exp(scale * logit), per 256 and merged in order."""

def block_sums(logits: NDArray[np.float32], scale: float, shift: float) -> NDArray[np.float64]:
    """Sums of exp(scale * logit - shift), one for each block of 256."""

def rope_inv_freq(theta: float, dim: int) -> NDArray[np.float32]:
    """1 / theta^(2i / dim), [dim / 2]."""

def dequantize(format: str, data: NDArray[np.uint8], n: int) -> NDArray[np.float32]:
    """n values of a stored type."""
