"""Images, sound and files by the providers' formulas; sizes from the head of the data, and a safe
guess where there is none.
"""

import base64
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.budget.media import (
    CLAUDE,
    CLAUDE_HIGH_RESOLUTION,
    Flat,
    FlatImageTokens,
    MediaRule,
    Patches,
    Squares,
    Tiles,
    image_size,
    image_tokens,
    media_rule,
    media_tokens,
    pdf_pages,
)
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
    assert image_tokens((4096, 4096), FOUR_O, detail="low") == 85
    low = Media(
        "image", "url", "https://example.org/a.png", carried=Carried("openai", '{"detail":"low"}')
    )
    assert media_tokens(low, FOUR_O) == 85


@pytest.mark.parametrize(
    ("size", "tokens"),
    [((1024, 1024), 1659), ((320, 320), 162), ((5000, 5000), 2489), (None, 2489)],
)
def test_small_openai_models_count_patches(size: tuple[int, int] | None, tokens: int) -> None:
    assert image_tokens(size, Patches(multiplier=1.62)) == tokens


@pytest.mark.parametrize(
    ("size", "tokens"),
    [
        ((200, 200), 64),
        ((1000, 1000), 1296),
        ((1092, 1092), 1521),
        ((1568, 728), 1456),
        ((8000, 8000), 1568),
        (None, 1568),
    ],
)
def test_anthropic_counts_patches_of_28_pixels(size: tuple[int, int] | None, tokens: int) -> None:
    assert image_tokens(size, CLAUDE) == tokens


@pytest.mark.parametrize(
    ("size", "tokens"),
    [((1000, 1000), 1296), ((1920, 1080), 2691), ((8000, 8000), 4784), (None, 4784)],
)
def test_later_models_of_anthropic_see_more(size: tuple[int, int] | None, tokens: int) -> None:
    assert image_tokens(size, CLAUDE_HIGH_RESOLUTION) == tokens


@pytest.mark.parametrize(
    ("size", "detail", "tokens"),
    [
        ((512, 512), "", 308),
        ((1920, 1080), "high", 2448),
        ((3840, 2160), "", 9792),
        ((3840, 2160), "high", 3000),
        (None, "", 12_000),
    ],
)
def test_later_models_of_openai_see_images_as_they_are(
    size: tuple[int, int] | None, detail: str, tokens: int
) -> None:
    assert image_tokens(size, media_rule("gpt-5.5"), detail=detail) == tokens


def test_google_counts_squares() -> None:
    assert image_tokens((384, 384), Squares()) == 258
    assert image_tokens((960, 540), Squares()) == 516
    assert image_tokens((4032, 3024), FlatImageTokens(1120)) == 1120


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
        ("anthropic:claude-sonnet-4-6", CLAUDE),
        ("claude-sonnet-4-20250514", CLAUDE),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", CLAUDE),
        ("claude-opus-4-7", CLAUDE_HIGH_RESOLUTION),
        ("anthropic/claude-opus-4.8", CLAUDE_HIGH_RESOLUTION),
        ("claude-sonnet-5-5", CLAUDE_HIGH_RESOLUTION),
        ("gpt-5.4-mini", Patches(multiplier=1.62)),
        ("gpt-5.4", Patches(multiplier=1.2, most=10_000, most_high=2500)),
        ("gpt-6-astra", Patches(multiplier=1.2, most=30_000, most_high=2500)),
        ("ft:gpt-4o:acme::id", FOUR_O),
        ("google/gemini-3-pro-preview", FlatImageTokens(1120)),
        ("llama3:8b", CLAUDE),
        ("", CLAUDE),
    ],
)
def test_each_model_has_its_provider_s_rule(model: str, rule: object) -> None:
    assert media_rule(model) == rule


def jpeg(width: int, height: int, before: bytes = b"") -> bytes:
    return (
        b"\xff\xd8"
        + before
        + b"\xff\xc0\x00\x11\x08"
        + struct.pack(">HH", height, width)
        + b"\x03"
        + b"\0" * 12
    )


HEADS = {
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", 640, 480) + b"\x08\x06\0\0\0",
    "gif": b"GIF89a" + struct.pack("<HH", 640, 480) + b"\0\0\0",
    "jpeg": jpeg(640, 480),
    "jpeg behind a thumbnail": jpeg(640, 480, b"\xff\xe1\x40\x00" + b"\xaa" * 0x3FFE),
    "webp lossy": b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 640, 480),
    "webp lossless": b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f"
    + struct.pack("<I", 639 | 479 << 14)
    + b"\0" * 8,
    "webp extended": b"RIFF\0\0\0\0WEBPVP8X\0\0\0\0\0\0\0\0"
    + (639).to_bytes(3, "little")
    + (479).to_bytes(3, "little"),
}


@pytest.mark.parametrize("kind", HEADS)
def test_the_size_is_read_from_the_head(kind: str) -> None:
    data = base64.b64encode(HEADS[kind] + b"\0" * 4000).decode()
    assert image_size(data) == (640, 480)
    assert image_size(f"data:image/png;base64,{data}") == (640, 480)


