"""The app in a real browser: clicks and drags change what the model itself says."""

import json
import os
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import torch

from headwise.app import Server, Session
from headwise.heads import Heads, HeadSet
from headwise.models import open_model
from headwise.tasks import Task

pytestmark = pytest.mark.browser
TEXT = "The nurse did not praise the tired surgeons."


def pictured(watched, name: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """A picture of what is seen, in HEADWISE_PICTURES or beside the test."""
    width = watched.page.viewport_size["width"]
    watched.page.screenshot(path=Path(os.environ.get("HEADWISE_PICTURES", tmp_path)) / f"{name}-{width}.png")
    assert watched.fits()


def opened(watched, served: str):  # type: ignore[no-untyped-def]
    page = watched.page
    page.goto(served)
    page.wait_for_selector("html[data-ready=yes]")
    page.fill("#text", TEXT)
    answered(page)
    return page


def until(page, expression: str, seconds: float = 60) -> None:  # type: ignore[no-untyped-def]
    """Waits until a JavaScript expression is true; asked from outside, since the page's policy forbids evaluation within."""
    for _ in range(int(seconds * 20)):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"never became true: {expression}")


def answered(page) -> None:  # type: ignore[no-untyped-def]
    page.wait_for_timeout(400)  # typing is answered after a quarter of a second
    until(page, "document.documentElement.dataset.answered == asked")


def test_clicking_heads_shows_what_the_silenced_model_says(watched, served: str, model) -> None:  # type: ignore[no-untyped-def]
    page = opened(watched, served)
    assert page.locator("#name").inner_text() == "small <b>model</b>"
    for head in ("1.2", "3.4"):
        page.locator(f'#grid td[data-head="{head}"]').click()
    answered(page)
    assert page.locator("#count").inner_text() == "2"
    shown = page.locator('.answer[data-task="tense"] .line span:last-child').all_inner_texts()
    inputs = model.tokenizer(TEXT, return_tensors="pt")
    from headwise.tasks import Batch

    batch = Batch(dict(inputs), torch.tensor([-1]), torch.arange(1), torch.arange(1), "classes")
    with torch.no_grad(), Heads(model.encoder).silenced(HeadSet([(1, 2), (3, 4)])):
        expected = model("tense", batch).logits.softmax(-1)[0].tolist()
    assert [float(text.rstrip(" %")) for text in shown] == pytest.approx(
        [100 * p for p in expected], abs=0.06
    )
    assert page.locator("#attention tbody tr").count() == inputs["input_ids"].shape[1]
    page.locator('#grid td[data-head="1.2"]').click()
    answered(page)
    assert page.locator("#count").inner_text() == "1"
    assert watched.fits()
    assert all(url.startswith((served, "data:", "blob:")) for url in watched.requests)


