"""What images, sound and files cost, by the formulas that the providers publish.

Only the head of the data is read, for the size of an image or the rate of a sound. Where the size cannot be known (an address,
an uploaded file, damaged data) the rule's own maximum stands in, because too low costs a failed request.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from math import ceil
from typing import assert_never

from msgspec import Struct

from loom.conversation.message import Media

# Bytes of a file's head in which formats state their size; JPEG may put a thumbnail and a colour profile before it.
_HEAD = 768
_JPEG_HEAD = 262_144

# OpenAI and Google count sound by time: at most 32 tokens a second. Without a header, speech is taken as 32 kbit/s.
_SOUND_TOKENS_PER_SECOND = 32
_SOUND_BYTES_PER_SECOND = 4_000
_UNKNOWN_SECONDS = 60

# Anthropic names 1,500 to 3,000 tokens of text per page of a PDF, and shows the page as an image as well.
_PAGE_TOKENS = 3_000
_PAGE_BYTES = 60_000
_UNKNOWN_PAGES = 10

# Other files arrive as text; three bytes a token is on the safe side for text in any script.
_FILE_BYTES_PER_TOKEN = 3

# Where a wire cannot carry an item, a line that names it stands in.
PLACEHOLDER_TOKENS = 32


class Flat(Struct, frozen=True, tag="flat"):
    """The same for every item."""

    tokens: int


class Tiles(Struct, frozen=True, tag="tiles"):
    """OpenAI's tiles of 512 pixels, after fitting into 2048 square and bringing the short side to 768."""

    base: int
    tile: int


class Patches(Struct, frozen=True, tag="patches"):
    """OpenAI's patches of 32 pixels, at most 1,536, times what the model charges for one."""

    multiplier: float


class Area(Struct, frozen=True, tag="area"):
    """Anthropic's width × height / 750, after fitting the long edge into 1568 pixels, about 1,600 at most."""


class Squares(Struct, frozen=True, tag="squares"):
    """Google's 258 for a small image, and as much for each square of 768 pixels of a larger one."""


MediaRule = Flat | Tiles | Patches | Area | Squares

# The rule of each model family by the beginning of its name, the first match wins. Unknown models get the last.
RULES: tuple[tuple[str, MediaRule], ...] = (
    (r"gpt-4o-mini", Tiles(base=2833, tile=5667)),
    (r"gpt-4\.1-mini|gpt-5(\.\d)?-mini", Patches(multiplier=1.62)),
    (r"gpt-4\.1-nano|gpt-5(\.\d)?-nano", Patches(multiplier=2.46)),
    (r"(chat)?gpt-4", Tiles(base=85, tile=170)),
    (r"o4-mini", Patches(multiplier=1.72)),
    (r"o[134]", Tiles(base=75, tile=150)),
    (r"gpt-[5-9]", Tiles(base=70, tile=140)),
    (r"computer-use", Tiles(base=65, tile=129)),
    (r"gemini|gemma", Squares()),
    (r"", Area()),
)
_TABLE = tuple((re.compile(pattern), rule) for pattern, rule in RULES)
_LOW_DETAIL = re.compile(r'"detail"\s*:\s*"low"')


def media_rule(model: str) -> MediaRule:
    """The rule by which a model's provider counts images."""
    name = re.split(r"[/:]", model.lower())[-1]
    return next(rule for pattern, rule in _TABLE if pattern.match(name))


def media_tokens(media: Media, rule: MediaRule) -> int:
    """Tokens of one media item, without the text that a file of source `text` holds."""
    return rule.tokens if isinstance(rule, Flat) else max(PLACEHOLDER_TOKENS, _sized_tokens(media, rule))


def _sized_tokens(media: Media, rule: MediaRule) -> int:
    match media.kind:
        case "image":
            size = image_size(media.value) if media.source == "data" else None
            low = media.carried is not None and _LOW_DETAIL.search(media.carried.fields) is not None
            return image_tokens(size, rule, low_detail=low)
        case "audio":
            return ceil(_seconds(media) * _SOUND_TOKENS_PER_SECOND)
        case "file":
            return _file_tokens(media, rule)
        case _:
            assert_never(media.kind)


