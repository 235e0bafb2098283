"""Verbs in a process of their own, which must not load what a result that is there does not need."""

import subprocess
import sys
from typing import Any


def shown_without_torch(*words: Any) -> str:
    """What a verb says in a process of its own, which must not load torch or what is as slow."""
    code = f"""
import sys
from headwise.cli import app
app({[*map(str, words)]!r}, standalone_mode=False)
print([name for name in ("torch", "transformers", "accelerate", "scipy.stats") if name in sys.modules])
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[-1] == "[]", said
    return said
