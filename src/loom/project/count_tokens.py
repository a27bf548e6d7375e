"""A program that counts the tokens of texts: their lengths and texts come in, their tokens go out.

It is run by its path and imports nothing of Loom, so that it is ready as soon as its tokenizer is
loaded.
"""

import os
import struct
import sys

NUMBER = struct.Struct("<I")
_UNKNOWN_WORD = "qzxvkj"  # the parts of words are only loaded for one that is not known as a whole


def serve(encoding: str, answers: int) -> None:
    """Count what comes in until nothing more comes."""
    from splintr import Tokenizer  # here, for its folder is only known now

    encode = Tokenizer.from_pretrained(encoding).encode_ordinary
    encode(_UNKNOWN_WORD)
    with os.fdopen(answers, "wb") as out:
        while head := sys.stdin.buffer.read(NUMBER.size):
            text = sys.stdin.buffer.read(NUMBER.unpack(head)[0]).decode()
            out.write(NUMBER.pack(len(encode(text))))
            out.flush()


if __name__ == "__main__":
    sys.path[:] = sys.argv[3:]
    serve(sys.argv[1], int(sys.argv[2]))
