"""Resident memory on large inputs: a task of a million rows read, tokenised and trained; a 12 × 768 model's recording.

    python benchmarks/memory.py [--rows 1000000] [--formats csv parquet] [--steps 200]
    python benchmarks/memory.py --record 250 500 1000 [--width 768]

Each measurement is a process of its own. Prints, as JSON, for each stage the peak of the resident memory above that of the imports, in MB
(`peak`), and the part of it that is not pages of a mapped file, which the system may drop at any time (`own`), beside the bytes of the
file and of its tokens. A recording's figures are those of the whole process, imports and weights included; `quarters` are the peaks in each
quarter of its time: equal ones mean that memory does not grow with the sentences. Sentences are random words; weights are random.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from parts import said

MB = 1 << 20
WORDS = 12


class Watch:
    """The largest resident memory while a stage lasts, above that at the beginning, sampled every 10 ms."""

    def __init__(self) -> None:
        self.stages: dict[str, Any] = {}
        self.base = self._now()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        found: dict[
            int, tuple[int, int]
        ] = {}  # the peaks of each second: samples themselves would take memory
        over, clock = threading.Event(), time.monotonic()

        def look() -> None:
            second, now = int(time.monotonic() - clock), self._now()
            before = found.get(second, now)
            found[second] = (max(before[0], now[0]), max(before[1], now[1]))

        def sample() -> None:
            while not over.wait(0.01):
                look()

        thread = threading.Thread(target=sample, daemon=True)
        look()
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        look()
        seconds = time.monotonic() - clock
        quarters: list[list[int]] = []
        for i in (0, 1):  # with mapped files, without
            by_quarter = [
                max((row[i] for t, row in found.items() if q <= 4 * t / seconds < q + 1), default=0)
                for q in range(4)
            ]
            quarters.append([(value - self.base[i]) // MB for value in by_quarter])
        self.stages[name] = {
            "peak_mb": max(quarters[0]),
            "own_mb": max(quarters[1]),
            "own_after_mb": (self._now()[1] - self.base[1]) // MB,
            "quarters_peak_mb": quarters[0],
            "quarters_own_mb": quarters[1],
            "seconds": round(seconds, 1),
        }

    @staticmethod
    def _now() -> tuple[int, int]:
        """(resident, resident without mapped files) bytes."""
        resident, shared = map(int, Path("/proc/self/statm").read_text().split()[1:3])
        page = os.sysconf("SC_PAGE_SIZE")
        return resident * page, (resident - shared) * page


def write_rows(path: Path, rows: int) -> None:
    """`rows` sentences of random words with one of three labels, written in pieces."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    dice = np.random.default_rng(0)
    words = np.array(
        [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("", "n", "t", "lo", "ri")]
    )
    writer = None
    for begin in range(0, rows, 100_000):
        size = min(100_000, rows - begin)
        texts = [" ".join(row) for row in words[dice.integers(0, len(words), (size, WORDS))]]
        part = pd.DataFrame(
            {"text": texts, "label": np.array(["low", "middle", "high"])[dice.integers(0, 3, size)]}
        )
        if path.suffix == ".csv":
            part.to_csv(path, mode="a", header=begin == 0, index=False)
        else:
            table = pa.Table.from_pandas(part)
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
    if writer is not None:
        writer.close()


def measure_task(path: Path, steps: int) -> dict[str, Any]:
    """Reading, tokenising and `steps` steps of training, one after another in this process."""
    import pyarrow  # noqa: F401
    import torch
    from transformers import AutoModel, AutoTokenizer, BertConfig

    from headwise.heads import default_model
    from headwise.models import MultiTaskModel
    from headwise.tasks import Task, encode
    from headwise.training import Train, TrainingRun

    tokenizer = AutoTokenizer.from_pretrained(default_model())
    torch.manual_seed(0)
    size: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    encoder = AutoModel.from_config(BertConfig(vocab_size=len(tokenizer), **size))
    tokenizer("warm")
    watch = Watch()
    with watch.stage("read"):
        task = Task("rows", path=path, fractions={"train": 0.98, "validation": 0.02})
        n = len(task.split("train"))
    with watch.stage("tokenise"):
        encoded = encode(task.split("train"), tokenizer, 32)
    with watch.stage("train"):

        class Enough(Exception):
            pass

        settings = Train(batch_size=64, max_length=32, epochs=1, quiet=True, device="cpu", log_every=10)
        run = TrainingRun(MultiTaskModel(encoder, tokenizer, [task]), [task], settings=settings)
        one = run._one

        def counted(step: Any) -> Any:
            if run.step == steps:
                raise Enough
            return one(step)

        run._one = counted  # type: ignore[method-assign]
        with suppress(Enough):
            run.train()
    arrays = (encoded.ids, encoded.types, encoded.starts, encoded.rows, encoded.examples.labels)
    tokens = sum(int(np.asarray(array).nbytes) for array in arrays if array is not None)
    return {
        "rows": n,
        "file_mb": path.stat().st_size // MB,
        "tokens_mb": tokens // MB,
        "stages": watch.stages,
    }


def measure_recording(sentences: int, width: int, folder: Path) -> dict[str, Any]:
    """A recording of heads and hidden states; the peak is that of the whole process, imports and weights included."""
    import torch
    from transformers import AutoModel, AutoTokenizer, BertConfig

    from headwise.heads import default_model
    from headwise.probing import Encoder
    from headwise.probing._recording import record
    from headwise.tasks import Examples

    tokenizer = AutoTokenizer.from_pretrained(default_model())
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": width, "intermediate_size": 4 * width}  # 12 layers of 12 heads
    model = AutoModel.from_config(BertConfig(vocab_size=len(tokenizer), **sizes)).eval()
    dice = np.random.default_rng(0)
    texts = [(" ".join(f"word{n % 97}" for n in dice.integers(0, 1000, 2)),) for _ in range(sentences)]
    encoder = Encoder.of(model, tokenizer)
    watch = Watch()
    before, watch.base = watch.base, (0, 0)
    with watch.stage("record"):
        record(
            encoder,
            Examples(texts, np.zeros(sentences, np.int64), "classes"),
            folder / "recording",
            max_length=8,
            quiet=True,
        )
    size = sum(file.stat().st_size for file in folder.rglob("*.npy"))
    weights = sum(tensor.nbytes for tensor in model.parameters())
    constant = {
        "weights_mb": weights // MB,
        "before_peak_mb": before[0] // MB,
        "before_own_mb": before[1] // MB,
    }
    return {"sentences": sentences, "recording_mb": size // MB, **constant, **watch.stages["record"]}


def in_own_process(*words: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--formats", nargs="*", default=["csv", "parquet"])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--record", type=int, nargs="*", default=[])
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    parser.add_argument("--sentences", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        print(json.dumps(measure_task(Path(given.task), given.steps)))
        return
    with tempfile.TemporaryDirectory() as place:
        if given.sentences:
            print(json.dumps(measure_recording(given.sentences, given.width, Path(place))))
            return
        report: dict[str, Any] = {}
        for sentences in given.record:
            one = in_own_process("--sentences", str(sentences), "--width", str(given.width))
            report.setdefault("recording", []).append(said(f"{sentences} sentences", one))
        for kind in given.formats if not given.record else []:
            path = Path(place) / f"rows.{kind}"
            write_rows(path, given.rows)
            report[kind] = said(kind, in_own_process("--task", str(path), "--steps", str(given.steps)))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
