"""Whether files really hold a picture."""

from pathlib import Path


def assert_drawn(file: str | Path) -> None:
    """A PNG of which at least one pixel in a hundred is not background, or a whole PDF that draws something."""
    path = Path(file)
    if path.suffix == ".pdf":
        content = path.read_bytes()
        assert content.startswith(b"%PDF-"), path
        assert content.rstrip().endswith(b"%%EOF"), path
        assert b"/Font" in content, f"{path} holds no text, not even an axis label"
        return
    from matplotlib.image import imread

    pixels = imread(path)
    assert (abs(pixels - pixels[0, 0]) > 0.1).any(-1).mean() > 0.01, f"{path} is empty"
