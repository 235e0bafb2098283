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
from headwise.app import Server, Session
from headwise.heads import default_model
from headwise.models import MultiTaskModel
from headwise.tasks import grammar

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]


@pytest.fixture(scope="session")
def model() -> MultiTaskModel:
    from transformers import AutoTokenizer, BertConfig, BertModel

    torch.manual_seed(0)
    config = BertConfig(hidden_size=48, num_hidden_layers=4, num_attention_heads=6, intermediate_size=64, initializer_range=0.3)
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