def image_tokens(size: tuple[int, int] | None, rule: MediaRule, *, low_detail: bool = False) -> int:
    """Tokens of an image of a size in pixels; the most the rule can give where the size is not known."""
    match rule:
        case Flat(tokens):
            return tokens
        case Tiles(base, tile):
            if low_detail:
                return base
            # The longest shape that fits is 768 by 2048: two by four tiles.
            return base + tile * (8 if size is None else _tiles(*size))
        case Patches(multiplier):
            return ceil(multiplier * (1536 if size is None else _patches(*size)))
        case Area():
            return 1600 if size is None else _area(*size)
        case Squares():
            if size is None:
                return 258 * 6
            return 258 if max(size) <= 384 else 258 * ceil(size[0] / 768) * ceil(size[1] / 768)
        case _:
            assert_never(rule)


def _tiles(width: int, height: int) -> int:
    shrink = min(1.0, 2048 / max(width, height))
    shrink = min(shrink, 768 / min(width, height))
    # Rounded first: 2048 × 0.375 is 768 and a whisker in binary, and would cost a whole row of tiles.
    return ceil(round(width * shrink, 3) / 512) * ceil(round(height * shrink, 3) / 512)


def _patches(width: int, height: int) -> int:
    return min(1536, ceil(width / 32) * ceil(height / 32))


def _area(width: int, height: int) -> int:
    shrink = min(1.0, 1568 / max(width, height))
    return max(1, min(1600, ceil(width * height * shrink * shrink / 750)))


def image_size(data: str) -> tuple[int, int] | None:
    """Width and height from the head of a base64 PNG, JPEG, GIF or WebP, None where it says none."""
    head = _head(data, _HEAD)
    size: tuple[int, int] | None = None
    if head.startswith(b"\x89PNG\r\n\x1a\n") and len(head) >= 24:
        size = _big(head, 16, 4), _big(head, 20, 4)
    elif head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        size = _little(head, 6, 2), _little(head, 8, 2)
    elif head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        size = _webp_size(head)
    elif head.startswith(b"\xff\xd8"):
        size = _jpeg_size(_head(data, _JPEG_HEAD))
    return size if size and min(size) > 0 else None


def _head(data: str, size: int) -> bytes:
    if data.startswith("data:"):
        data = data.partition(",")[2]
    text = "".join(data[: size * 4 // 3].split())
    try:
        return b64decode(text[: len(text) // 4 * 4])
    except (Base64Error, ValueError):
        return b""


def _big(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _little(data: bytes, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _webp_size(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8 ":
            return _little(head, 26, 2) & 0x3FFF, _little(head, 28, 2) & 0x3FFF
        case b"VP8L":
            bits = _little(head, 21, 4)
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8X":
            return _little(head, 24, 3) + 1, _little(head, 27, 3) + 1
    return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            return None
        marker = head[at + 1]
        if marker == 0xFF:  # padding
            at += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # start of frame
            return _big(head, at + 7, 2), _big(head, at + 5, 2)
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # markers without a body
            at += 2
        else:
            at += 2 + _big(head, at + 2, 2)
    return None


def _seconds(media: Media) -> float:
    if media.source != "data":
        return _UNKNOWN_SECONDS
    size = len(media.value) * 3 / 4
    head = _head(media.value, 64)
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE" and (rate := _little(head, 28, 4)):
        return size / rate
    return size / _SOUND_BYTES_PER_SECOND


def _file_tokens(media: Media, rule: MediaRule) -> int:
    size = len(media.value) * 3 // 4
    if media.source == "text":
        return 0
    if media.media_type.startswith("text/") or media.media_type in ("application/json", "application/xml"):
        return ceil(size / _FILE_BYTES_PER_TOKEN) if media.source == "data" else _UNKNOWN_PAGES * _PAGE_TOKENS
    pages = max(1, ceil(size / _PAGE_BYTES)) if media.source == "data" else _UNKNOWN_PAGES
    return pages * (_PAGE_TOKENS + image_tokens(None, rule))
