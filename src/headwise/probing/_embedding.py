"""`HeadEmbedding`: sentence vectors from chosen heads, as a module of sentence-transformers and a transformer
of scikit-learn."""

import json
from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from headwise._base.adapters import check_savable
from headwise._base.opener import identity, open_tokenizer
from headwise._base.writing import saving, write_bytes
from headwise.errors import HeadwiseError, MissingExtra
from headwise.heads import HeadSet, cuts_of_model, load_removed
from headwise.models import length_within, most_tokens, padding_side
from headwise.probing._early_exit import head_outputs
from headwise.probing._encoder import Encoder
from headwise.probing._results import ranked_heads
from headwise.store import manifest, save_model, save_tokenizer
from headwise.tasks import own_limit

try:
    from sentence_transformers.base.modules import InputModule
except ImportError:
    try:
        from sentence_transformers.models import InputModule  # before version 6
    except ImportError as error:
        raise MissingExtra("sentence_transformers", "embeddings") from error

KIND = "head-embedding"


class HeadEmbedding(InputModule, TransformerMixin, BaseEstimator):
    """The concatenated outputs of chosen heads at one token, h^n of Jo & Myaeng (2020, §3.3).

    Only the layers up to the highest chosen head are computed. It is a module of sentence-transformers:
    `SentenceTransformer(modules=[HeadEmbedding(...)])` encodes, trains and saves. And it is a transformer of
    scikit-learn, from texts to vectors: `make_pipeline(HeadEmbedding(...), LogisticRegression())`. Clones
    share the model, which fitting leaves as it is.

    Args:
        model: a folder, hub id or live transformers model.
        head_set: the heads, for instance `probes.top(12)`; or scores (layers, heads), of which the highest
            `fraction` is taken.
        tokenizer: for live models; default: the one beside their weights.
        pooling: "cls", "last" or "mean"; default: by the kind of model.
        max_length: tokens at which texts are cut; default: the tokenizer's own limit. Never more than the
            model reads.
        fraction: with scores: the share of all heads, 0 to 1.
        trust_remote_code: run the code that a folder or hub id contains; read that code first.

    Raises:
        HeadwiseError: the set is empty, or the model has no such heads.
        MissingExtra: sentence-transformers is not installed.
    """

    save_in_root = True

    def __init__(
        self,
        model: Any,
        head_set: HeadSet | ArrayLike,
        tokenizer: Any = None,
        pooling: str | None = None,
        max_length: int | None = None,
        *,
        fraction: float | None = None,
        trust_remote_code: bool = False,
    ) -> None:
        self._begin(
            {
                "model": model,
                "head_set": head_set,
                "tokenizer": tokenizer,
                "pooling": pooling,
                "max_length": max_length,
                "fraction": fraction,
                "trust_remote_code": trust_remote_code,
            }
        )

    def _begin(self, arguments: dict[str, Any], opened: Encoder | None = None) -> None:
        """Sets everything by the arguments; `opened` is their model, if it is open already."""
        if opened is None:
            opened = Encoder.of(
                arguments["model"], arguments["tokenizer"], trust_remote_code=arguments["trust_remote_code"]
            )
        encoder = Encoder.of(opened, pooling=arguments["pooling"])
        head_set = encoder.heads.check(_head_set(arguments["head_set"], arguments["fraction"]))
        if not len(head_set):
            raise HeadwiseError("a head embedding needs at least one head, got none")
        super().__init__()
        self.model, self.tokenizer, self.pooling = encoder.model, encoder.tokenizer, encoder.pooling
        self.head_set = head_set
        length = arguments["max_length"]
        if length is None:
            length = own_limit(self.tokenizer)
        self.max_seq_length: int | None = most_tokens(self.model)
        if length is not None:
            self.max_seq_length = length_within(length, self.model)
        # Not attributes of the module: Heads holds the model, which must stay registered once.
        self.__dict__.update(_encoder=encoder, _opened=opened, _arguments=arguments)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The arguments it was made with, by name, as scikit-learn asks for them."""
        return dict(self.__dict__["_arguments"])

    def set_params(self, **params: Any) -> "HeadEmbedding":
        """Changes arguments; the model is opened again only if it is among them.

        Raises:
            ValueError: there is no such argument.
        """
        arguments, opened = self.get_params(), self.__dict__["_opened"]
        unknown = params.keys() - arguments
        if unknown:
            raise ValueError(
                f"HeadEmbedding has no parameter {', '.join(sorted(unknown))}; it has {', '.join(arguments)}"
            )
        if params.keys() & {"model", "tokenizer", "trust_remote_code"}:
            opened = None
        if params:
            self._begin({**arguments, **params}, opened)
        return self

    def __sklearn_clone__(self) -> "HeadEmbedding":
        clone = type(self).__new__(type(self))
        clone._begin(self.get_params(), self.__dict__["_opened"])
        return clone

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array, tags.requires_fit = True, False, False
        return tags

    def fit(self, texts: Sequence[str], y: Any = None) -> "HeadEmbedding":
        """Checks the texts; there is nothing to fit."""
        _texts(texts)
        return self

    def transform(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of texts (or pairs of texts), (texts, width)."""
        rows = _texts(texts)
        if not rows:
            return np.zeros((0, self.get_embedding_dimension()), np.float32)
        return np.asarray(self.encode(rows), np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns: "0.3[7]" is number 7 of head 3 in layer 0."""
        sites = self.__dict__["_encoder"].heads.sites
        names: list[str] = []
        for layer, head in self.head_set:
            names += [f"{layer}.{head}[{number}]" for number in range(sites[layer].head_dim)]
        return np.array(names, object)

    @property
    def layers(self) -> int:
        """How many layers are computed."""
        return max(layer for layer, _ in self.head_set) + 1

    def get_embedding_dimension(self) -> int:
        """Width of the vectors: the sum of the heads' widths."""
        sites = self.__dict__["_encoder"].heads.sites
        return sum(int(sites[layer].head_dim) for layer, _ in self.head_set)

    get_sentence_embedding_dimension = get_embedding_dimension

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, torch.Tensor]:
        """Texts (or pairs of texts) as padded token numbers; a prompt is put before each text."""
        pairs = [tuple(text) if isinstance(text, list | tuple) else (text,) for text in inputs]
        first = [f"{prompt or ''}{pair[0]}" for pair in pairs]
        second = [pair[1] for pair in pairs] if pairs and len(pairs[0]) == 2 else None
        side = padding_side(self.model, self.tokenizer)
        options: dict[str, Any] = {"padding": True, "padding_side": side, "return_tensors": "pt"}
        if self.max_seq_length:
            options |= {"truncation": "longest_first", "max_length": self.max_seq_length}
        return dict(self.tokenizer(first, second, **options))

    def tokenize(self, texts: list[str], **kwargs: Any) -> dict[str, torch.Tensor]:
        """`preprocess`, by its name before version 6."""
        return self.preprocess(texts, **kwargs)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds "sentence_embedding" (batch, dim) to tokenised features."""
        encoder = self.__dict__["_encoder"]
        names = set(self.tokenizer.model_input_names) | {"input_ids", "attention_mask"}
        inputs = {name: value for name, value in features.items() if name in names}
        left = padding_side(self.model, self.tokenizer) == "left"
        if left and "position_ids" in signature(self.model.forward).parameters:
            # positions are counted from the first real token, whatever the padding
            inputs["position_ids"] = (inputs["attention_mask"].cumsum(1) - 1).clamp_min(0)
        vectors = head_outputs(
            encoder.heads,
            self.head_set,
            {**inputs, **encoder.no_cache},
            self.pooling,
            detach=not torch.is_grad_enabled(),
        )
        return {**features, "sentence_embedding": vectors.float()}

    def encode(self, texts: str | Sequence[str], **options: Any) -> Any:
        """Vectors of texts: `SentenceTransformer.encode` with its options (batch_size, normalize_embeddings,
        ...)."""
        from sentence_transformers import SentenceTransformer

        device = next(iter(self.model.parameters())).device
        return SentenceTransformer(modules=[self], device=str(device)).encode(
            texts, **{"show_progress_bar": False, **options}
        )

    def save(self, output_path: str | Path, *args: Any, overwrite: bool = False, **kwargs: Any) -> None:
        """Writes model, tokenizer and head set; `headwise.load` opens it, and so does
        `SentenceTransformer(path, trust_remote_code=True)`, which allows that library to import headwise's
        class.

        Args:
            output_path: where; a new folder appears whole or not at all.
            args, kwargs: what sentence-transformers says to its modules.
            overwrite: put this embedding in the place of another model that is there.

        Raises:
            HeadwiseError: another model is there.
        """
        save_model(output_path, self._write, overwrite)

    def _write(self, folder: Path) -> dict[str, Any]:
        """Writes all files into an empty folder; returns the fields of the manifest."""
        check_savable(self.model)
        with saving(folder):
            self.model.save_pretrained(folder)
            save_tokenizer(self.tokenizer, folder)
        name = f"{type(self).__module__}.{type(self).__name__}"
        modules = [{"idx": 0, "name": "0", "path": "", "type": name}]
        write_bytes(folder / "modules.json", (json.dumps(modules, indent=2) + "\n").encode())
        record = {
            "kind": KIND,
            "heads": json.loads(self.head_set.to_json()),
            "pooling": self.pooling,
            "max_length": self.max_seq_length,
            "base": identity(self.model.config)[0],
        }
        cuts = cuts_of_model(self.model)
        return record | {"removed": cuts} if cuts else record

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> "HeadEmbedding":
        """Opens what `save` wrote; sentence-transformers calls this."""
        from sentence_transformers.util import load_dir_path

        hub = {name: kwargs.get(name) for name in ("token", "cache_folder", "revision")}
        local = kwargs.get("local_files_only", False)
        folder = Path(str(load_dir_path(model_name_or_path, subfolder, local_files_only=local, **hub)))
        return load_folder(folder, manifest.read(folder))


def _head_set(heads: Any, fraction: float | None) -> HeadSet:
    """The set of heads, or those with the highest fraction of scores."""
    if fraction is None:
        return heads if isinstance(heads, HeadSet) else HeadSet(heads)
    if isinstance(heads, HeadSet) or np.ndim(heads) != 2:
        raise HeadwiseError(
            "fraction takes the highest of scores (layers, heads): give scores instead of a set of heads"
        )
    if not 0 < fraction <= 1:
        raise HeadwiseError(f"fraction is {fraction}; it is a fraction of all heads, above 0 and at most 1")
    order = ranked_heads(np.asarray(heads, dtype=float))
    return HeadSet(order[: max(1, int(np.floor(fraction * len(order) + 1e-9)))])


def _texts(texts: Any) -> list[Any]:
    rows = list(texts)
    wrong = [row for row in rows if not isinstance(row, str | tuple | list)]
    if isinstance(texts, str):
        wrong = [texts]
    if wrong:
        raise ValueError(
            "a head embedding takes a list of texts, or of pairs of texts; "
            f"got {type(wrong[0]).__name__} {wrong[0]!r:.60}"
        )
    return rows


def load_folder(folder: Path, record: Mapping[str, Any]) -> HeadEmbedding:
    """Opens a saved head embedding, on the CPU and in eval mode; `headwise.load` calls this."""
    head_set = HeadSet((int(layer), int(head)) for layer, head in record["heads"])
    model: Any = folder
    tokenizer = None
    if record.get("removed"):
        model, tokenizer = load_removed(folder, record["removed"]), open_tokenizer(folder)
    options = {"pooling": record["pooling"], "max_length": record["max_length"]}
    return HeadEmbedding(model, head_set, tokenizer, **options).eval()
