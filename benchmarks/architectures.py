"""Every architecture family of the installed transformers, built tiny and checked; writes docs/architectures.md.

    python benchmarks/architectures.py [--families bert,gpt2] [--jobs 2] [--timeout 90] [--out docs/architectures.md]

Each family is built in a worker process, so that one that hangs or crashes costs only itself. Prints a summary as JSON.
"""

from __future__ import annotations

import argparse
import json
import queue
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "heads"))
CHECKS = {
    "ones": "gates of one are bit-identical",
    "zeroed": "silencing heads equals zeroing their columns of W_O",
    "gradient": "gate gradients equal finite differences",
    "rows": "a row with gates of its own equals a run of its own",
    "trace": "after the block no trace is left",
    "removed": "the model without some heads equals the silenced one",
}
KINDS = {
    "text": "Text",
    "vision": "Vision",
    "speech": "Speech and audio",
    "several": "Several kinds of input",
    "other": "Other",
}


def examine(family: str) -> dict[str, Any]:
    """Builds one family and runs every check on it: what `docs/architectures.md` says about it."""
    import family_checks
    import zoo

    from headwise.heads._errors import UnsupportedModel
    from headwise.heads._find.discovery import find_sites

    try:
        model = zoo.build(family)
    except Exception as error:
        return {"status": "not built", "reason": _line(error)}
    row: dict[str, Any] = {"class": type(model).__name__, "kind": zoo.kind(model)}
    try:
        example = zoo.example(family, model)
        findings = find_sites(model, example)
        if not findings.sites and not findings.missed:
            return {**row, "status": "no attention"}
        row |= {"layers": len(findings.sites), "heads": sum(site.n_heads for site in findings.sites)}
        row["results"] = family_checks.check_family(model, example)
    except UnsupportedModel as error:
        cause = error.__cause__
        return {**row, "status": "no input" if cause else "unsupported", "reason": _line(cause or error)}
    except Exception as error:
        return {**row, "status": "unsupported", "reason": _line(error)}
    failed = [
        f"{CHECKS[name]}: {reason}" for name, reason in row["results"].items() if reason and name != "removed"
    ]
    return {**row, "status": "unsupported" if failed else "supported", "reason": "; ".join(failed)}


def _line(error: BaseException) -> str:
    said = re.sub(r" from '/[^']*'", "", " ".join(str(error).split()))  # no paths of this machine
    return said[:400] or type(error).__name__


class Worker:
    """A process that examines families one after the other; started again when one hangs or kills it."""

    def __init__(self, timeout: float) -> None:
        self.timeout, self.process = timeout, None

    def __call__(self, family: str) -> dict[str, Any]:
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        answer: queue.Queue[str] = queue.Queue()
        threading.Thread(
            target=lambda out: answer.put(out.readline()), args=(self.process.stdout,), daemon=True
        ).start()
        self.process.stdin.write(family + "\n")
        self.process.stdin.flush()
        try:
            line = answer.get(timeout=self.timeout)
        except queue.Empty:
            line = ""
        if line:
            return json.loads(line)
        died = self.process.poll() is not None
        self.process.kill()
        self.process.wait()
        self.process = None
        return {
            "status": "not built",
            "reason": "its process died" if died else f"it takes longer than {self.timeout:.0f} s",
        }

    def close(self) -> None:
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()


def work() -> None:
    """The worker's side: a family a line in, a JSON object a line out."""
    import warnings

    import torch
    import transformers

    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    answers, sys.stdout = sys.stdout, sys.stderr  # models may print
    for line in sys.stdin:
        answers.write(json.dumps(examine(line.strip())) + "\n")
        answers.flush()


def page(rows: dict[str, dict[str, Any]]) -> str:
    """The documentation page."""
    import torch
    import transformers

    count = summary(rows)
    lines = [
        "# Architectures",
        "",
        "Written by `make architectures`, which builds a tiny random model of every model type in transformers "
        f"{transformers.__version__} (torch {torch.__version__.split('+')[0]}) and checks on each that",
        "",
        *[
            f"- {what},"
            if name != "removed"
            else f"- {what} (column *remove*; whole groups for grouped queries)."
            for name, what in CHECKS.items()
        ],
        "",
        f"**{count['supported']}** model types are supported and verified ({', '.join(f'{n} {kind}' for kind, n in count['by_kind'].items())}); "
        f"heads can be removed from **{count['removable']}** of them.",
        "",
    ]
    for kind, title in KINDS.items():
        mine = {
            name: row
            for name, row in rows.items()
            if row.get("kind") == kind and row["status"] in ("supported", "unsupported")
        }
        if mine:
            lines += [
                f"## {title}",
                "",
                "| model type | class | layers | heads | gates | remove | why not |",
                "|---|---|--:|--:|:-:|:-:|---|",
            ]
            lines += [_row(name, row) for name, row in mine.items()] + [""]
    lines += ["## Not examined", "", "| model type | why |", "|---|---|"]
    said = {"no attention": "it has no softmax attention", "no input": "no small input is known for it: "}
    for name, row in rows.items():
        if row["status"] in ("not built", "no attention", "no input"):
            lines.append(f"| {name} | {_cell(said.get(row['status'], '') + row.get('reason', ''))} |")
    return "\n".join(lines) + "\n"


def _row(name: str, row: dict[str, Any]) -> str:
    good, why = row["status"] == "supported", row.get("results", {}).get("removed", "–")
    reason = row["reason"] or why
    cells = [
        name,
        f"`{row['class']}`",
        row.get("layers", ""),
        row.get("heads", ""),
        "✓" if good else "–",
        "–" if why or not good else "✓",
        _cell(reason),
    ]
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    return (text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")[:300]).replace(
        "[", "\\["
    )  # not a link


def summary(rows: dict[str, dict[str, Any]]) -> dict[str, Any]:
    good = {name: row for name, row in rows.items() if row["status"] == "supported"}
    kinds = [row["kind"] for row in good.values()]
    return {
        "examined": len(rows),
        "supported": len(good),
        "by_kind": {kind: kinds.count(kind) for kind in KINDS if kind in kinds},
        "removable": sum(not row["results"]["removed"] for row in good.values()),
        "status": {
            status: sum(row["status"] == status for row in rows.values())
            for status in {row["status"] for row in rows.values()}
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", default="", help="comma-separated model types (default: all)")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds a family may take")
    parser.add_argument(
        "--out", default="", help="page to write (default: docs/architectures.md if all families ran)"
    )
    parser.add_argument("--rows", default="", help="file to write every family's results to, as JSON")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return
    import zoo

    names = [name for name in options.families.split(",") if name] or zoo.families()
    rows: dict[str, dict[str, Any]] = {}
    workers = threading.local()
    started: list[Worker] = []

    def one(name: str) -> None:
        if not hasattr(workers, "mine"):
            workers.mine = Worker(options.timeout)
            started.append(workers.mine)
        rows[name] = workers.mine(name)
        print(f"{len(rows)}/{len(names)} {name}: {rows[name]['status']}", file=sys.stderr)

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, names))
    for worker in started:
        worker.close()
    rows = {name: rows[name] for name in names}
    out = options.out or ("" if options.families else str(HERE.parent / "docs" / "architectures.md"))
    if out:
        Path(out).write_text(page(rows), encoding="utf-8")
    if options.rows:
        Path(options.rows).write_text(json.dumps(rows, indent=1), encoding="utf-8")
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
