"""To the hub and back, with a folder in place of the hub."""

import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import pytest
import torch
from scipy import stats
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import headwise as hw
import planted
from headwise.errors import HeadwiseError
from headwise.heads import Heads, HeadSet
from headwise.heads._remove.portable import FILE
from headwise.models import MultiTaskModel

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 16,
    "vocab_size": 50,
}
PNG = b"\x89PNG"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of repositories. Downloads are links into it, as in the hub's cache."""
    root = tmp_path / "hub"

    class Api:
        def __init__(self, token: str | None = None) -> None:
            self.token = token

        def create_repo(self, repo_id: str, *, private: bool, exist_ok: bool) -> str:
            if repo_id.startswith("forbidden/"):
                raise OSError("403 Forbidden: you have no rights to forbidden\nRequest ID: 1")
            (root / repo_id).mkdir(parents=True, exist_ok=exist_ok)
            return f"https://hub/{repo_id}"

        def upload_folder(
            self, *, repo_id: str, folder_path: str, commit_message: str, ignore_patterns: Any = ()
        ) -> None:
            for file in Path(folder_path).rglob("*"):
                name = file.relative_to(folder_path).as_posix()
                if file.is_file() and not any(fnmatch(name, pattern) for pattern in ignore_patterns):
                    (root / repo_id / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, root / repo_id / name)

    def download(repo_id: str, *, allow_patterns: list[str], **options: Any) -> str:
        if not (root / repo_id).is_dir():
            raise huggingface_hub.errors.LocalEntryNotFoundError(f"no {repo_id}")
        folder = tmp_path / "cache" / f"models--{repo_id.replace('/', '--')}" / "snapshots" / "abc"
        for file in (root / repo_id).rglob("*"):
            if file.is_file() and any(fnmatch(file.name, pattern) for pattern in allow_patterns):
                target = folder / file.relative_to(root / repo_id)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(file)
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return root


def bert() -> Any:
    torch.manual_seed(0)
    return BertModel(
        BertConfig(**{**SMALL, "vocab_size": len(planted.WORDS)}, max_position_embeddings=32)
    ).eval()


def card_of(place: Path) -> str:
    text = (place / "README.md").read_text()
    assert text.startswith("---\nlibrary_name: ")
    for part in ("## How to load", "## Citation", "@software{headwise", "- headwise\n"):
        assert part in text
    return text


def test_a_model_without_heads(hub: Path) -> None:
    model = bert()
    model.config._name_or_path = "org/whole"
    heads = Heads(model)
    smaller: Any = heads.remove(HeadSet([(0, 1), (1, 0), (1, 2)]))
    assert hw.push_to_hub(smaller, "me/cut", tokenizer=planted.tokenizer()) == "https://hub/me/cut"
    again = hw.from_pretrained("me/cut")
    with torch.no_grad():
        assert torch.equal(again(**heads.example)[0], smaller(**heads.example)[0])
    assert (hub / "me" / "cut" / FILE).is_file()
    text = card_of(hub / "me" / "cut")
    assert "base_model: org/whole" in text
    assert "removed 3 of the 8 attention heads of org/whole" in text
    assert "| 1 | 2 | 0 2 |" in text
    assert 'hw.from_pretrained("me/cut")' in text
    assert "![" in text
    assert (hub / "me/cut/figures/heads.png").read_bytes().startswith(PNG)
    assert (hub / "me/cut/tokenizer.json").is_file()


def test_an_ordinary_model_is_opened_by_transformers_too(hub: Path) -> None:
    torch.manual_seed(0)
    heads = Heads(LlamaForCausalLM(LlamaConfig(**SMALL, num_key_value_heads=2)).eval())
    smaller: Any = heads.remove(heads.prunable_evenly(np.arange(8.0).reshape(2, 4), 0.5))
    hw.push_to_hub(smaller, "me/even")
    text = card_of(hub / "me" / "even")
    assert "library_name: transformers" in text
    assert 'LlamaForCausalLM.from_pretrained("me/even")' in text
    assert "removed 4 of the 8" in text
    plain = LlamaForCausalLM.from_pretrained(hub / "me" / "even")
    with torch.no_grad():
        torch.testing.assert_close(plain(**heads.example).logits, smaller(**heads.example).logits)
        torch.testing.assert_close(
            hw.from_pretrained("me/even")(**heads.example).logits, smaller(**heads.example).logits
        )


