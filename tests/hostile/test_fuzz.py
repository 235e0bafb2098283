"""Fuzzing: whatever a file or a request holds, reading it gives a result or a HeadwiseError, and nothing else.

`make test` draws the same few examples each time. HEADWISE_FUZZ_SECONDS=600 goes on for ten minutes in all, with new ones.
"""

import io
import json
import re
import shutil
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oddities
import pandas as pd
import pytest
import toy
from fuzzing import FILES, PROPBANK, ROWS, TASKS, VALUES, changed, drawn, mutated
from sample_study import GridRecipe, grid

import headwise as hw
from headwise import engine
from headwise.app import Server, Session
from headwise.app.server import calls
from headwise.engine._plan import PLAN_FILE
from headwise.engine._recipe import apply_overrides, apply_scale, read_recipe, read_recipe_file
from headwise.engine._schedule import INDEX
from headwise.engine._steps import resolve
from headwise.errors import HeadwiseError
from headwise.heads import HeadSet
from headwise.heads._remove.files import save_removed
from headwise.probing._senteval import read_file
from headwise.scoring._files import load_scores
from headwise.store import _manifest as manifest
from headwise.studies import STUDIES
from headwise.tasks import Task, structured
from headwise.tasks._names import read_toml as read_tasks
from headwise.tasks.readers import read_sentences

RECIPES = Path(__file__).parent.parent.parent / "recipes"


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def all_of(task: Task) -> None:
    for split in task.splits:
        assert task.split(split).fingerprint
    assert task.chance <= 1 or task.chance != task.chance


@pytest.mark.parametrize("kind", FILES)
def test_readers(kind: str, tmp_path: Path) -> None:
    name, sample = FILES[kind]
    path = tmp_path / name

    def check(content: bytes) -> None:
        path.write_bytes(content)
        if kind == "senteval":
            read_file(path)
        elif kind in ("conllu", "brackets", "columns", "ontonotes", "propbank"):
            sentences = read_sentences(path, skip_bad=True)
            for sentence in sentences:
                assert sentence.words
                str(sentence).encode()
            for layer in ("pos", "ner", "dep", "con", "srl"):
                try:
                    structured({"train": sentences, "validation": sentences}, (layer,))
                except HeadwiseError:
                    continue
        else:
            all_of(Task("t", path=path))

    drawn(mutated(sample), check, 25, 0.04)


def test_json_rows_and_annotated_sentences_of_any_values(tmp_path: Path) -> None:
    def rows(value: Any) -> None:
        (tmp_path / "a.json").write_text(json.dumps(value))
        all_of(Task("t", path=tmp_path / "a.json"))

    def sentences(value: Any) -> None:
        (tmp_path / "p.jsonl").write_text(json.dumps(value) + "\n")
        read_sentences(tmp_path / "p.jsonl")

    drawn(changed(ROWS), rows, 25, 0.04)
    drawn(changed(PROPBANK), sentences, 60, 0.03)


def test_parquet(tmp_path: Path) -> None:
    raw = io.BytesIO()
    pd.DataFrame(ROWS).to_parquet(raw)

    def check(content: bytes) -> None:
        (tmp_path / "a.parquet").write_bytes(content)
        all_of(Task("t", path=tmp_path / "a.parquet"))

    drawn(mutated(raw.getvalue()), check, 25, 0.03)


def test_task_settings_of_any_values(tmp_path: Path) -> None:
    from headwise.tasks._names import task_from_table

    (tmp_path / "a.csv").write_bytes(FILES["csv"][1])
    toml = b'[a]\npath = "a.csv"\ntext = "text"\nseed = 1\nfractions = {train = 0.5, validation = 0.5}\n[b]\ngrammar = "tense"\nsize = 64\n'

    def table(value: Any) -> None:
        for name, one in value.items() if isinstance(value, dict) else ():
            if isinstance(one, dict):
                all_of(task_from_table(name, one, tmp_path))

    def text(content: bytes) -> None:
        if re.search(
            rb"size.*\d{4}", content
        ):  # a grammar makes as many sentences as it is asked for, which takes its time
            return
        (tmp_path / "t.toml").write_bytes(content)
        for task in read_tasks(tmp_path / "t.toml"):
            all_of(task)

    drawn(changed(TASKS), table, 40, 0.05)
    drawn(mutated(toml), text, 25, 0.03)


