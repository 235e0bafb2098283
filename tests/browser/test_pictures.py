"""Pictures of both pages at both widths, with no text over other text; `make pictures` writes those that the docs show."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_app_page import answered, until

from headwise import grammar
from headwise.app import Server, open_session
from headwise.report import write_report
from headwise.studies import _demo

pytestmark = pytest.mark.browser
DEMO = os.environ.get(
    "HEADWISE_DEMO"
)  # a folder of `headwise demo`: its results are pictured instead of a small random model's
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
    kept = [Path(DEMO) / name for name in ("copying", "dissociation", "model")] if DEMO else [dissociation]
    sources = [folder for folder in kept if folder.is_dir()]
    title = "headwise demo (synthetic text)" if DEMO else "Small"
    return write_report(sources, tmp_path_factory.mktemp("report") / "report.html", title=title)


@pytest.fixture(scope="module")
def app(served: str) -> Iterator[str]:
    if not DEMO:
        yield served
        return
    tasks = grammar.tasks(_demo.TASKS, size=_demo.SIZE, held_out=_demo.HELD_OUT, shared_words=True)
    server = Server(open_session(Path(DEMO) / "model", tasks))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.url
    server.shutdown()


THEMES = pytest.mark.parametrize("theme", ["light", "dark"])


def keep(watched, name: str, theme: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    width = watched.page.viewport_size["width"]
    shown = PICTURES and width > 1000 and theme == "light"
    file = Path(PICTURES) / f"{name}.png" if PICTURES and shown else tmp_path / f"{name}-{width}-{theme}.png"
    watched.page.screenshot(path=file)
    assert file.stat().st_size > 10_000  # an empty page is smaller
    found = watched.page.evaluate(OVERLAPS)
    assert not found, found
    assert watched.fits()


@THEMES
def test_a_picture_of_the_report(watched, report: Path, theme: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = watched.page
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": page.viewport_size["width"], "height": 900})
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    assert page.locator("html").get_attribute("data-theme") == theme
    keep(watched, "report", theme, tmp_path)


@THEMES
def test_a_picture_of_the_app(watched, app: str, theme: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    page = watched.page
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": page.viewport_size["width"], "height": 800})
    page.goto(app)
    page.wait_for_selector("html[data-ready=yes]")
    page.fill("#text", "The nurses praised the tired surgeon, but the hospital was awful.")
    answered(page)
    page.fill("#percent", "20")
    page.select_option("#top-task", "topic")
    page.click("#top")
    until(page, "document.querySelectorAll('#grid .off').length > 0")
    page.locator('#grid td[data-head="3.4"]').click()
    answered(page)
    if page.viewport_size["width"] > 1000:
        assert page.evaluate("document.documentElement.scrollHeight <= innerHeight")  # one screen
    keep(watched, "app", theme, tmp_path)