def test_a_trained_model_with_scores_and_intervals(hub: Path, tmp_path: Path) -> None:
    tasks = list(planted.tasks(size=64).values())
    model = MultiTaskModel(bert(), planted.tokenizer(), tasks)
    result = hw.train(model, tasks, epochs=1, quiet=True, out=tmp_path / "run", device="cpu")
    (tmp_path / "run" / "checkpoint").mkdir(exist_ok=True)
    (tmp_path / "run" / "checkpoint" / "state.pt").write_bytes(b"code")
    hw.push_to_hub(tmp_path / "run", "me/trained")
    again = hw.from_pretrained("me/trained")
    for one, other in zip(result.model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not list((hub / "me" / "trained").rglob("*.pt"))
    text = card_of(hub / "me" / "trained")
    row = result.scores[result.scores["split"] == "validation"].iloc[0]
    line = next(line for line in text.splitlines() if line.startswith(f"| {row['task']} | validation |"))
    n, share = int(row["examples"]), float(row["score"])
    assert f"| {100 * share:.1f} |" in line
    right = round(share * n)
    low = stats.beta.ppf(0.025, right, n - right + 1) if right else 0.0  # Clopper and Pearson
    high = stats.beta.ppf(0.975, right + 1, n - right) if right < n else 1.0
    assert f"| {100 * low:.1f} to {100 * high:.1f} | 64 |" in line


def test_scores_and_a_head_embedding(hub: Path) -> None:
    both = planted.tasks(size=32)
    model = MultiTaskModel(bert(), planted.tokenizer(), both.values())
    scores = hw.score(model, list(both.values()), quiet=True, device="cpu")
    hw.push_to_hub(scores, "me/scores")
    found = hw.from_pretrained("me/scores")
    assert found.identical(scores)
    text = card_of(hub / "me" / "scores")
    assert "gate-gradient" in text
    assert (hub / "me/scores/figures/heads.png").read_bytes().startswith(PNG)

    embedding = hw.HeadEmbedding(model.encoder, HeadSet([(0, 1), (1, 3)]), model.tokenizer)
    hw.push_to_hub(embedding, "me/embedding")
    np.testing.assert_allclose(
        hw.from_pretrained("me/embedding").encode(["w1 w2"]), embedding.encode(["w1 w2"]), atol=1e-6
    )
    assert "heads 0.1, 1.3" in card_of(hub / "me" / "embedding")


def test_what_cannot_be_sent_or_fetched_is_one_line(hub: Path, tmp_path: Path) -> None:
    with pytest.raises(
        HeadwiseError, match=r"BertModel is not something that headwise saves.*model\.push_to_hub"
    ):
        hw.push_to_hub(bert(), "me/plain")
    with pytest.raises(HeadwiseError, match="was not saved by headwise"):
        hw.push_to_hub(tmp_path, "me/nothing")
    smaller = Heads(bert()).remove(HeadSet([(0, 1)]))
    with pytest.raises(
        HeadwiseError,
        match=r"^upload or download of 'forbidden/x' failed: 403 Forbidden: you have no rights to forbidden$",
    ):
        hw.push_to_hub(smaller, "forbidden/x")
    with pytest.raises(HeadwiseError, match="download of 'me/unknown' failed"):
        hw.from_pretrained("me/unknown")
    hw.push_to_hub(smaller, "me/damaged")
    weights = hub / "me" / "damaged" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    with pytest.raises(HeadwiseError, match=r"model\.safetensors"):
        hw.from_pretrained("me/damaged")


def test_a_readme_of_ones_own_stays(hub: Path, tmp_path: Path) -> None:
    hw.heads.save_removed(Heads(bert()).remove(HeadSet([(0, 1)])), tmp_path / "mine")
    (tmp_path / "mine" / "README.md").write_text("My words.")
    hw.push_to_hub(tmp_path / "mine", "me/mine")
    assert (hub / "me" / "mine" / "README.md").read_text() == "My words."
    assert isinstance(hw.from_pretrained(tmp_path / "mine"), BertModel)
