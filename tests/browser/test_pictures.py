"""Pictures of both pages at both widths, with no text over other text; `make pictures` writes those that the docs show."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_app_page import answered

from headwise.app import Server, open_session
from headwise.report import write_report
from headwise.tasks import grammar

pytestmark = pytest.mark.browser
DEMO = os.environ.get("HEADWISE_DEMO")  # a folder of `headwise demo`: its results are pictured instead of a small random model's
PICTURES = os.environ.get("HEADWISE_PICTURES")  # where pictures are kept

# Pairs of words (elements with text of their own) whose boxes cover each other, in CSS pixels; hidden ones and parts of one another apart.
OVERLAPS = """() => {
  const words = [...document.querySelectorAll('body *')].flatMap(e => {
    const own = [...e.childNodes].filter(n => n.nodeType == 3 && n.textContent.trim());
    const slanted = /rotate\\((?!-?(90|0)[ ,)])/.test(e.getAttribute('transform') || '');  // its box says little
    if (!own.length || slanted || e.closest('script,style,option')) return [];
    if (!e.checkVisibility({checkOpacity: true, checkVisibilityCSS: true})) return [];
    return own.flatMap(n => { const r = document.createRange(); r.selectNode(n);
      return [...r.getClientRects()].filter(b => b.width > 1 && b.height > 1).map(b => ({e, b, t: n.textContent.trim()})); });
  });
  const found = [];
  for (let i = 0; i < words.length; i++) for (let j = i + 1; j < words.length; j++) {
    const [p, q] = [words[i], words[j]];
    if (p.e == q.e || p.e.contains(q.e) || q.e.contains(p.e)) continue;
    const w = Math.min(p.b.right, q.b.right) - Math.max(p.b.left, q.b.left);
    const h = Math.min(p.b.bottom, q.b.bottom) - Math.max(p.b.top, q.b.top);
    if (w > 3 && h > 0.5 * Math.min(p.b.height, q.b.height)) found.push([p.t, q.t, Math.round(w), Math.round(h)]);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def report(dissociation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = [Path(DEMO) / "dissociation", Path(DEMO) / "model"] if DEMO else [dissociation]
    title = "headwise demo (synthetic text)" if DEMO else "Small"
    return write_report(sources, tmp_path_factory.mktemp("report") / "report.html", title=title)


@pytest.fixture(scope="module")
def app(served: str) -> Iterator[str]:
    if not DEMO:
        yield served
        return
    tasks = grammar.tasks(["topic", "tense", "subject_number", "object_number", "sentiment"], size=800, shared_words=True)
    server = Server(open_session(Path(DEMO) / "model", tasks))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.url
    server.shutdown()


def keep(watched, name: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    width = watched.page.viewport_size["width"]
    file = (Path(PICTURES) if PICTURES and width > 1000 else tmp_path) / f"{name}.png"
    watched.page.screenshot(path=file)
    assert file.stat().st_size > 10_000  # an empty page is smaller


def test_a_picture_of_the_report(watched, report: Path, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = watched.page
    page.set_viewport_size({"width": page.viewport_size["width"], "height": 1250})
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    page.locator("[data-head]").nth(17).click()
    page.mouse.move(2, 2)  # the note about a head goes with the mouse
    page.evaluate("scrollTo(0, 0)")
    keep(watched, "report", tmp_path)
    found = page.evaluate(OVERLAPS)
    assert not found, found
    assert watched.fits()


def test_a_picture_of_the_app(watched, app: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = watched.page
    page.set_viewport_size({"width": page.viewport_size["width"], "height": 1000})
    page.goto(app)
    page.wait_for_selector("html[data-ready=yes]")
    page.fill("#text", "The nurses did not praise the tired surgeon.")
    answered(page)
    for head in ("1.2", "3.4"):
        page.locator(f'#grid td[data-head="{head}"]').click()
    answered(page)
    keep(watched, "app", tmp_path)
    found = page.evaluate(OVERLAPS)
    assert not found, found
    assert watched.fits()
