"""What images, sound and files cost, by what the providers publish; the source stands beside each
formula.

Of an image or a sound only the head of the data is read, for its size or rate. Where the size
cannot be known (an address, an uploaded file, damaged data) the rule's own maximum stands in,
because too low costs a failed request.
"""

import re
import zlib
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator
from math import ceil
from typing import assert_never

from msgspec import Struct

from loom.conversation.message import Media

# Bytes of a file's head in which formats state their size; JPEG may put a thumbnail and a colour
# profile before it.
_HEAD = 768
_JPEG_HEAD = 262_144

# Sound is counted by time. Google ("Understand and count tokens"): 32 tokens a second. OpenAI
# ("Realtime costs"): a token for
# 100 ms of a user's sound, for 50 ms of the model's. The largest of the three stands for all.
_SOUND_TOKENS_PER_SECOND = 32
# WAV and MP3 state their rate in the head. Without one, speech is taken as 32 kbit/s, less than
# recordings have; by address or id nothing is known, and a minute is assumed.
_SOUND_BYTES_PER_SECOND = 4_000
_UNKNOWN_SECONDS = 60

# Anthropic ("PDF support"): 1,500 to 3,000 tokens of text a page by how dense it is, and each page
# as an image as well.
# OpenAI ("File inputs"): the text of a PDF and an image of each page. The densest page stands for
# all.
_PAGE_TEXT_TOKENS = 3_000
# Google ("Document understanding"): 258 tokens a page; from Gemini 3 on 560 ("Media resolution",
# the default for PDF).
_GOOGLE_PAGE_TOKENS = 258
_GEMINI_3_PAGE_TOKENS = 560
# Nobody states these: what a page takes in a document whose pages cannot be counted, and pages of
# one behind an address or an id.
_PAGE_BYTES = 60_000
_UNKNOWN_PAGES = 10

# An image of unknown size that a model would see as it is: ten million pixels.
_UNKNOWN_PATCHES = 10_000

# Other files arrive as text; three bytes a token is on the safe side for text in any script.
_FILE_BYTES_PER_TOKEN = 3

# Where a wire cannot carry an item, a line that names it stands in.
PLACEHOLDER_TOKENS = 32


class Flat(Struct, frozen=True, tag="flat"):
    """The same for every item."""

    tokens: int


class Tiles(Struct, frozen=True, tag="tiles"):
    """A base, and so much for each tile of 512 pixels, after fitting into 2048 square and bringing
    the short side to 768.

    OpenAI, "Images and vision", calculating costs: 1024 × 1024 is four tiles, 2048 × 4096 six;
    `detail: low` is the base alone.
    """

    base: int
    tile: int


class Patches(Struct, frozen=True, tag="patches"):
    """Patches of `side` pixels times what the model charges for one, after fitting the long edge
    and the number of patches.

    OpenAI, "Images and vision": patches of 32 pixels, at most 1,536, times 1.62 (mini), 2.46
    (nano), 1.72 (o4-mini); for later models at most 10,000 ("model sizing behavior"), and about
    2,500 where `detail` is high. Anthropic, "Vision": patches of 28 pixels, a token each; at most
    1,568 pixels and 1,568 tokens, from Opus 4.7 on 2,576 pixels and 4,784 tokens. (It used to say
    width × height / 750, which is about the same.)
    """

    multiplier: float
    most: int = 1536
    side: int = 32
    edge: int = 0  # pixels of the long edge beyond which an image is made smaller; 0: none
    most_high: int = 0  # patches where high detail is asked for, if that is another number


class Squares(Struct, frozen=True, tag="squares"):
    """Google, "Understand and count tokens": 258 for an image within 384 pixels, else 258 for each
    square of 768 pixels.
    """


class FlatImageTokens(Struct, frozen=True, tag="each"):
    """So much for every image. Google, "Media resolution", from Gemini 3 on: 1,120 tokens at the
    resolution that is the default.
    """

    tokens: int


MediaRule = Flat | Tiles | Patches | Squares | FlatImageTokens

CLAUDE = Patches(multiplier=1.0, most=1568, side=28, edge=1568)
CLAUDE_HIGH_RESOLUTION = Patches(multiplier=1.0, most=4784, side=28, edge=2576)

