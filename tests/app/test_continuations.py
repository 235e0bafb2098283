"""Language models in the app: next-token probabilities under a lesion, a patch or steering, and rows of attention, against plain passes."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oddities
import pandas as pd
import pytest
import small
import torch
from typer.testing import CliRunner

from headwise.app import Server, Session, open_session
from headwise.app.session import MAPPED
from headwise.cli import app
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.models import open_model
from headwise.steering import Steering

TEXT, SOURCE = "w3 w4 , w5 w3 . w9", "w7 w4 , w8 w7 . w9"
HEADS = [(0, 1), (1, 2)]


def steering(strength: float = 2.0, dim: int = 8) -> Steering:
    generator = torch.Generator().manual_seed(1)
    vectors = {place: torch.randn(dim, generator=generator) for place in HEADS}
    table = pd.DataFrame(
        {"split": "test", "strength": [0.0, 2.0, 5.0], "effect": [0.0, 1.0, 2.0], "note": ""}
    )
    heads = pd.DataFrame([{"layer": layer, "head": head, "validation": 1.0} for layer, head in HEADS])
    return Steering(table, heads, vectors, strength, {"task": "weather", "target": "fine", "model": "small"})


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def session(request: pytest.FixtureRequest) -> Session:
    model = open_model(small.build(request.param), tokenizer=small.tokenizer())
    return Session(model, name="small", steering=steering())


def expected(session: Session, text: str, block: Any = None) -> torch.Tensor:
    """Probabilities of the next token, from a plain pass."""
    inputs = small.tokenizer()(text, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        if block is None:
            return session.model.encoder(**inputs).logits[0, -1].softmax(-1)
        with block:
            return session.model.encoder(**inputs).logits[0, -1].softmax(-1)


def checked(session: Session, answer: dict[str, Any], **rows: torch.Tensor) -> None:
    ids = small.tokenizer().convert_tokens_to_ids([token.strip() for token in answer["tokens"]])
    for name, p in rows.items():
        assert answer[name] == pytest.approx(p[ids].tolist(), abs=1e-5)
        count = 10 if name == "intact" else 3
        assert set(p.topk(count).indices.tolist()) <= set(ids)  # nothing likely is left out
    assert answer["intact"] == sorted(answer["intact"], reverse=True)


def test_next_tokens_under_a_lesion(session: Session) -> None:
    (answer,) = session.predict(TEXT, "", [[0, 1, 0], [1, 2, 0.5]])
    gates = torch.ones(session.heads.shape)
    gates[0, 1], gates[1, 2] = 0, 0.5
    checked(
        session,
        answer,
        intact=expected(session, TEXT),
        gated=expected(session, TEXT, session.heads.gated(gates)),
    )
    assert answer["length"] == 8
    assert "source" not in answer


@pytest.mark.parametrize(("tokens", "source"), [("all", SOURCE), ("last", SOURCE), ("last", "w7 w8")])
def test_next_tokens_under_a_patch(session: Session, tokens: str, source: str) -> None:
    (answer,) = session.predict(
        TEXT, "", [], {"heads": [list(place) for place in HEADS], "source": source, "tokens": tokens}
    )
    inputs = small.tokenizer()(source, return_tensors="pt", return_token_type_ids=False)
    patched = expected(session, TEXT, session.heads.patched(HeadSet(HEADS), dict(inputs), tokens))
    checked(session, answer, intact=expected(session, TEXT), source=expected(session, source), gated=patched)
    assert answer["gated"] != pytest.approx(answer["intact"], abs=1e-4)


def test_a_patch_of_all_heads_at_the_last_token_says_what_the_source_says() -> None:
    """An independent check: with every head of a one-layer model patched, and the same last token, nothing else is left to differ."""
    import transformers as t

    torch.manual_seed(0)
    config = t.GPT2Config(n_embd=32, n_layer=1, n_head=4, n_positions=64, vocab_size=50, **small.TOKENS)
    session = Session(open_model(t.GPT2LMHeadModel(config), tokenizer=small.tokenizer()))
    patch = {"heads": [[0, head] for head in range(4)], "source": SOURCE, "tokens": "last"}
    (answer,) = session.predict(TEXT, "", [], patch)
    assert answer["gated"] == pytest.approx(answer["source"], abs=1e-6)


def test_next_tokens_when_steered_and_lesioned_together(session: Session) -> None:
    from contextlib import ExitStack

    (answer,) = session.predict(TEXT, "", [[1, 0, 0]], strength=3)
    with ExitStack() as both:
        both.enter_context(session.heads.silenced(HeadSet([(1, 0)])))
        both.enter_context(session.heads.steered(steering().vectors, 3.0))
        changed = expected(session, TEXT)
    checked(session, answer, intact=expected(session, TEXT), gated=changed)
    assert session.describe()["steering"] == {
        "target": "fine",
        "strength": 2.0,
        "strongest": 5.0,
        "heads": [[0, 1], [1, 2]],
    }


LONG = " ".join(f"w{3 + (7 * i + i // 5) % 40}" for i in range(900))


def test_rows_of_attention_of_a_long_text() -> None:
    """Equal to those of eager attention; nothing quadratic is made, and no logits of the other tokens."""
    model = small.build("llama")
    session = Session(open_model(model, tokenizer=small.tokenizer()))
    inputs = small.tokenizer()(LONG, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad(), Heads(model).recorded(attention=True) as tape:
        model(**inputs)
    for query in (None, 0, 450):
        found = session.attention(LONG, "", 1, 2, query)
        number = 900 if query is None else query
        assert found["query"] == number
        assert found["weights"][0] == pytest.approx(tape.attention[1][0, 2, number].tolist(), abs=2e-6)
    assert "".join(found["tokens"]) == "<s>" + LONG  # the text itself, its blanks included
    assert session.predict(LONG, "", [])[0]["length"] == 901
    glance = session.attentions(LONG, "")
    assert glance["size"] == 32
    short = session.attention(TEXT, "", 1, 2)
    assert "query" not in short
    assert len(short["weights"]) == 8
    assert session.attention(TEXT, "", 1, 2, 3)["weights"][0] == pytest.approx(short["weights"][3], abs=1e-4)
    assert "query" in session.attention(
        " ".join(["w3"] * MAPPED), "", 0, 0
    )  # with <s> one more than a map has


def test_a_long_text_keeps_model_and_memory_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small.build("llama")
    session = Session(open_model(model, tokenizer=small.tokenizer()))
    shapes: list[tuple[int, ...]] = []
    model.lm_head.register_forward_hook(lambda module, args, output: shapes.append(tuple(output.shape)))
    session.attention(LONG, "", 0, 0)
    session.predict(LONG, "", [[0, 0, 0]])
    assert set(shapes) == {(1, 1, 50)}
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"patch": {"heads": [[0, 1]], "source": "w7 w8", "tokens": "all"}},
            "the text has 8 tokens and the source of the patch 3",
        ),
        ({"patch": {"heads": [[0, 1]], "source": "", "tokens": "all"}}, "type the source of the patch first"),
        ({"patch": {"heads": [], "source": SOURCE}}, "choose heads to patch first"),
        ({"patch": {"heads": [[0, 9]], "source": SOURCE}}, "head of layer 0 is 9; it must be"),
        ({"patch": {"heads": [[0, 1, 0]], "source": SOURCE}}, r"a list of \[layer, head\]"),
        (
            {"patch": {"heads": [[0, 1]], "source": SOURCE, "tokens": "first"}},
            'a patch reaches "all" tokens or the "last"',
        ),
        ({"patch": "all"}, "is not a patch"),
        ({"strength": 1000}, "strength is 1000; it must lie between 0 and 100"),
        ({"text": " ".join(["w3"] * 70)}, "the text has 71 tokens; from 1 to 64 are allowed"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_reason(asked: dict[str, Any], said: str) -> None:
    session = Session(open_model(small.build("gpt2"), tokenizer=small.tokenizer()), steering=steering())
    with pytest.raises(HeadwiseError, match=said):
        session.predict(asked.get("text", TEXT), "", [], asked.get("patch"), asked.get("strength", 0))
    with pytest.raises(HeadwiseError, match="query is 8; it must be a whole number from 0 to 7"):
        session.attention(TEXT, "", 0, 0, 8)
    session.steering = None
    with pytest.raises(HeadwiseError, match="start the app with --steer"):
        session.predict(TEXT, "", [], strength=1)


def test_wrong_values_are_refused_or_answered() -> None:
    """As those of the other calls: a HeadwiseError of one line, or an answer that is JSON."""
    session = Session(open_model(small.build("gpt2"), tokenizer=small.tokenizer()), steering=steering())
    patch = {"heads": [[0, 1]], "source": SOURCE, "tokens": "last"}
    answered, said = [], []
    for wrong in oddities.WRONG:
        for name in (*patch, "patch", "strength", "query"):
            try:
                if name == "query":
                    found: Any = session.attention(TEXT, "", 0, 0, wrong)
                else:
                    given = wrong if name == "patch" else {**patch, name: wrong}
                    found = session.predict(TEXT, "", [], given, wrong if name == "strength" else 0)
            except HeadwiseError as error:
                said.append(str(error))
            else:
                json.dumps(found, allow_nan=False)
                answered.append((name, wrong))
    assert not [line for line in said if "\n" in line or len(line) > 400]
    # null is no patch, and the last token; a word that the tokenizer does not know is no source
    assert answered == [("patch", None), ("query", None), ("strength", 3), ("query", 3)]


def test_steering_of_another_model_is_refused() -> None:
    model = open_model(small.build("gpt2"), tokenizer=small.tokenizer())
    with pytest.raises(HeadwiseError, match="expected \\(8,\\)"):
        Session(model, steering=steering(dim=4))
    masked = open_model(small.build("bert"), tokenizer=small.tokenizer())
    with pytest.raises(HeadwiseError, match="left-to-right language models"):
        Session(masked, steering=steering())
    with pytest.raises(HeadwiseError, match="left-to-right language models"):
        Session(masked).predict("w3 <pad>", "", [], strength=1)
    with pytest.raises(HeadwiseError, match="left-to-right language models"):
        Session(masked).attention("w3", "", 0, 0, 0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and a steering of it."""
    place = tmp_path_factory.mktemp("saved")
    small.build("gpt2").save_pretrained(place / "model")
    small.tokenizer().save_pretrained(place / "model")
    found = steering()
    found.settings["model"] = str(place / "model")
    found.save(place / "steering")
    return place / "model", place / "steering"


