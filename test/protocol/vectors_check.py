"""Reads and writes every golden vector with nothing but Python's standard library.

Shares no code with the project: should both sides of a change to the encoding
agree with each other but not with msgpack, this disagrees.
"""
import json
import pathlib
import struct
import sys

VECTORS = pathlib.Path(__file__).resolve().parents[2] / "protocol" / "vectors"
NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
COUNTS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xDC: ">H", 0xDD: ">I", 0xDE: ">H", 0xDF: ">I"}
PLAIN = {0xC0: None, 0xC2: False, 0xC3: True}


class Malformed(Exception):
    pass


class Reader:
    def __init__(self, body):
        self.body, self.at = body, 0

    def take(self, count):
        part = self.body[self.at : self.at + count]
        if len(part) < count:
            raise Malformed("it ends early")
        self.at += count
        return part

    def number(self, form):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self, depth=0):
        if depth > 16:
            raise Malformed("too deep")
        token = self.take(1)[0]
        if token < 0x80 or token >= 0xE0:
            return token if token < 0x80 else token - 0x100
        if token in PLAIN:
            return PLAIN[token]
        if token in NUMBERS:
            return self.number(NUMBERS[token])
        if token < 0x90 or token in (0xDE, 0xDF):
            return self.map(token & 0x0F if token < 0x90 else self.number(COUNTS[token]), depth)
        if token < 0xA0 or token in (0xDC, 0xDD):
            return [self.value(depth + 1) for _ in range(self.fits(token & 0x0F if token < 0xA0 else self.number(COUNTS[token])))]
        if token < 0xC0 or token in (0xD9, 0xDA, 0xDB):
            return self.text(token & 0x1F if token < 0xC0 else self.number(COUNTS[token]))
        raise Malformed(f"token 0x{token:02x}")

    def fits(self, count):
        if count > len(self.body) - self.at:
            raise Malformed("it announces more than it holds")
        return count

    def text(self, count):
        try:
            return self.take(count).decode("utf-8")
        except UnicodeDecodeError as error:
            raise Malformed("not UTF-8") from error

    def map(self, count, depth):
        entries = {}
        for _ in range(self.fits(count)):
            key = self.value(depth + 1)
            if not isinstance(key, str):
                raise Malformed("a key is no string")
            if key in entries:
                raise Malformed(f"the key {key!r} is twice in one map")
            entries[key] = self.value(depth + 1)
        return entries


def read(frame):
    (length,) = struct.unpack(">I", frame[:4])
    if length != len(frame) - 4:
        raise Malformed("the length is wrong")
    reader = Reader(frame[4:])
    value = reader.value()
    if reader.at != length:
        raise Malformed("bytes follow")
    return value


def header(count, small, small_max, wide):
    """The shortest header for `count` of something; `wide` are its longer forms by size."""
    if count <= small_max:
        return bytes([small | count])
    for form, token in wide:
        if count < 256 ** struct.calcsize(form):
            return bytes([token]) + struct.pack(form, count)
    raise ValueError(count)


def write(value):
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, int):
        if value < 0:
            low = [(">b", 0xD0), (">h", 0xD1), (">i", 0xD2), (">q", 0xD3)]
            form, token = next(f for f in low if value >= -(256 ** struct.calcsize(f[0])) // 2)
            return struct.pack("b", value) if value >= -32 else bytes([token]) + struct.pack(form, value)
        return header(value, 0, 0x7F, [(">B", 0xCC), (">H", 0xCD), (">I", 0xCE), (">Q", 0xCF)])
    if isinstance(value, str):
        text = value.encode("utf-8")
        return header(len(text), 0xA0, 31, [(">B", 0xD9), (">H", 0xDA), (">I", 0xDB)]) + text
    if isinstance(value, list):
        return header(len(value), 0x90, 15, [(">H", 0xDC), (">I", 0xDD)]) + b"".join(map(write, value))
    pairs = b"".join(write(key) + write(inner) for key, inner in value.items())
    return header(len(value), 0x80, 15, [(">H", 0xDE), (">I", 0xDF)]) + pairs


def same(left, right):
    """Equal, and integers are integers: 1.0 is not 1."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return type(left) is type(right) and left == right


def faults():
    for name in ("control", "data"):
        for vector in json.loads((VECTORS / f"{name}.json").read_text("utf-8"))["vectors"]:
            frame = bytes.fromhex(vector["frame"])
            body = write(vector["message"])
            if not same(read(frame), vector["message"]):
                yield f"{vector['name']}: reads as {read(frame)}"
            elif struct.pack(">I", len(body)) + body != frame:
                yield f"{vector['name']}: writes as {body.hex()}"
            else:
                yield None
    for vector in json.loads((VECTORS / "invalid.json").read_text("utf-8"))["vectors"]:
        try:
            read(bytes.fromhex(vector["frame"]))
            refused = False
        except (Malformed, RecursionError):
            refused = True
        if refused != (vector["code"] in ("frame_malformed", "frame_too_large")):
            yield f"{vector['name']}: refused is {refused}"


results = list(faults())
for fault in results:
    if fault is not None:
        print(fault)
print(f"{results.count(None)} vectors agree")
sys.exit(0 if all(fault is None for fault in results) else 1)
