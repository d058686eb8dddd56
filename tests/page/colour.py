# SPDX-License-Identifier: MIT
"""usage: colour.py FOLDER: writes a few colour pictures of two classes, and prints a spec for them."""
import os
import struct
import sys
import zlib

HEIGHT, WIDTH = 7, 6
SPEC = f"""[model]
m = -0.9
[tier pixels]
grid = {HEIGHT}x{WIDTH}
groups = 3
cardinality = 5
[tier label]
cardinality = 2
[block pixels pixels]
kernel = 3
[block label pixels]
kind = dense
[data]
image = pixels
label = label
dataset = pictures
"""


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(pixel):
    lines = b"".join(b"\0" + bytes(v for x in range(WIDTH) for v in pixel(y, x)) for y in range(HEIGHT))
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) +
            chunk(b"IEND", b""))


for part in ("train", "test"):
    for label, name in enumerate(("rise", "fall")):
        folder = os.path.join(sys.argv[1], part, name)
        os.makedirs(folder, exist_ok=True)
        for i in range(4):
            with open(os.path.join(folder, f"{i}.png"), "wb") as out:
                out.write(png(lambda y, x: ((37 * y + 50 * i) % 256, 255 * (x if label else WIDTH - x) // WIDTH,
                                            (19 * x * y + 90 * i) % 256)))
print(SPEC, end="")