def test_a_steering_folder_opens_with_its_model(folders: tuple[Path, Path]) -> None:
    model, saved = folders
    answers = [
        open_session(*given).predict(TEXT, "", [], strength=2) for given in ((model, (), saved), (saved,))
    ]
    assert answers[0] == answers[1]
    with pytest.raises(HeadwiseError, match="start the app with --steer"):
        open_session(model).predict(TEXT, "", [], strength=2)
    open_model(model).save(saved.parent / "other")
    with pytest.raises(HeadwiseError, match="holds a TaskModel, not a result of `headwise steer`"):
        open_session(model, (), saved.parent / "other")


def test_the_command_takes_a_steering_folder(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Session] = []
    monkeypatch.setattr(Server, "__init__", lambda self, session, *rest: served.append(session))
    monkeypatch.setattr(Server, "url", "nowhere")
    monkeypatch.setattr(Server, "serve_forever", lambda self: None)
    monkeypatch.setattr(Server, "server_close", lambda self: None)
    found = CliRunner().invoke(app, ["app", str(folders[0]), "--steer", str(folders[1])])
    assert found.exit_code == 0, found.output
    assert served[0].steering is not None


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    server = Server(Session(open_model(small.build("gpt2"), tokenizer=small.tokenizer()), name="small"))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server.server_address[:2]  # type: ignore[misc]
    server.shutdown()
    server.server_close()


