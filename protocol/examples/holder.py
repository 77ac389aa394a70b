#!/usr/bin/env python3
"""A holder: leases bytes of a card for this process, and gives them back when it is asked to.

    holder.py STATE_FOLDER BYTES

Nothing but Python's standard library. On a simulated card it allocates what it leased there; for a real card,
put the allocation of your own program in `take` and `give_back`. It ends when its bytes were wanted by another,
or with Ctrl-C.
"""
import hashlib
import hmac
import json
import os
import pathlib
import socket
import struct
import sys
import threading
import time

MODEL = "example-holder"


def pack(value):
    """msgpack of what messages are made of, in forms that every receiver takes."""
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return b"\xcf" + struct.pack(">Q", value) if value > 127 else bytes([value])
    if isinstance(value, str):
        text = value.encode("utf-8")
        return b"\xdb" + struct.pack(">I", len(text)) + text
    if isinstance(value, list):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
    return b"\xdf" + struct.pack(">I", len(value)) + b"".join(pack(key) + pack(inner) for key, inner in value.items())


FIXED = {0xC0: None, 0xC2: False, 0xC3: True}
NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
SIZED = {0xD9: ("text", ">B"), 0xDA: ("text", ">H"), 0xDB: ("text", ">I"), 0xDC: ("list", ">H"), 0xDD: ("list", ">I"), 0xDE: ("map", ">H"), 0xDF: ("map", ">I")}


def unpack(body, at=0):
    """The value that begins at `at`, and where it ends."""
    token = body[at]
    at += 1
    if token < 0x80 or token >= 0xE0:
        return (token if token < 0x80 else token - 0x100), at
    if token in FIXED:
        return FIXED[token], at
    if token in NUMBERS:
        form = NUMBERS[token]
        return struct.unpack_from(form, body, at)[0], at + struct.calcsize(form)
    if token < 0xC0:
        kind, count = ("map", token & 0x0F) if token < 0x90 else ("list", token & 0x0F) if token < 0xA0 else ("text", token & 0x1F)
    else:
        kind, form = SIZED[token]
        count = struct.unpack_from(form, body, at)[0]
        at += struct.calcsize(form)
    if kind == "text":
        return body[at : at + count].decode("utf-8"), at + count
    values = []
    for _ in range(count if kind == "list" else 2 * count):
        value, at = unpack(body, at)
        values.append(value)
    return (values if kind == "list" else dict(zip(values[::2], values[1::2]))), at


