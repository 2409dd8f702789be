"""README's picture shows what its run says."""

from __future__ import annotations

from tests.docs.hero import PICTURE, drawn

MAX_BYTES = 160_000


def test_the_picture_shows_what_its_run_says() -> None:
    picture = drawn()
    assert PICTURE.read_bytes() == picture, f"{PICTURE.name} differs from results/: make docs"
    assert len(picture) < MAX_BYTES
    assert b"<text" not in picture  # an image has no fonts of its own
