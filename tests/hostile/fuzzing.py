"""What a fuzz test draws: sound files with bytes changed, cut and put in, and JSON values of any shape in the place of others."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

NASTY = [
    b"\xff",
    b"\0",
    "²".encode(),
    "٣".encode(),
    b"-1",
    b"9" * 5000,
    b"1e999",
    b"NaN",
    b"null",
    b"[[[",
    b"{",
    b'"',
    b"\\ud800",
    b"../",
    b"\t",
]
NASTY += [b"\n", b"\n\n", b"\r", b"(", b")", b"*", b"=", b"#", "\ufeff".encode(), b"[" * 2000, b"(S " * 2000, b"a." * 2000]
SCALARS = [
    None,
    True,
    False,
    0,
    1,
    -1,
    3,
    2**63,
    10**400,
    0.5,
    -0.0,
    1e308,
    float("inf"),
    float("nan"),
    "",
    "x",
    "²",
    "\ud800",
    "../x",
    "a\0b",
    "x" * 3000,
]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from(SCALARS) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw: Callable[..., Any], sample: bytes) -> bytes:
    """The sample with one to four places changed, or bytes of no origin."""
    if draw(st.integers(0, 19)) == 0:
        return bytes(draw(st.binary(max_size=60)))
    data = sample
    for _ in range(draw(st.integers(1, 4))):
        at, size = draw(st.integers(0, len(data))), draw(st.integers(0, 12))
        what = draw(st.sampled_from(("put in", "replace", "cut", "double", "end")))
        nasty = draw(st.sampled_from(NASTY) | st.binary(min_size=1, max_size=3))
        if what == "put in":
            data = data[:at] + nasty + data[at:]
        elif what == "replace":
            data = data[:at] + nasty + data[at + len(nasty) :]
        elif what == "cut":
            data = data[:at] + data[at + size :]
        elif what == "double":
            data = data[:at] + data[at : at + size] * 2 + data[at + size :]
        else:
            data = data[:at]
    return data


@st.composite
def changed(draw: Callable[..., Any], sample: Any) -> Any:
    """A JSON value with one to three of its inner values exchanged, dropped, or put under another key."""
    value = json.loads(json.dumps(sample))
    for _ in range(draw(st.integers(1, 3))):
        place, key = value, None
        parents = []
        while isinstance(place, dict | list) and place and draw(st.integers(0, 2)):
            key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
            parents.append((place, key))
            place = place[key]
        if not parents:
            continue
        parent, key = parents[-1]
        if isinstance(parent, dict) and draw(st.integers(0, 4)) == 0:
            del parent[key]
        else:
            parent[key] = draw(VALUES)
    return value
