"""The demo on seeds that its settings were not chosen on: D with its interval, verdicts of pairs and seconds, as JSON.

    python benchmarks/demo.py --seeds 0 1 2 3 4

Settings were chosen on seeds 100 to 104. `holds` is whether, for every seed, D's interval lies above zero and no pair is a wrong ranking.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from headwise.studies import _demo
from parts import said


def measured(seed: int, folder: Path) -> dict[str, Any]:
    """One demo in `folder`."""
    began, spent = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
    found = _demo.run_demo(folder, seed=seed, say=lambda text: None)
    dissociation = found["dissociation"]
    low, high = dissociation.analysis.d_interval()
    copying = found["copying"].summary.set_index("lesion").round(1) if found["copying"] else None
    return {
        "seed": seed,
        "d": round(100 * dissociation.d, 1),
        "d_interval": [round(100 * low, 1), round(100 * high, 1)],
        "scores": found["training"].table()["score"].round(1).to_dict(),
        "pairs": [
            {
                "pair": f"{row.A} – {row.B}",
                "d": round(row.D, 1),
                "interval": [round(row.D_low, 1), round(row.D_high, 1)],
                "verdict": row.verdict,
            }
            for row in dissociation.table("pairs").itertuples()
        ],
        "copying": None if copying is None else copying.to_dict("index"),
        "seconds": round(time.perf_counter() - began, 1),
        "user_seconds": round(resource.getrusage(resource.RUSAGE_SELF).ru_utime - spent, 1),
    }


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    given = parser.parse_args()
    found = []
    for seed in given.seeds:
        with tempfile.TemporaryDirectory() as folder:
            found.append(said(f"seed {seed}", measured(seed, Path(folder) / "demo")))
    verdicts = {pair["verdict"] for one in found for pair in one["pairs"]}
    holds = all(one["d_interval"][0] > 0 for one in found) and "wrong ranking" not in verdicts
    print(
        json.dumps(
            {"tasks": list(_demo.TASKS), "fraction": _demo.FRACTION, "holds": holds, "seeds": found}, indent=1
        )
    )


if __name__ == "__main__":
    main()