@pytest.mark.parametrize(
    "recipe",
    [
        "training-small",
        "transfer-small",
        "probing-small",
        "stemcells-small",
        "similarity-small",
        "specialization-pairs",
    ],
)
def test_recipes(recipe: str, tmp_path: Path) -> None:
    sample = (RECIPES / f"{recipe}.toml").read_bytes()
    (tmp_path / "sound.toml").write_bytes(sample)
    sound = read_recipe_file(tmp_path / "sound.toml")

    def check(data: Any) -> None:
        apply_scale(data, None)
        kind = data.get("kind")
        if isinstance(kind, str) and kind in STUDIES:
            read_recipe(resolve(STUDIES[kind]).recipe, data, tmp_path)

    def text(content: bytes) -> None:
        (tmp_path / "r.toml").write_bytes(content)
        check(read_recipe_file(tmp_path / "r.toml"))

    drawn(mutated(sample), text, 10, 0.015)
    drawn(changed(sound), check, 15, 0.015)


def test_overrides() -> None:
    def check(given: bytes) -> None:
        data = {"training": {"epochs": 1}, "seeds": [1, 2], "title": "x"}
        apply_overrides(data, [given.decode("utf-8", "replace")])

    for sample in (b"training.epochs=3", b"seeds.1=[1, 2]", b"title.x.y=3"):
        drawn(mutated(sample), check, 20, 0.005)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder of each kind that can be saved without much work."""
    folder = tmp_path_factory.mktemp("saved")
    tasks = [toy.task("mood"), toy.task("animal")]
    model = toy.model(tasks)
    model.save(folder / "multi-task")
    save_removed(hw.Heads(toy.encoder()).remove(HeadSet([(0, 1)])), folder / "removed-heads")
    options: dict[str, Any] = {"random_draws": 1, "bootstrap": 199, "quiet": True}
    hw.dissociate(toy.model(tasks), tasks, **options).save(folder / "dissociation")
    hw.probe(toy.encoder(), [toy.task("mood")], tokenizer=toy.tokenizer(), quiet=True).save(folder / "probes")
    several = folder / "single-task"
    several.mkdir()
    shutil.copytree(folder / "multi-task", several / "mood")
    manifest.write(several, "single-task", tasks=["mood"])
    return folder


@pytest.mark.parametrize("kind", ["multi-task", "dissociation", "probes", "removed-heads", "single-task"])
def test_manifests(kind: str, saved: Path) -> None:
    file = saved / kind / manifest.NAME
    sound = file.read_bytes()

    def value(record: Any) -> None:
        file.write_text(json.dumps(record))
        opened = hw.load(saved / kind)
        repr(opened)

    def content(raw: bytes) -> None:
        file.write_bytes(raw)
        hw.load(saved / kind)

    try:
        drawn(changed(json.loads(sound)), value, 12, 0.03)
        drawn(mutated(sound), content, 12, 0.02)
    finally:
        file.write_bytes(sound)


@pytest.mark.parametrize(
    "file",
    [
        "multi-task/decoders.safetensors",
        "dissociation/scores.nc",
        "dissociation/predictions.parquet",
        "probes/embeddings.parquet",
    ],
)
def test_parts_of_saved_folders(file: str, saved: Path) -> None:
    sound = (saved / file).read_bytes()

    def check(raw: bytes) -> None:
        (saved / file).write_bytes(raw)
        if file.endswith(".nc"):
            load_scores(saved / file)
        hw.load((saved / file).parent)

    try:
        drawn(mutated(sound), check, 10, 0.02)
    finally:
        (saved / file).write_bytes(sound)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    engine.run_study(
        grid,
        GridRecipe(kind="grid", widths=(8,), seeds=(0,), training={"steps": 1}),
        folder,
        jobs=0,
        quiet=True,
    )
    return folder


@pytest.mark.parametrize(
    "name", [PLAN_FILE, INDEX, manifest.NAME, "results/*/headwise.json", "failures/train-x.json"]
)
def test_files_of_a_run(name: str, run: Path) -> None:
    if "failures" in name:
        folder = json.loads((run / PLAN_FILE).read_text().splitlines()[0])["folder"]
        name = f"failures/{folder}.json"
        (run / name).write_text(json.dumps({"error": "x", "seconds": 1.0}))
    file = next(run.glob(name))
    sound = file.read_bytes()

    def check(raw: bytes) -> None:
        file.write_bytes(raw)
        opened = engine.open(run)
        list(opened.cells())
        opened.damage()
        opened.names()

    try:
        drawn(mutated(sound), check, 25, 0.015)
    finally:
        file.write_bytes(sound)


def test_sets_of_heads() -> None:
    drawn(
        mutated(b"[[0, 3], [7, 10]]"),
        lambda raw: repr(HeadSet.from_json(raw.decode("utf-8", "replace"))),
        40,
        0.005,
    )
    drawn(VALUES, lambda value: repr(HeadSet.from_json(json.dumps(value))), 40, 0.005)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    task = toy.task("mood")
    server = Server(Session(toy.model([task]), [task], "toy"))
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def test_calls_of_the_app(server: Server) -> None:
    asked = calls(server.calls["/api/job"].__closure__[0].cell_contents)  # type: ignore[attr-defined]
    for path, fields in oddities.FIELDS.items():
        if path != "/api/evaluate":  # it starts a thread each time; its values are those of the others
            drawn(changed(fields), lambda given, path=path: json.dumps(asked[path](given)), 25, 0.02)  # type: ignore[misc]


def test_requests(server: Server) -> None:
    def check(sent: bytes) -> None:
        status, headers, content = oddities.raw(server.server_address[:2], sent)  # type: ignore[arg-type]
        assert status != 500, content
        if headers.get("content-type") == "application/json":
            json.loads(content)
        else:
            assert status == 200

    def spoken(sent: bytes) -> None:
        if sent:  # on nothing at all there is nothing to answer
            check(sent)

    for path, fields in oddities.FIELDS.items():
        if path != "/api/evaluate":
            sent = oddities.posted(path, json.dumps(fields).encode()).replace(
                b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"
            )
            drawn(mutated(sent), spoken, 8, 0.02)


def test_text_of_a_parquet_file_that_is_not_utf_8(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    begins = pa.py_buffer(b"\x00\x00\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00")
    bad = pa.Array.from_buffers(pa.utf8(), 2, [None, begins, pa.py_buffer(b"\xff\xfeok")])
    pq.write_table(pa.table({"text": bad, "label": ["a", "b"]}), tmp_path / "rows.parquet")
    with pytest.raises(HeadwiseError, match=r"rows\.parquet: column 'text' is damaged or not UTF-8"):
        Task("t", path=tmp_path / "rows.parquet", fractions={"train": 0.5, "validation": 0.5}).split("train")


def test_a_model_name_too_long_for_a_file_is_told(tmp_path: Path) -> None:
    data = {"kind": "probing", "models": {"a": "x" * 5000}, "tasks": {"source": "grammar"}}
    with pytest.raises(HeadwiseError, match=r"models\.a"):
        read_recipe(resolve(STUDIES["probing"]).recipe, data, tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{"format": True}, {"files": {"a": None}}, {"files": {"a": [1, []]}}, {"finished": []}],
    ids=["true", "no listing", "list for a checksum", "list for a time"],
)
def test_an_edited_manifest_is_told(changes: dict[str, Any], saved: Path) -> None:
    folder = saved / "single-task"
    before = (folder / manifest.NAME).read_text()
    try:
        (folder / manifest.NAME).write_text(json.dumps({**json.loads(before), **changes}))
        with pytest.raises(HeadwiseError, match="damaged"):
            hw.load(folder)
    finally:
        (folder / manifest.NAME).write_text(before)
