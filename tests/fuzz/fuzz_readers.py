"""Coverage-guided fuzzing of the readers with atheris, from sound small files on.

``python tests/fuzz/fuzz_readers.py SECONDS [libFuzzer options and corpus folders]`` ends with a traceback and
the file that caused it as soon as a reader raises anything but a PyrtError, hangs or takes much memory.
"""

import sys
import tempfile
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

with atheris.instrument_imports(include=["pyrt"]):
    from files import forge
    from fuzz.readers import accepts_gguf, accepts_safetensors, memory_file


def read(raw: bytes) -> None:
    accepts = accepts_gguf if raw[:4] == b"GGUF" else accepts_safetensors
    with memory_file(raw) as path:
        accepts(path)


def main() -> None:
    seconds, *options = sys.argv[1:] or ["60"]
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus")
        corpus.mkdir()
        (corpus / "gguf").write_bytes(forge.valid_gguf())
        (corpus / "safetensors").write_bytes(forge.valid_safetensors())
        limits = [f"-max_total_time={int(seconds)}", "-max_len=4096", "-timeout=10", "-rss_limit_mb=2048"]
        atheris.Setup([sys.argv[0], *limits, *options, str(corpus)], read)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
