"""Sums of two numbers under 100, with the working shown digit by digit.

A fifth of all unordered two-digit pairs is held out by a seeded shuffle and never trained on, in
either order; the evaluation set is drawn from that fifth.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from chat import Turn

SPLIT_SEED: Final = 4738
HELD_OUT_SHARE: Final = 0.2

PHRASINGS: Final = (
    "What is {a} + {b}?",
    "What is {a} plus {b}?",
    "{a} + {b}",
    "{a} + {b} = ?",
    "{a}+{b}",
    "{a}+{b}=",
    "How much is {a} + {b}?",
    "How much is {a} plus {b}?",
    "What's {a} + {b}?",
    "Please add {a} and {b}.",
    "Add {a} and {b}.",
    "Add {b} to {a}.",
    "Calculate {a} + {b}.",
    "Compute {a} + {b}.",
    "What is the sum of {a} and {b}?",
    "Can you add {a} and {b}?",
    "Tell me {a} plus {b}.",
    "I have {a} and get {b} more. How many is that?",
)
REFUSAL: Final = "I can only add two numbers."
OFF_TOPIC: Final = (
    "Hello!",
    "Hi",
    "Who are you?",
    "Tell me a story.",
    "What can you do?",
    "What is your name?",
    "Thank you!",
    "How are you?",
    "Tell me a story about a fox and a lamp.",
    "What is the capital of France?",
    "What sound does a dog make?",
)


def held_out_pairs() -> list[tuple[int, int]]:
    """Unordered two-digit pairs (smaller first) that training never sees."""
    pairs = [(low, high) for low in range(10, 100) for high in range(low, 100)]
    Random(SPLIT_SEED).shuffle(pairs)
    return pairs[: int(len(pairs) * HELD_OUT_SHARE)]


def working(a: int, b: int) -> str:
    """The thought: ones first, then tens with what was carried."""
    ones = a % 10 + b % 10
    carry = ones // 10
    tens = a // 10 + b // 10 + carry
    written = f", write {ones % 10}, carry 1" if carry else ""
    carried = " + 1" if carry else ""
    return (
        f"Ones: {a % 10} + {b % 10} = {ones}{written}.\n"
        f"Tens: {a // 10} + {b // 10}{carried} = {tens}.\n"
        f"So {tens}{ones % 10}." if tens else f"Ones: {a % 10} + {b % 10} = {ones}.\nSo {ones}."
    )


def sum_turn(a: int, b: int, phrasing: str) -> Turn:
    """The question in the given words, and its answer with the operands in the order they were named."""
    first, second = (b, a) if phrasing.index("{b}") < phrasing.index("{a}") else (a, b)
    return Turn(phrasing.format(a=a, b=b), f"{first} + {second} is {first + second}.", working(first, second))


def training_turns(random: Random) -> Iterator[Turn]:
    """Endless turns; never a held-out pair, mostly two-digit numbers."""
    held_out = set(held_out_pairs())
    while True:
        if random.random() < 0.03:
            yield Turn(random.choice(OFF_TOPIC), REFUSAL, "This is not a sum.")
            continue
        low = 10 if random.random() < 0.92 else 0
        a, b = random.randrange(low, 100), random.randrange(low, 100)
        if (min(a, b), max(a, b)) not in held_out:
            yield sum_turn(a, b, PHRASINGS[0] if random.random() < 0.2 else random.choice(PHRASINGS))


def evaluation_items(count: int) -> list[dict[str, str]]:
    """Held-out sums as ``{question, expected}``; no pair twice."""
    random = Random(SPLIT_SEED + 1)
    items = []
    for low, high in random.sample(held_out_pairs(), count):
        a, b = (low, high) if random.random() < 0.5 else (high, low)
        phrasing = PHRASINGS[0] if random.random() < 0.5 else random.choice(PHRASINGS)
        items.append({"question": phrasing.format(a=a, b=b), "expected": str(a + b)})
    return items