def test_a_gate_can_be_dragged_and_a_lesion_kept_and_exported(watched, served: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = opened(watched, served)
    page.locator('#grid td[data-head="0.0"]').click()
    box = page.locator("#gate").bounding_box()
    page.mouse.move(box["x"] + 3, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=4)
    page.mouse.up()
    answered(page)
    assert 0.35 < float(page.locator("#gate-value").inner_text()) < 0.65
    page.locator('#grid td[data-head="2.1"]').click()
    page.fill("#set-name", "my lesion")
    page.click("#keep")
    assert "my lesion (2 heads)" in page.locator("#sets").inner_text()
    with page.expect_download() as download:
        page.click("#export")
    record = json.loads(Path(download.value.path()).read_text())
    assert record["heads"] == [[2, 1]]
    assert HeadSet.from_json(json.dumps(record["heads"])) == HeadSet([(2, 1)])
    page.click("#reset")
    answered(page)
    assert page.locator("#count").inner_text() == "0"
    page.locator("#sets button", has_text="use").click()
    answered(page)
    assert page.locator("#count").inner_text() == "2"


def test_top_heads_examples_and_evaluation(watched, served: str) -> None:  # type: ignore[no-untyped-def]
    page = opened(watched, served)
    page.fill("#percent", "30")
    page.click("#top")
    until(page, "gates.size === 7")  # floor(0.3 × 24)
    page.select_option("#evaluate-task", "tense")
    page.fill("#size", "16")
    page.click("#evaluate")
    until(page, "document.getElementById('result').textContent.includes('with this lesion')")
    assert "tense, accuracy on 16 examples" in page.locator("#result").inner_text()
    page.select_option("#task", "topic")
    until(page, "document.querySelectorAll('#examples button').length === 4")
    page.locator("#examples button").nth(2).click()
    answered(page)
    assert page.locator("#text").input_value() != TEXT


def test_every_head_shows_its_attention_at_a_glance(watched, served: str, model) -> None:  # type: ignore[no-untyped-def]
    page = opened(watched, served)
    until(page, "document.querySelectorAll('#grid canvas').length === 24")
    inputs = model.tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad(), Heads(model.encoder).recorded(attention=True) as tape:
        model.encoder(**inputs)
    expected = (255 * tape.attention[2][0, 3]).round().flatten().tolist()
    size = inputs["input_ids"].shape[1]
    until(page, f"document.querySelector('#grid canvas').width === {size}")
    drawn = page.evaluate(
        "[...document.querySelector('#grid td[data-head=\"2.3\"] canvas').getContext('2d')"
        f".getImageData(0, 0, {size}, {size}).data].filter((v, i) => i % 4 === 3)"
    )
    assert drawn == pytest.approx(expected, abs=1)
    assert page.locator("#grid thead th").all_inner_texts() == ["", *map(str, range(6))]
    page.locator("#maps").uncheck()
    assert page.locator("#grid canvas").count() == 0


def test_pair_tasks_ask_for_the_second_sentence() -> None:
    from transformers import AutoTokenizer, BertConfig, BertModel

    from headwise import grammar
    from headwise.app import Session
    from headwise.heads import default_model
    from headwise.models import MultiTaskModel

    tasks = grammar.tasks(["topic", "paraphrase"], size=64)
    config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    session = Session(
        MultiTaskModel(BertModel(config), AutoTokenizer.from_pretrained(default_model()), tasks), tasks
    )
    topic, paraphrase = session.predict("A sentence.", "", [])
    assert "classes" in topic
    assert paraphrase["note"] == "paraphrase compares two sentences: type the second one"
    assert "classes" in session.predict("A sentence.", "Another one.", [])[1]
    assert [task["pair"] for task in session.describe()["tasks"]] == [False, True]


def test_a_language_model_has_no_empty_menus(watched, continuing) -> None:  # type: ignore[no-untyped-def]
    page = watched.page
    page.goto(continuing[0])
    page.wait_for_selector("html[data-ready=yes]")
    assert [menu.get_attribute("id") for menu in page.locator("select").all() if menu.is_visible()] == [
        "mode"
    ]
    assert not page.locator("#second").is_visible()
    before = page.locator("#text").input_value()
    page.locator("#examples button").nth(1).click()
    answered(page)
    assert page.locator("#text").input_value() != before
    assert page.locator(".answer .line").count() >= 10


def percents(page) -> list[float]:  # type: ignore[no-untyped-def]
    """What the changed model says, as shown."""
    return [
        float(text.rstrip(" %")) for text in page.locator(".answer .line span:last-child").all_inner_texts()
    ]


def on_one_screen(watched: Any, url: str) -> Any:
    """The app's page, 800 pixels high, once it is ready."""
    page = watched.page
    page.set_viewport_size({"width": page.viewport_size["width"], "height": 800})
    page.goto(url)
    page.wait_for_selector("html[data-ready=yes]")
    return page


def test_a_language_model_is_patched_and_steered(watched, continuing, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    url, session = continuing
    page = on_one_screen(watched, url)
    assert page.locator("#strength-value").inner_text() == "2"  # the chosen one
    assert "steered by 2" in page.locator("#how").inner_text()
    text = page.locator("#text").input_value()
    assert percents(page) == pytest.approx(
        [100 * p for p in session.predict(text, "", [], strength=2)[0]["gated"]], abs=0.06
    )
    page.locator("#strength").fill("0")
    for head in ("1.2", "2.3"):
        page.locator(f'#grid td[data-head="{head}"]').click()
    page.select_option("#mode", "all")
    answered(page)
    source = page.locator("#second").input_value()
    assert source != text
    (expected,) = session.predict(
        text, "", [], {"heads": [[1, 2], [2, 3]], "source": source, "tokens": "all"}
    )
    assert percents(page) == pytest.approx([100 * p for p in expected["gated"]], abs=0.06)
    assert page.locator(".bars i.source").count() == len(expected["tokens"])
    assert page.locator("#how").inner_text() == "patched"
    if page.viewport_size["width"] > 1000:
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")  # one screen
    pictured(watched, "app-patch", tmp_path)
    page.fill("#second", "Much shorter.")
    until(page, "!document.getElementById('error').hidden")
    assert "make them equally long, or patch the last token only" in page.locator("#error").inner_text()
    assert "400" in watched.messages.pop()  # the browser's own word for a refusal


def test_an_evaluation_says_that_the_model_was_steered(watched, continuing) -> None:  # type: ignore[no-untyped-def]
    before = continuing[1]
    texts = ["The cat sat on the mat.", "The old man saw a dog and a cat."]
    task = Task(
        "text", data={"train": ["A dog sat."], "validation": texts}, kind="next-token", metric="perplexity"
    )
    model = open_model(before.model.encoder, [task], tokenizer=before.model.tokenizer)
    session = Session(model, [task], "small", before.steering)
    server = Server(session)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = on_one_screen(watched, server.url)
    page.click("#evaluate")
    until(page, "document.getElementById('result').textContent.includes('with')")
    found = session.job["result"]
    values = f"{found['intact']:.3f} intact, {found['gated']:.3f} with steering of strength 2"
    assert page.locator("#result").inner_text() == f"text, perplexity on 2 examples: {values}"
    assert abs(found["gated"] - found["intact"]) > 0.01
    page.locator('#grid td[data-head="1.1"]').click()
    page.click("#evaluate")
    until(
        page,
        "document.getElementById('result').textContent.endsWith('with this lesion and steering of strength 2')",
    )
    page.locator("#strength").fill("0")
    page.click("#evaluate")
    until(page, "document.getElementById('result').textContent.endsWith('with this lesion')")
    server.shutdown()


def test_a_long_text_shows_the_row_of_one_token(watched, continuing, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    url, session = continuing
    page = on_one_screen(watched, url)
    text = " ".join(
        f"The {word} cat sat on the mat number {i}." for i, word in enumerate(["old", "young", "grey"] * 40)
    )
    page.fill("#text", text)
    answered(page)
    page.locator('#grid td[data-head="2.1"]').click()
    until(page, "document.querySelectorAll('#rows span').length > 500")
    assert not page.locator("#attention").is_visible()
    page.locator('#rows [data-token="40"]').click()
    until(page, "document.querySelector('#rows .from').dataset.token === '40'")
    weights = session.attention(text, "", 2, 1, 40)["weights"][0]
    shown = page.evaluate("[...document.querySelectorAll('#rows span')].map(e => e.title)")
    assert [float(title.split(": ")[1].rstrip(" %")) for title in shown] == pytest.approx(
        [100 * w for w in weights], abs=0.06
    )
    assert page.locator("#attention-hint").inner_text().startswith("from token 40 of ")
    if page.viewport_size["width"] > 1000:
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")
    pictured(watched, "app-rows", tmp_path)


def test_strangers_and_nonsense_are_refused(served: str) -> None:
    def ask(path: str, body: bytes, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(
            served + path, data=body, headers={"Content-Type": "application/json", **headers}
        )
        try:
            with urllib.request.urlopen(request) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    assert ask("api/model", b"{}")[0] == 200
    assert ask("api/model", b"{}", Host="evil.example")[0] == 403
    assert ask("api/model", b"{}", Origin="http://evil.example")[0] == 403
    assert ask("api/nothing", b"{}")[0] == 404
    status, answer = ask("api/predict", b"{")
    assert status == 400
    assert "the request is not valid JSON" in answer
    for gates, said in (
        ([[9, 0, 0]], "layer is 9; it must be"),
        ([[0, 0, 2]], "between 0 and 1"),
        (["x"], "not [layer, head, value]"),
    ):
        status, text = ask("api/predict", json.dumps({"text": "a", "gates": gates}).encode())
        assert status == 400
        assert said in text
    assert "at most 2000" in ask("api/predict", json.dumps({"text": "a" * 3000}).encode())[1]
    assert ask("api/predict", b"{" + b" " * 300_000)[0] == 413
