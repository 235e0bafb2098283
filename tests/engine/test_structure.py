"""What a live model computes beside its weights is read from its modules, and nothing that passes leave behind."""

import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from transformers import EsmTokenizer

sys.path.insert(0, str(Path(__file__).parents[1] / "heads"))
import zoo
from live_models import adapted, bert, gpt2

import headwise as hw
import planted
from headwise.errors import HeadwiseError
from headwise.heads._inputs import tiny_inputs
from headwise.store import fingerprint
from headwise.store._contents import Contents, passes_by
from headwise.store._decision import model_parts
from headwise.store._structure import structure
from headwise.tasks._encoding import tokenizer_fingerprint


def test_interventions_that_are_open_are_refused_here_and_nothing_elsewhere(tmp_path: Any) -> None:
    model, task = bert(), planted.tasks(16)["a"]
    heads, before = hw.Heads(model), fingerprint(model)
    with heads.silenced(hw.HeadSet([(0, 0)])):
        with pytest.raises(HeadwiseError, match=r"a block .* is open on this BertForSequenceClassification"):
            hw.score(
                model, task, heads=heads, tokenizer=planted.tokenizer(), quiet=True, out=tmp_path / "kept"
            )
        assert fingerprint(bert()) == before  # another model
        model(**heads.example)
    ended = threading.Event()

    def others() -> None:
        while not ended.is_set():
            with heads.silenced(hw.HeadSet([(0, 0)])):
                model(**heads.example)  # with gradients, for which layers are watched, too

    thread = threading.Thread(target=others)
    thread.start()
    try:
        assert {fingerprint(model) for _ in range(30)} == {before}
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize(
    "family", ["bert", "deberta-v2", "esm", "gpt2", "llama", "modernbert", "phi3", "qwen2_vl", "t5"]
)
def test_passes_leave_nothing_that_counts_in_any_family(family: str) -> None:
    model = zoo.build(family)
    before = fingerprint(model)
    with torch.no_grad():
        model(**(zoo.example(family, model) or tiny_inputs(model, 2)))
    assert fingerprint(model) == before


def plain(value: Any) -> bool:
    return isinstance(value, bool | int | float | str)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_every_plain_attribute_of_every_module_counts(data: Any) -> None:
    """PEFT's underscore names included; those apart that passes change."""
    model = adapted("lora")
    before = structure(model, model.config)
    places = [
        (module, name)
        for module in model.modules()
        for name, value in vars(module).items()
        if plain(value) and name != "training" and not passes_by(name) and not name.startswith("_is_full")
    ]
    module, name = data.draw(st.sampled_from(places))
    was = vars(module)[name]
    vars(module)[name] = (
        f"{was} other" if isinstance(was, str) else not was if isinstance(was, bool) else was + 1
    )
    changed = structure(model, model.config)["attributes"]
    assert {key for key in changed if changed[key] != before["attributes"][key]} == {name}
    vars(module)[name] = was
    assert structure(model, model.config) == before


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


def shape(value: Any) -> Any:
    """A value as what it must be equal by: 1, 1.0 and True differ, and 0.0 and -0.0; the order of keys does not count."""
    if isinstance(value, dict):
        return "dict", frozenset((key, shape(item)) for key, item in value.items())
    return ("list", tuple(map(shape, value))) if isinstance(value, list) else (type(value), repr(value))


@given(VALUES, VALUES)
@settings(max_examples=150, deadline=None)
def test_contents_are_equal_exactly_if_values_are(one: Any, other: Any) -> None:
    assert (Contents().read([one]) == Contents().read([other])) == (shape(one) == shape(other))


def test_values_that_hold_themselves_end() -> None:
    circle: list[Any] = [1]
    circle.append(circle)
    again: list[Any] = [1]
    again.append(again)
    assert Contents().read(circle) == Contents().read(again) != Contents().read([1, [1]])
    model = bert()
    model.bert.pooler.held = [model]
    assert fingerprint(model) == fingerprint(model)


def test_settings_of_generation_and_shared_parameters_count() -> None:
    model = gpt2()
    before = model_parts(model, planted.tokenizer())
    model.generation_config.repetition_penalty = 2.0
    assert model_parts(model, planted.tokenizer())["configuration"] != before["configuration"]
    apart = gpt2()
    apart.lm_head.weight = nn.Parameter(apart.lm_head.weight.detach().clone())
    assert model_parts(apart, planted.tokenizer())["classes"] != before["classes"]


class Shouting(type(planted.tokenizer())):  # type: ignore[misc]
    def __call__(self, text: Any, *args: Any, **kwargs: Any) -> Any:
        return super().__call__(
            [one.upper() for one in text] if isinstance(text, list) else text.upper(), *args, **kwargs
        )


def test_tokenizers_count_by_all_that_they_read_by(tmp_path: Any) -> None:
    def key(tokenizer: Any) -> tuple[str, str]:
        return model_parts(bert(), tokenizer)["tokenizer"], tokenizer_fingerprint(tokenizer)

    before = key(planted.tokenizer())
    asked = planted.tokenizer()
    asked(["a0 b1"], padding=True, truncation=True, max_length=4)
    assert key(asked) == before
    for found in zip(
        key(Shouting(tokenizer_object=asked.backend_tokenizer, **asked.special_tokens_map)),
        before,
        strict=True,
    ):
        assert found[0] != found[1]
    asked.add_tokens(["new"])
    assert all(a != b for a, b in zip(key(asked), before, strict=True))
    for name in ("vocab.txt", "moved.txt"):
        (tmp_path / name).write_text(
            "\n".join(["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWC", "<mask>"])
        )
        EsmTokenizer(str(tmp_path / name)).save_pretrained(tmp_path / name[:5])
    slow, same = (EsmTokenizer.from_pretrained(tmp_path / name) for name in ("vocab", "moved"))
    assert not slow.is_fast
    slow(["LAG"])
    assert key(slow) == key(same)
    slow.unique_no_split_tokens = ["LA"]  # a switch of its own
    assert all(a != b for a, b in zip(key(slow), key(same), strict=True))
