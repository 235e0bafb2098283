"""The evaluation of a validation sample in the app, against plain passes."""

import math
import time
from typing import Any

import pytest
import small
import torch
from test_continuations import SOURCE, TEXT, steering

import planted
from headwise.app import Session
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.models import open_model
from headwise.tasks import Task


def test_examples_are_judged_by_their_own_labels() -> None:
    """Batches are of texts of similar length; 64 texts of many lengths, each against its label."""
    tasks = planted.tasks()
    model = planted.model({"a": (0, 2), "b": (1, 1)}, tasks)
    session = Session(model, list(tasks.values()))
    session.evaluate("a", [[0, 2, 0]], 64)
    while session.job["running"]:
        time.sleep(0.01)
    right = {"intact": 0, "gated": 0}
    for texts, label in tasks["a"].split("validation"):
        inputs = model.tokenizer(texts[0], return_tensors="pt")
        for kind, gone in (("intact", HeadSet()), ("gated", HeadSet([(0, 2)]))):
            with torch.no_grad(), session.heads.silenced(gone):
                state = model.encoder(**inputs).last_hidden_state[:, 0]
                decoder = model.decoders["a"]
                right[kind] += int(decoder.out(torch.tanh(decoder.dense(state))).argmax()) == label
    assert right["intact"] == 64
    assert {kind: session.job["result"][kind] for kind in right} == {
        kind: pytest.approx(n / 64) for kind, n in right.items()
    }


def test_an_evaluation_is_of_the_lesioned_and_steered_model() -> None:
    """Against one plain pass per text."""
    texts = [TEXT, SOURCE, "w5 w6 w7", "w9 w8 , w3"]
    task = Task(
        "text", data={"train": ["w3 w4"], "validation": texts}, kind="next-token", metric="perplexity"
    )
    session = Session(
        open_model(small.build("llama"), [task], tokenizer=small.tokenizer()), [task], steering=steering()
    )

    def perplexity() -> float:
        nats = count = 0.0
        for text in texts:
            ids = torch.tensor([small.tokenizer()(text)["input_ids"]])
            with torch.no_grad():
                log_p = session.model.encoder(ids).logits[0, :-1].log_softmax(-1)
            real = ~torch.isin(ids[0, 1:], torch.tensor(small.tokenizer().all_special_ids))
            nats -= float(log_p.gather(1, ids[0, 1:, None])[:, 0][real].sum())
            count += int(real.sum())
        return math.exp(nats / count)

    def evaluated(*asked: Any) -> dict[str, Any]:
        session.evaluate("text", *asked)
        while session.job["running"]:
            time.sleep(0.01)
        assert not session.job["error"]
        found: dict[str, Any] = session.job["result"]
        return found

    intact = perplexity()
    with session.heads.steered(steering().vectors, 3.0):
        steered = perplexity()
        with session.heads.silenced(HeadSet([(1, 0)])):
            both = perplexity()
    assert len({round(value, 2) for value in (intact, steered, both)}) == 3
    said = {
        "task": "text",
        "metric": "perplexity",
        "share": False,
        "examples": 4,
        "intact": pytest.approx(intact, rel=1e-4),
    }
    changed = {"lesioned": 0, "strength": 3.0, "gated": pytest.approx(steered, rel=1e-4)}
    assert evaluated([], 4, 3) == said | changed
    changed = {"lesioned": 1, "strength": 3.0, "gated": pytest.approx(both, rel=1e-4)}
    assert evaluated([[1, 0, 0]], 4, 3) == said | changed
    assert evaluated([], 4) == said | {"lesioned": 0, "strength": 0, "gated": pytest.approx(intact, rel=1e-4)}
    session.steering = None
    with pytest.raises(HeadwiseError, match="start the app with --steer"):
        session.evaluate("text", [], 4, 3)
