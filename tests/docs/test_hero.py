"""README's pictures show what their run says."""

from __future__ import annotations

from tests.docs.hero import PICTURES, drawn

MAX_BYTES = 90_000


def test_the_pictures_show_what_their_run_says() -> None:
    for name, picture in drawn().items():
        assert (PICTURES / name).read_bytes() == picture, f"{name} differs from results/: make docs"
        assert len(picture) < MAX_BYTES
        assert b"<text" not in picture  # an image has no fonts of its own
