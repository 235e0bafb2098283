"""Timing several ways of doing the same thing in one process: in turn, round after round, so that all see the same machine."""

import platform
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from parts import said


def race(
    ways: Mapping[str, Callable[[], Any]],
    rounds: int,
    device: str,
    clock: Callable[[], float] = time.perf_counter,
    warm: bool = True,
) -> dict[str, list[float]]:
    """Seconds of every way in every round, by `clock`; with `warm` a first round is run and not counted."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(-warm, rounds):
        for name, way in ways.items():
            wait(device)
            start = clock()
            way()
            wait(device)
            if number >= 0:
                seconds[name].append(said(name, clock() - start))
    return seconds


def wait(device: str) -> None:
    """Until the device has done what it was told."""
    if device != "cpu":
        torch.cuda.synchronize()


def ratio(seconds: Mapping[str, list[float]], above: str, below: str) -> dict[str, float]:
    """Median over rounds of one way's seconds over another's, with the 10th and 90th percentile."""
    values = np.array(seconds[above]) / np.array(seconds[below])
    low, middle, high = np.percentile(values, [10, 50, 90])
    return {"median": round(float(middle), 3), "p10": round(float(low), 3), "p90": round(float(high), 3)}


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Median seconds of every way."""
    return {name: round(float(np.median(values)), 4) for name, values in seconds.items()}


def machine(device: str) -> dict[str, Any]:
    """What it ran on."""
    name = platform.processor() or platform.machine() if device == "cpu" else torch.cuda.get_device_name()
    return {"device": device, "name": name, "threads": torch.get_num_threads(), "torch": torch.__version__}


def encoder(folder: str | None, layers: int, dim: int, heads: int) -> tuple[Any, Any]:
    """The encoder and tokenizer of a folder (random weights if it has none), or a random BERT with a tokenizer of whole words."""
    from transformers import AutoConfig, AutoModel, AutoTokenizer, BertConfig, BertModel

    if folder is not None:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        try:
            return AutoModel.from_pretrained(folder, dtype=torch.float32), tokenizer
        except OSError:
            return AutoModel.from_config(AutoConfig.from_pretrained(folder)).float(), tokenizer
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=512,
    )
    config = BertConfig(
        hidden_size=dim, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * dim
    )
    return BertModel(config), tokenizer