def test_the_calls_of_the_page(address: tuple[str, int]) -> None:
    import urllib.error
    import urllib.request

    def ask(path: str, given: dict[str, Any]) -> tuple[int, Any]:
        sent = urllib.request.Request(
            f"http://{address[0]}:{address[1]}/api/{path}", data=json.dumps(given).encode()
        )
        try:
            with urllib.request.urlopen(sent) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    patch = {"heads": [[0, 1]], "source": SOURCE, "tokens": "last"}
    status, answer = ask("predict", {"text": TEXT, "patch": patch})
    assert status == 200
    assert {"tokens", "intact", "source", "gated", "length"} <= set(answer[0])
    assert ask("attention", {"text": TEXT, "layer": 0, "head": 1, "query": 2})[1]["query"] == 2
    for given, said in (
        ({"text": TEXT, "patch": {**patch, "heads": 3}}, "a list of"),
        ({"text": TEXT, "patch": {**patch, "source": None}}, "type the source"),
        ({"text": TEXT, "patch": [1]}, "is not a patch"),
        ({"text": TEXT, "strength": "much"}, "it must lie between"),
        ({"text": TEXT, "strength": 1}, "--steer"),
    ):
        status, answer = ask("predict", given)
        assert (status, said in answer["error"]) == (400, True), answer
    assert ask("model", {})[1]["continues"] is True