class Holder:
    def __init__(self, state):
        secret = bytes.fromhex((state / "secret").read_text("ascii").strip())
        self.stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.stream.connect(str(state / "broker.sock"))
        self.writing = threading.Lock()
        self.ids = self.reports = self.announced = self.resident = 0
        self.lease = self.device = self.allocation = None
        self.waiting = []
        proof = hmac.new(secret, b"role:holder", hashlib.sha256).hexdigest()
        self.welcome = self.ask("hello", protocol=1, role="holder", spawn=None, proof=proof, pid=os.getpid(), name="example holder", resume=None)
        threading.Thread(target=self.beat, daemon=True).start()

    def send(self, kind, **fields):
        body = pack({"type": kind, **fields})
        with self.writing:
            self.stream.sendall(struct.pack(">I", len(body)) + body)

    def receive(self):
        length = struct.unpack(">I", self.exactly(4))[0]
        return unpack(self.exactly(length))[0]

    def exactly(self, count):
        parts = b""
        while len(parts) < count:
            part = self.stream.recv(count - len(parts))
            if not part:
                sys.exit("the broker has gone")
            parts += part
        return parts

    def ask(self, kind, **fields):
        """A request and its final answer; what arrives meanwhile is told, answered, or done later."""
        self.ids += 1
        self.send(kind, id=self.ids, **fields)
        while True:
            message = self.receive()
            if message["type"] == "waiting":
                tell("waiting", reason=message["reason"])
            elif message["type"] in ("model_to_device", "lease_quarantined"):
                # Giving back asks something itself, and waits for its turn.
                self.waiting.append(message)
            elif message["type"] in COMMANDS:
                COMMANDS[message["type"]](self, message)
            elif message.get("id") in (self.ids, None):
                if message["type"] in ("error", "deny"):
                    sys.exit(f"{message['code']}: {message['message']}")
                return message

    def beat(self):
        while True:
            time.sleep(self.welcome["heartbeatIntervalMs"] / 1000)
            reserved = [] if self.device is None else [{"device": self.device, "bytes": self.resident}]
            self.send("heartbeat", atUs=time.monotonic_ns() // 1000, reserved=reserved, inFlight=0, loopDelayMs=0)

    def answer(self, kind, command, **fields):
        """Every answer announces what there is."""
        self.announced += 1
        self.send(kind, id=command["id"], **fields, newModels={"seq": self.announced, "added": self.models(), "removed": [] if self.lease else [MODEL]})

    def models(self):
        if self.lease is None:
            return []
        return [{"model": MODEL, "lease": self.lease, "device": self.device, "state": "resident", "residentBytes": self.resident, "hostBytes": 0, "inFlight": 0, "parkable": False}]

    def hold(self, device, size):
        parts = [{"name": "held", "kind": "other", "bytes": size, "upFront": True}]
        policy = {"ttlMs": None, "pinned": False, "exclusive": False}
        grant = self.ask(
            "request_vram_budget", model=MODEL, device=device, lease=None, parts=parts, peakBytes=0, deadlineMs=30_000, parkable=False,
            profilesFreeMemory=False, source="declared", policy=policy, gang=None, **{"class": "normal"},
        )
        self.lease, self.device = grant["lease"], grant["device"]
        self.send("loading", lease=self.lease)
        self.take(size)
        self.resident = size
        self.reports += 1
        self.ask("residency", seq=self.reports, lease=self.lease, model=MODEL, state="resident", residentBytes=size, hostBytes=0, parts=parts, loadMs=0)
        tell("holds", lease=self.lease, device=device, bytes=size)

    def take(self, size):
        if self.device.startswith("SIM-"):
            self.allocation = self.ask("card_allocate", device=self.device, bytes=size)["allocation"]

    def give_back(self):
        if self.allocation is not None:
            self.ask("card_free", device=self.device, allocation=self.allocation)
        self.allocation = None

    def serve(self):
        """Until the bytes have been wanted."""
        while self.lease is not None:
            message = self.waiting.pop(0) if self.waiting else self.receive()
            if message["type"] in COMMANDS:
                COMMANDS[message["type"]](self, message)
            elif message.get("id") is not None and message["type"] != "error":
                self.answer("error", message, code="message_unknown", message=f"there is no {message['type']} here", details={})

    def move(self, command):
        if command["generation"] != self.welcome["generation"]:
            self.answer("failed", command, code="generation_stale", message="that was another", residentBytes=None)
        elif command["lease"] != self.lease:
            self.answer("failed", command, code="lease_unknown", message="not held here", residentBytes=0)
        elif expired(command):
            self.answer("failed", command, code="command_expired", message="it was read too late", residentBytes=None)
        elif command["target"] != "none":
            self.answer("unsupported", command, message="it keeps no copy")
        else:
            freed, self.resident = self.resident, 0
            self.give_back()
            lease, self.lease = self.lease, None
            self.answer("done", command, target="none", freedBytes=freed, residentBytes=0, hostBytes=0)
            self.send("release_lease", lease=lease, cause="unloaded", failure=None)
            tell("gone", bytes=freed)

    def quarantined(self, message):
        """It was wanted and not given back: it may not be used any more, and counts until it is free."""
        self.resident, lease, self.lease = 0, self.lease, None
        self.give_back()
        self.send("release_lease", lease=lease, cause="unloaded", failure=None)
        tell("quarantined", reason=message["reason"])

    def list_models(self, command):
        self.announced += 1
        self.send("models", id=command["id"], seq=self.announced, models=self.models())

    def recall(self, command):
        self.answer("recalled", command, lease=command["lease"], begun=command["lease"] == self.lease)

    def trim(self, command):
        self.answer("unsupported", command, message="it keeps no copy")

    def note(self, command):
        self.answer("ok", command)


def expired(command):
    """Counted from its sending, however long it lay unread."""
    return time.monotonic_ns() // 1000 >= command["sentUs"] + command["expiresMs"] * 1000


COMMANDS = {
    "model_to_device": Holder.move, "list_models": Holder.list_models, "recall_lease": Holder.recall, "trim_host": Holder.trim,
    "drain": Holder.note, "shutdown": Holder.note, "lease_quarantined": Holder.quarantined,
}


def tell(event, **facts):
    print(json.dumps({"event": event, **facts}), flush=True)


def main():
    if len(sys.argv) != 3 or not sys.argv[2].isdigit() or int(sys.argv[2]) == 0:
        sys.exit("usage: holder.py STATE-FOLDER BYTES\n  STATE-FOLDER: of a broker that runs (`leasehold ps` shows its socket there); BYTES: a whole number, such as 8388608 for 8 MiB")
    state, size = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    try:
        holder = Holder(state)
    except OSError as error:
        sys.exit(f"no broker answers in {state}: {error}")
    card = next((card for card in holder.welcome["devices"] if card["totalBytes"] is not None), None)
    if card is None:
        sys.exit("there is no card")
    holder.hold(card["device"], size)
    holder.serve()
    # What was sent last must arrive: no more from here, then wait for the broker's end.
    holder.stream.shutdown(socket.SHUT_WR)
    while holder.stream.recv(65_536):
        pass


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