@given(st.one_of(st.text(), st.binary().map(lambda data: base64.b64encode(data).decode())))
def test_bad_data_has_no_size_and_costs_the_maximum(data: str) -> None:
    assert image_size(data) is None
    assert media_tokens(Media("image", "data", data), CLAUDE) == 1568


@given(st.sampled_from(list(HEADS.values())), st.integers(0, 60))
def test_damaged_heads_raise_nothing(head: bytes, cut: int) -> None:
    size = image_size(base64.b64encode(head[:cut]).decode())
    assert size is None or size == (640, 480)


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_no_size_costs_more_than_an_unknown_one(width: int, height: int) -> None:
    rules: list[MediaRule] = [
        FOUR_O,
        Patches(multiplier=1.62),
        CLAUDE,
        CLAUDE_HIGH_RESOLUTION,
        media_rule("gpt-5.5"),
        FlatImageTokens(1120),
    ]
    for rule in rules:
        assert 0 < image_tokens((width, height), rule) <= image_tokens(None, rule)


def test_sound_is_counted_by_its_length() -> None:
    header = (
        b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0"
        + struct.pack("<II", 16_000, 32_000)
        + b"\x02\0\x10\0data\0\0\0\0"
    )
    ten_seconds = Media(
        "audio", "data", base64.b64encode(header + b"\0" * 320_000).decode(), "audio/wav"
    )
    assert 320 <= media_tokens(ten_seconds, CLAUDE) <= 321
    assert media_tokens(Media("audio", "id", "audio_1"), CLAUDE) > 0


def test_files_are_counted_by_page_or_by_text() -> None:
    pdf = base64.b64encode(b"%PDF-1.7" + b"x" * 100_000).decode()
    assert media_tokens(Media("file", "data", pdf, "application/pdf"), CLAUDE) == 2 * (3000 + 1568)
    text = base64.b64encode(b"hello " * 100).decode()
    assert media_tokens(Media("file", "data", text, "text/plain"), CLAUDE) == 200
    assert media_tokens(Media("file", "text", "hello", "text/plain"), CLAUDE) == 32


def test_a_flat_rule_asks_nothing() -> None:
    assert media_tokens(Media("file", "id", "file_1"), Flat(256)) == 256


@pytest.mark.parametrize(
    ("version", "index", "rate"),
    [(0xFB, 9, 128_000), (0xFB, 1, 32_000), (0xF3, 1, 8_000), (0xF3, 8, 64_000)],
)
@pytest.mark.parametrize("tag", [b"", b"ID3\x04\0\0\0\0\0\x20" + b"\0" * 32])
def test_an_mp3_is_counted_by_the_rate_in_its_head(
    version: int, index: int, rate: int, tag: bytes
) -> None:
    sound = tag + bytes([0xFF, version, index << 4, 0]) + b"\0" * (20 * rate // 8)
    twenty_seconds = Media("audio", "data", base64.b64encode(sound).decode(), "audio/mp3")
    assert 640 <= media_tokens(twenty_seconds, CLAUDE) <= 660


def test_an_mp3_of_changing_rate_is_taken_as_low_speech() -> None:
    sound = bytes([0xFF, 0xFB, 0xE0, 0]) + b"Xing" + b"\0" * 40_000
    assert media_tokens(Media("audio", "data", base64.b64encode(sound).decode()), CLAUDE) == 321


def pdf(pages: int, compressed: bool = False) -> str:
    objects = b"".join(
        b"%d 0 obj <</Type /Page /Parent 1 0 R>> endobj\n" % (n + 3) for n in range(pages)
    )
    tree = b"1 0 obj <</Type /Pages /Count %d /Kids []>> endobj\n" % pages
    if compressed:
        packed = zlib.compress(tree + objects)
        body = (
            b"9 0 obj <</Type /ObjStm /N 2 /Filter /FlateDecode /Length %d>>\nstream\n"
            % len(packed)
            + packed
            + b"\nendstream"
        )
    else:
        body = tree + objects
    return base64.b64encode(b"%PDF-1.7\n" + body + b"\n%%EOF").decode()


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("pages", [1, 7, 120])
def test_the_pages_of_a_pdf_are_counted(pages: int, compressed: bool) -> None:
    assert pdf_pages(pdf(pages, compressed)) == pages
    document = Media("file", "data", pdf(pages, compressed), "application/pdf")
    assert media_tokens(document, CLAUDE) == pages * (3000 + 1568)
    assert media_tokens(document, Squares()) == pages * 258
    assert media_tokens(document, FlatImageTokens(1120)) == pages * 560


def test_a_pdf_whose_page_objects_are_hidden_is_counted_by_its_tree() -> None:
    document = base64.b64encode(
        b"%PDF-1.4\n1 0 obj <</Count 31 /Kids [2 0 R] /Type /Pages>> endobj"
    ).decode()
    assert pdf_pages(document) == 31
    assert pdf_pages(base64.b64encode(b"no document").decode()) == 0


@given(st.binary(max_size=400))
def test_damaged_documents_raise_nothing(data: bytes) -> None:
    assert pdf_pages(base64.b64encode(b"%PDF-1.5 /ObjStm stream\n" + data).decode()) >= 0
