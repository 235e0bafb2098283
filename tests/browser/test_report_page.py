"""The report in a real browser: what it shows is what the run holds; nothing is fetched; text stays text."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from headwise.report import write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def report(dissociation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(
        [dissociation], tmp_path_factory.mktemp("report") / "report.html", title="A <i>title</i>"
    )


def test_the_page_shows_the_numbers_of_the_run(watched, report: Path, dissociation: Path) -> None:  # type: ignore[no-untyped-def]
    page = watched.page
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    assert page.locator("h1").inner_text() == "A <i>title</i>"
    assert "<script>alert(1)<" in page.locator("h2").nth(0).inner_text()
    table = pd.read_csv(dissociation / "performance.csv")
    shown = page.locator("section#section-1 table.data").first.locator("tbody tr").all_inner_texts()
    assert len(shown) == len(table)
    for text, row in zip(shown, table.itertuples(index=False), strict=True):
        cells = text.split("\t")
        assert cells[0] == row[0]
        assert [float(cell) if cell != "–" else None for cell in cells[1:]] == [
            None if pd.isna(v) else pytest.approx(v, abs=0.051) for v in row[1:]
        ]
    relative = pd.read_csv(dissociation / "relative.csv").set_index("lesion").to_numpy()
    shown = [
        float(text)
        for text in page.locator("figure svg").first.locator("text").all_text_contents()
        if re.fullmatch(r"[\d.]+", text)
    ]
    assert shown[: relative.size] == pytest.approx(relative[~np.isnan(relative)].tolist(), abs=0.051)
    assert watched.fits()
    assert all(url.startswith(("file:", "data:", "blob:")) for url in watched.requests)


def test_the_first_screen_is_the_finding_and_its_figure(watched, report: Path, dissociation: Path) -> None:  # type: ignore[no-untyped-def]
    page = watched.page
    page.set_viewport_size({"width": page.viewport_size["width"], "height": 800})
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    headline, table = page.locator(".headline").first, page.locator("table.heads").first
    assert "the dissociation score D is" in headline.inner_text().replace("\u00a0", " ")
    assert headline.bounding_box()["y"] < table.bounding_box()["y"] < 800 - table.bounding_box()["height"]
    lesions = page.locator(".map").first.locator(".effect").all_inner_texts()
    relative = pd.read_csv(dissociation / "relative.csv").set_index("lesion")
    task = page.locator(".map h4").first.inner_text()
    assert f"without its own heads: {relative.loc[f'{task}†', task]:.0f} %" in lesions[0]
    assert [head.strip() for head in table.locator("tfoot th").all_inner_texts()] == [
        "",
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
    ]


def test_wide_tables_scroll_inside_their_box_and_print_whole(browser, report: Path) -> None:  # type: ignore[no-untyped-def]
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    box = page.get_by_role("region", name="Every pair of tasks")
    assert box.evaluate("e => e.scrollWidth > e.clientWidth && getComputedStyle(e).overflowX === 'auto'")
    box.evaluate("e => { e.scrollLeft = 1000; }")
    first = box.locator("tbody tr").first.locator("td").first
    assert abs(first.bounding_box()["x"] - box.bounding_box()["x"]) < 2  # the names stay in sight
    page.emulate_media(media="print")
    assert box.evaluate("e => getComputedStyle(e).overflowX") == "visible"
    assert not page.locator("#theme").is_visible()
    page.close()


def test_heads_answer_to_mouse_and_keys(watched, report: Path, dissociation: Path) -> None:  # type: ignore[no-untyped-def]
    page = watched.page
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    with xr.open_dataset(dissociation / "scores.nc", engine="scipy") as data:
        scores = data["score"].load()
    task = str(scores["task"].values[0])
    rank = 1 + int((scores.sel(task=task) > scores.sel(task=task)[2, 5]).sum())
    cell = page.locator("table.heads").first.locator('td[data-head="2.5"]')
    cell.hover()
    assert page.locator("#tip").is_visible()
    assert f"{task}: rank {rank} of" in page.locator("#tip").inner_text()
    cell.click()
    profile = page.locator(".profile").first
    assert "Head 2.5" in profile.inner_text()
    assert f"rank {rank}" in profile.inner_text()
    page.locator("table.heads").first.locator('td[data-head="0.0"]').focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert "Head 1.1" in profile.inner_text()
    page.locator("select[id$=-scale]").first.select_option("rank")
    page.locator("#theme").click()
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_a_column_sorts_its_table(watched, report: Path, dissociation: Path) -> None:  # type: ignore[no-untyped-def]
    page = watched.page
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    region = page.get_by_role("region", name="Every pair of tasks")
    head = region.locator("th").filter(has_text=re.compile(r"^overlap$"))
    column = [text.strip() for text in region.locator("th").all_inner_texts()].index("overlap")
    table = pd.read_csv(dissociation / "pairs.csv")["overlap"]
    for order, rising in (("ascending", True), ("descending", False)):
        head.locator("button").press("Enter")
        assert head.get_attribute("aria-sort") == order
        shown = [float(row.split("\t")[column]) for row in region.locator("tbody tr").all_inner_texts()]
        assert shown == pytest.approx(
            table.sort_values(ascending=rising).tolist(), abs=0.051
        )  # three digits are shown


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_figures_can_be_read_on_either_page(browser, report: Path, theme: str) -> None:  # type: ignore[no-untyped-def]
    page = browser.new_page(color_scheme=theme)
    page.goto(report.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    paper = luminance(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    labels = "[...document.querySelectorAll('figure svg text')].filter(t => !t.style.fill).map(t => getComputedStyle(t).fill)"
    lines = "[...document.querySelectorAll('figure svg line, figure svg use')].map(t => getComputedStyle(t).stroke)"
    found = [
        colour for script in (labels, lines) for colour in page.evaluate(script) if colour.startswith("rgb")
    ]
    assert len(found) > 50
    for colour in set(found):
        low, high = sorted((luminance(colour), paper))
        assert (high + 0.05) / (low + 0.05) > 3, colour
    page.close()


def luminance(colour: str) -> float:
    """Of "rgb(r, g, b)", as the guidelines for contrast define it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_large_study_stays_small_and_quick(browser, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from headwise.report.html import render
    from headwise.sections import HeadMaps, Section

    values = xr.DataArray(
        np.random.default_rng(0).random((20, 24, 16)),
        dims=("task", "layer", "head"),
        coords={"task": [f"task {i}" for i in range(20)]},
    )
    maps = HeadMaps("big", "384 heads × 20 tasks", "importance", values)
    path = tmp_path / "big.html"
    path.write_text(render([Section("big", ["a finding"], [maps], "", {}, {}, "")], "big"), encoding="utf-8")
    assert path.stat().st_size < 300_000
    page = browser.new_page()
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-ready=yes]")
    assert page.locator("table.heads td[data-head]").count() == 20 * 384
    repaint = page.evaluate(
        "(() => { const t = performance.now(); paint(report.maps[0]); return performance.now() - t; })()"
    )
    assert repaint < 5000  # a broken loop, not a slow machine
    page.close()
