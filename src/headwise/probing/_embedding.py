"""`HeadEmbedding`: sentence vectors from chosen heads, as a module of sentence-transformers."""

import json
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import torch

from headwise._base.adapters import check_savable
from headwise._base.writing import make_folder, saving, write_bytes
from headwise.errors import HeadwiseError, MissingExtra
from headwise.heads import HeadSet
from headwise.probing._early_exit import head_outputs
from headwise.probing._encoder import Encoder
from headwise.store import _manifest as manifest

try:
    from sentence_transformers.base.modules import InputModule
except ImportError:
    try:
        from sentence_transformers.models import InputModule  # before version 6
    except ImportError as error:
        raise MissingExtra("sentence_transformers", "embeddings") from error

KIND = "head-embedding"


class HeadEmbedding(InputModule):
    """The concatenated outputs of chosen heads at one token, h^n of Jo & Myaeng (2020, §3.3).

    Only the layers up to the highest chosen head are computed. It is a module of sentence-transformers:
    `SentenceTransformer(modules=[HeadEmbedding(...)])` encodes, trains and saves.

    Args:
        model: a folder, hub id or live transformers model.
        head_set: the heads, for instance `probes.top(12)`.
        tokenizer: for live models; default: the one beside their weights.
        pooling: "cls", "last" or "mean"; default: by the kind of model.
        max_length: tokens at which texts are cut; default: the tokenizer's own limit.
        trust_remote_code: run the code that a folder or hub id contains; read that code first.

    Raises:
        HeadwiseError: the set is empty, or the model has no such heads.
        MissingExtra: sentence-transformers is not installed.
    """

    save_in_root = True

    def __init__(
        self,
        model: Any,
        head_set: HeadSet,
        tokenizer: Any = None,
        pooling: str | None = None,
        max_length: int | None = None,
        *,
        trust_remote_code: bool = False,
    ) -> None:
        super().__init__()
        encoder = Encoder.of(model, tokenizer, pooling, trust_remote_code=trust_remote_code)
        self.model, self.tokenizer, self.pooling = encoder.model, encoder.tokenizer, encoder.pooling
        self.head_set = encoder.heads.check(head_set)
        if not len(self.head_set):
            raise HeadwiseError("a head embedding needs at least one head, got none")
        limit = int(min(self.tokenizer.model_max_length, 1_000_000))
        self.max_seq_length: int | None = max_length if max_length is not None else limit if limit < 1_000_000 else None
        # Not attributes of the module: Heads holds the model, which must stay registered once.
        self.__dict__["_encoder"] = encoder

    @property
    def layers(self) -> int:
        """How many layers are computed."""
        return max(layer for layer, _ in self.head_set) + 1

    def get_embedding_dimension(self) -> int:
        """Width of the vectors: the sum of the heads' widths."""
        sites = self.__dict__["_encoder"].heads.sites
        return sum(int(sites[layer].head_dim) for layer, _ in self.head_set)

    get_sentence_embedding_dimension = get_embedding_dimension

    def preprocess(self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any) -> dict[str, torch.Tensor]:
        """Texts (or pairs of texts) as padded token numbers; a prompt is put before each text."""
        pairs = [tuple(text) if isinstance(text, list | tuple) else (text,) for text in inputs]
        first = [f"{prompt or ''}{pair[0]}" for pair in pairs]
        second = [pair[1] for pair in pairs] if pairs and len(pairs[0]) == 2 else None
        limit: dict[str, Any] = {"truncation": "longest_first", "max_length": self.max_seq_length} if self.max_seq_length else {}
        return dict(self.tokenizer(first, second, padding=True, return_tensors="pt", **limit))

    def tokenize(self, texts: list[str], **kwargs: Any) -> dict[str, torch.Tensor]:
        """`preprocess`, by its name before version 6."""
        return self.preprocess(texts, **kwargs)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds "sentence_embedding" (batch, dim) to tokenised features."""
        encoder = self.__dict__["_encoder"]
        names = set(self.tokenizer.model_input_names) | {"input_ids", "attention_mask"}
        inputs = {name: value for name, value in features.items() if name in names}
        if (
            self.tokenizer.padding_side == "left" and "position_ids" in signature(self.model.forward).parameters
        ):  # positions are counted from the first real token, whatever the padding
            inputs["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp_min(0)
        vectors = head_outputs(
            encoder.heads, self.head_set, {**inputs, **encoder.kept}, self.pooling, detach=not torch.is_grad_enabled()
        )
        return {**features, "sentence_embedding": vectors.float()}

    def encode(self, texts: str | Sequence[str], **options: Any) -> Any:
        """Vectors of texts: `SentenceTransformer.encode` with its options (batch_size, normalize_embeddings, ...)."""
        from sentence_transformers import SentenceTransformer

        device = next(iter(self.model.parameters())).device
        return SentenceTransformer(modules=[self], device=str(device)).encode(texts, **{"show_progress_bar": False, **options})

    def save(self, output_path: str | Path, *args: Any, **kwargs: Any) -> None:
        """Writes model, tokenizer and head set; `headwise.load` opens it, and so does
        `SentenceTransformer(path, trust_remote_code=True)`, which allows that library to import headwise's class."""
        check_savable(self.model)
        folder = make_folder(output_path)
        with saving(folder, self.model.state_dict().values()):
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)
        heads = json.loads(self.head_set.to_json())
        name = f"{type(self).__module__}.{type(self).__name__}"
        modules = [{"idx": 0, "name": "0", "path": "", "type": name}]
        write_bytes(folder / "modules.json", (json.dumps(modules, indent=2) + "\n").encode())
        manifest.write(folder, KIND, heads=heads, pooling=self.pooling, max_length=self.max_seq_length)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> "HeadEmbedding":
        """Opens what `save` wrote; sentence-transformers calls this."""
        from sentence_transformers.util import load_dir_path

        hub = {name: kwargs.get(name) for name in ("token", "cache_folder", "revision")}
        place = load_dir_path(model_name_or_path, subfolder, local_files_only=kwargs.get("local_files_only", False), **hub)
        folder = Path(str(place))
        return load_folder(folder, manifest.read(folder))


def load_folder(folder: Path, record: Mapping[str, Any]) -> HeadEmbedding:
    """Opens a saved head embedding, on the CPU and in eval mode; `headwise.load` calls this."""
    head_set = HeadSet((int(layer), int(head)) for layer, head in record["heads"])
    return HeadEmbedding(folder, head_set, pooling=record["pooling"], max_length=record["max_length"]).eval()
