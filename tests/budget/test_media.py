"""Images, sound and files by the providers' formulas; sizes from the head of the data, and a safe guess where there is none."""

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.budget.media import Area, Flat, Patches, Squares, Tiles, image_size, image_tokens, media_rule, media_tokens
from loom.conversation.message import Carried, Media

FOUR_O = Tiles(base=85, tile=170)


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((1024, 1024), 765),
        ((2048, 4096), 1105),
        ((512, 512), 255),
        ((100, 100), 255),
        ((2048, 768), 1445),
        ((1, 1), 255),
        (None, 1445),
    ],
)
def test_openai_counts_tiles(size: tuple[int, int] | None, tokens: int) -> None:
    assert image_tokens(size, FOUR_O) == tokens


def test_low_detail_is_flat() -> None:
    assert image_tokens((4096, 4096), FOUR_O, low_detail=True) == 85
    low = Media("image", "url", "https://example.org/a.png", carried=Carried("openai", '{"detail":"low"}'))
    assert media_tokens(low, FOUR_O) == 85


@pytest.mark.parametrize(("size", "tokens"), [((1024, 1024), 1659), ((320, 320), 162), ((5000, 5000), 2489), (None, 2489)])
def test_small_openai_models_count_patches(size: tuple[int, int] | None, tokens: int) -> None:
    assert image_tokens(size, Patches(multiplier=1.62)) == tokens


@pytest.mark.parametrize(
    ("size", "tokens"), [((200, 200), 54), ((1000, 1000), 1334), ((1092, 1092), 1590), ((8000, 8000), 1600), (None, 1600)]
)
def test_anthropic_counts_area(size: tuple[int, int] | None, tokens: int) -> None:
    assert image_tokens(size, Area()) == tokens


def test_google_counts_squares() -> None:
    assert image_tokens((384, 384), Squares()) == 258
    assert image_tokens((960, 540), Squares()) == 516


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        ("openai:gpt-4o", FOUR_O),
        ("gpt-4o-mini", Tiles(base=2833, tile=5667)),
        ("gpt-4.1", FOUR_O),
        ("openai/gpt-4.1-mini", Patches(multiplier=1.62)),
        ("gpt-5-nano", Patches(multiplier=2.46)),
        ("gpt-5", Tiles(base=70, tile=140)),
        ("o4-mini", Patches(multiplier=1.72)),
        ("o3", Tiles(base=75, tile=150)),
        ("google:gemini-2.5-pro", Squares()),
        ("anthropic:claude-sonnet-4-6", Area()),
        ("", Area()),
    ],
)
def test_each_model_has_its_provider_s_rule(model: str, rule: object) -> None:
    assert media_rule(model) == rule


def jpeg(width: int, height: int, before: bytes = b"") -> bytes:
    return b"\xff\xd8" + before + b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", height, width) + b"\x03" + b"\0" * 12


HEADS = {
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480) + b"\x08\x06\0\0\0",
    "gif": b"GIF89a" + struct.pack("<HH", 640, 480) + b"\0\0\0",
    "jpeg": jpeg(640, 480),
    "jpeg behind a thumbnail": jpeg(640, 480, b"\xff\xe1\x40\x00" + b"\xaa" * 0x3FFE),
    "webp lossy": b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 640, 480),
    "webp lossless": b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 639 | 479 << 14) + b"\0" * 8,
    "webp extended": b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0" + (639).to_bytes(3, "little") + (479).to_bytes(3, "little"),
}


@pytest.mark.parametrize("kind", HEADS)
def test_the_size_is_read_from_the_head(kind: str) -> None:
    data = base64.b64encode(HEADS[kind] + b"\0" * 4000).decode()
    assert image_size(data) == (640, 480)
    assert image_size(f"data:image/png;base64,{data}") == (640, 480)


@given(st.one_of(st.text(), st.binary().map(lambda data: base64.b64encode(data).decode())))
def test_bad_data_has_no_size_and_costs_the_maximum(data: str) -> None:
    assert image_size(data) is None
    assert media_tokens(Media("image", "data", data), Area()) == 1600


@given(st.sampled_from(list(HEADS.values())), st.integers(0, 60))
def test_damaged_heads_raise_nothing(head: bytes, cut: int) -> None:
    size = image_size(base64.b64encode(head[:cut]).decode())
    assert size is None or size == (640, 480)


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_no_size_costs_more_than_an_unknown_one(width: int, height: int) -> None:
    for rule in (FOUR_O, Patches(multiplier=1.62), Area()):
        assert 0 < image_tokens((width, height), rule) <= image_tokens(None, rule)


def test_sound_is_counted_by_its_length() -> None:
    header = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0" + struct.pack("<II", 16_000, 32_000) + b"\x02\0\x10\0data\0\0\0\0"
    ten_seconds = Media("audio", "data", base64.b64encode(header + b"\0" * 320_000).decode(), "audio/wav")
    assert 320 <= media_tokens(ten_seconds, Area()) <= 321
    assert media_tokens(Media("audio", "id", "audio_1"), Area()) > 0


def test_files_are_counted_by_page_or_by_text() -> None:
    pdf = base64.b64encode(b"%PDF-1.7" + b"x" * 100_000).decode()
    assert media_tokens(Media("file", "data", pdf, "application/pdf"), Area()) == 2 * (3000 + 1600)
    text = base64.b64encode(b"hello " * 100).decode()
    assert media_tokens(Media("file", "data", text, "text/plain"), Area()) == 200
    assert media_tokens(Media("file", "text", "hello", "text/plain"), Area()) == 32


def test_a_flat_rule_asks_nothing() -> None:
    assert media_tokens(Media("file", "id", "file_1"), Flat(256)) == 256