# The rule of each model family by the beginning of its name, the first match wins. OpenAI's
# figures: "Images and vision", tables of base and tile tokens and of multipliers. It states no
# multiplier for the large models from GPT-5.2 on: users measured 1.2, and that GPT-6 makes no image
# smaller.
RULES: tuple[tuple[str, MediaRule], ...] = (
    (r"gpt-4o-mini", Tiles(base=2833, tile=5667)),
    (r"gpt-4\.1-mini|gpt-[5-9](\.\d)?-mini", Patches(multiplier=1.62)),
    (r"gpt-4\.1-nano|gpt-[5-9](\.\d)?-nano", Patches(multiplier=2.46)),
    (r"(chat)?gpt-4", Tiles(base=85, tile=170)),
    (r"o4-mini", Patches(multiplier=1.72)),
    (r"o[134]", Tiles(base=75, tile=150)),
    (r"gpt-5\.[23]", Patches(multiplier=1.2, most=2500)),
    (r"gpt-5\.[4-9]", Patches(multiplier=1.2, most=10_000, most_high=2500)),
    (r"gpt-[6-9]", Patches(multiplier=1.2, most=30_000, most_high=2500)),
    (r"gpt-5", Tiles(base=70, tile=140)),
    (r"computer-use", Tiles(base=65, tile=129)),
    (r"gemini-([3-9]|\d\d)", FlatImageTokens(1120)),
    (r"gemini|gemma", Squares()),
    (r"claude-(opus-4[-.][7-9]|[a-z]+-[5-9]|fable|mythos)", CLAUDE_HIGH_RESOLUTION),
    (r"claude", CLAUDE),
)
_OTHER: MediaRule = CLAUDE  # of models whose provider publishes nothing
_TABLE = tuple((re.compile(pattern), rule) for pattern, rule in RULES)
_DETAIL = re.compile(r'"detail"\s*:\s*"(\w+)"')


def media_rule(model: str) -> MediaRule:
    """The rule by which a model's provider counts images."""
    # Names nest, from the outside in: openrouter/openai/gpt-4o, ft:gpt-4o:organisation::id,
    # llama3:8b.
    for name in reversed(re.split(r"[/:]", model.lower())):
        bare = _HOST.sub("", name)
        for pattern, rule in _TABLE:
            if pattern.match(bare):
                return rule
    return _OTHER


_HOST = re.compile(r"^(?:(?:us|eu|apac|au|jp|global)\.)?(?:anthropic|openai|google)\.")


def media_tokens(media: Media, rule: MediaRule) -> int:
    """Tokens of one media item, without the text that a file of source `text` holds."""
    if isinstance(rule, Flat):
        return rule.tokens
    return max(PLACEHOLDER_TOKENS, _sized_tokens(media, rule))


def _sized_tokens(media: Media, rule: MediaRule) -> int:
    match media.kind:
        case "image":
            size = None
            if media.source == "data":
                size = image_size(media.value)
            detail = None
            if media.carried is not None:
                detail = _DETAIL.search(media.carried.fields)
            return image_tokens(size, rule, detail=detail.group(1) if detail else "")
        case "audio":
            return ceil(_seconds(media) * _SOUND_TOKENS_PER_SECOND)
        case "file":
            return _file_tokens(media, rule)
        case _:
            assert_never(media.kind)


def image_tokens(size: tuple[int, int] | None, rule: MediaRule, *, detail: str = "") -> int:
    """Tokens of an image of a size in pixels; the most the rule can give where the size is not
    known.
    """
    match rule:
        case Flat(tokens) | FlatImageTokens(tokens):
            return tokens
        case Tiles(base, tile):
            if detail == "low":
                return base
            # The longest shape that fits is 768 by 2048: two by four tiles.
            return base + tile * (8 if size is None else _tiles(*size))
        case Patches():
            if detail == "high" and rule.most_high:
                most = rule.most_high
            else:
                most = rule.most
            if size is None:
                patches = _UNKNOWN_PATCHES
            else:
                patches = _patches(*size, rule)
            return ceil(rule.multiplier * min(most, patches))
        case Squares():
            if size is None:
                return 258 * 6
            if max(size) <= 384:
                return 258
            return 258 * ceil(size[0] / 768) * ceil(size[1] / 768)
        case _:
            assert_never(rule)


def _tiles(width: int, height: int) -> int:
    shrink = min(1.0, 2048 / max(width, height))
    shrink = min(shrink, 768 / min(width, height))
    # Rounded first: 2048 × 0.375 is 768 and a whisker in binary, and would cost a whole row of
    # tiles.
    return ceil(round(width * shrink, 3) / 512) * ceil(round(height * shrink, 3) / 512)


