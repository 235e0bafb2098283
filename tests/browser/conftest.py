"""A real Chromium, and the results the pages are made from: a dissociation of a small random model on synthetic text."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Page, sync_playwright

import headwise as hw
from headwise import grammar
from headwise.app import Server, Session
from headwise.heads import default_model
from headwise.models import MultiTaskModel

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def model() -> MultiTaskModel:
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=48,
        num_hidden_layers=4,
        num_attention_heads=6,
        intermediate_size=64,
        initializer_range=0.3,
    )
    tasks = grammar.tasks(["topic", "tense", "sentiment"], size=64)
    return MultiTaskModel(BertModel(config), AutoTokenizer.from_pretrained(default_model()), tasks).eval()


@pytest.fixture(scope="session")
def dissociation(model: MultiTaskModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tasks = grammar.tasks(["topic", "tense", "sentiment"], size=64)
    folder = tmp_path_factory.mktemp("results") / "<script>alert(1)<"
    found = hw.dissociate(model, tasks, fraction=0.3, random_draws=2)
    return found.save(folder)


@pytest.fixture(scope="session")
def served(model: MultiTaskModel) -> Iterator[str]:
    server = Server(Session(model, grammar.tasks(["topic", "tense"], size=64), "small <b>model</b>"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.url
    server.shutdown()


@pytest.fixture(scope="session")
def continuing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Session]]:
    """A small language model with a steering, served; its address, and its session."""
    import pandas as pd
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    from headwise.app import open_session
    from headwise.steering import Steering

    folder, tokenizer = tmp_path_factory.mktemp("language"), AutoTokenizer.from_pretrained(default_model())
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 16}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), initializer_range=0.3, **sizes))
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    vectors = {(1, 2): torch.randn(8), (2, 0): torch.randn(8)}
    table = pd.DataFrame(
        {"split": "test", "strength": [0.0, 2.0, 5.0], "effect": [0.0, 1.0, 2.0], "note": ""}
    )
    heads = pd.DataFrame({"layer": [1, 2], "head": [2, 0]})
    Steering(table, heads, vectors, 2.0, {"task": "mood", "target": "pleasant", "model": "small"}).save(
        folder / "steering"
    )
    session = open_session(folder / "model", (), folder / "steering")
    server = Server(session)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.url, session
    server.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "no Chromium on the PATH: `make test-browser` installs one"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield chromium
        chromium.close()


class Watched:
    """A page that remembers what went wrong and whom it asked."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.messages: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def fits(self) -> bool:
        """Whether nothing sticks out to the right."""
        return bool(self.page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.fixture(params=[1280, 390], ids=["desktop", "phone"])
def watched(browser: Any, request: pytest.FixtureRequest) -> Iterator[Watched]:
    page = browser.new_page(viewport={"width": request.param, "height": 900}, color_scheme="light")
    seen = Watched(page)
    yield seen
    page.close()
    assert not seen.messages, f"the page said: {seen.messages}"