def _patches(width: int, height: int, rule: Patches) -> int:
    shrink = 1.0
    if rule.edge:
        shrink = min(1.0, rule.edge / max(width, height))
    return ceil(round(width * shrink, 3) / rule.side) * ceil(round(height * shrink, 3) / rule.side)


def image_size(data: str) -> tuple[int, int] | None:
    """Width and height from the head of a base64 PNG, JPEG, GIF or WebP, None where it says
    none.
    """
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
    if size and min(size) > 0:
        return size
    return None


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
    head = _head(media.value, 4096)
    if head[:4] == b"RIFF" and head[8:12] == b"WAVE" and (rate := _little(head, 28, 4)):
        return size / rate
    return size / (_mp3_bytes_per_second(head) or _SOUND_BYTES_PER_SECOND)


# Kilobits a second by the index in the head of a frame of layer III: MPEG 1, and MPEG 2 and 2.5.
_MP3_RATES = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 0),
)


def _mp3_bytes_per_second(head: bytes) -> int:
    """The rate of an MP3 whose rate is the same throughout; 0 where it changes, or where this is
    none.
    """
    at = 0
    if head[:3] == b"ID3" and len(head) >= 10:  # its size is in seven bits a byte
        at = 10 + sum(
            (byte & 0x7F) << shift for byte, shift in zip(head[6:10], (21, 14, 7, 0), strict=True)
        )
    frame = head[at : at + 4]
    is_layer_3 = len(frame) == 4 and frame[0] == 0xFF and frame[1] & 0xE6 == 0xE2
    if not is_layer_3 or b"Xing" in head or b"VBRI" in head:
        return 0
    is_mpeg_1 = frame[1] & 0x18 == 0x18
    return _MP3_RATES[0 if is_mpeg_1 else 1][frame[2] >> 4] * 125


def _file_tokens(media: Media, rule: MediaRule) -> int:
    size = len(media.value) * 3 // 4
    if media.source == "text":
        return 0
    if media.media_type.startswith("text/") or media.media_type in (
        "application/json",
        "application/xml",
    ):
        if media.source == "data":
            return ceil(size / _FILE_BYTES_PER_TOKEN)
        return _UNKNOWN_PAGES * _PAGE_TEXT_TOKENS
    if media.source != "data":
        return _UNKNOWN_PAGES * _page_tokens(rule)
    return (pdf_pages(media.value) or max(1, ceil(size / _PAGE_BYTES))) * _page_tokens(rule)


def _page_tokens(rule: MediaRule) -> int:
    match rule:
        case Squares():
            return _GOOGLE_PAGE_TOKENS
        case FlatImageTokens():
            return _GEMINI_3_PAGE_TOKENS
    return _PAGE_TEXT_TOKENS + image_tokens(None, rule, detail="high")


_PDF_PAGE = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_PDF_TREE = re.compile(
    rb"/Type\s*/Pages\b[^>]{0,400}?/Count\s+(\d{1,6})"
    rb"|/Count\s+(\d{1,6})[^>]{0,400}?/Type\s*/Pages\b"
)
_PDF_OBJECTS = re.compile(rb"/ObjStm\b[^\x00]{0,400}?stream\r?\n")
# bytes of a document's compressed lists of objects that are looked through
_MOST_INFLATED = 16_777_216


def pdf_pages(data: str) -> int:
    """How many pages a base64 PDF has, 0 where it cannot be told: by its page objects, else by the
    count of its tree of pages.
    """
    document = _head(data, len(data))
    if b"%PDF-" not in document[:1024]:
        return 0
    pages, counted = 0, 0
    for body in (document, *_pdf_objects(document)):
        pages += len(_PDF_PAGE.findall(body))
        counted = max(
            [counted, *(int(first or second) for first, second in _PDF_TREE.findall(body))]
        )
    return pages or counted


def _pdf_objects(document: bytes) -> Iterator[bytes]:
    """The lists of objects that newer documents compress."""
    left = _MOST_INFLATED
    for match in _PDF_OBJECTS.finditer(document):
        try:
            body = zlib.decompressobj().decompress(document[match.end() : match.end() + left], left)
        except zlib.error:
            continue
        yield body
        left -= len(body)
        if left <= 0:
            return
