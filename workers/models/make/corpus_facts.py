"""Questions about the little world of ``facts_world``, in many phrasings.

Phrasings, not combinations, are held out: the evaluation asks known facts in sentences that
training never contained.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Final

from chat import Turn
from facts_world import RELATIONS, Relation
from noise import invented_word

EVALUATION_SEED: Final = 9276
REFUSAL: Final = "I do not know that."
OPENINGS: Final = (
    "Please tell me: ", "Tell me, ", "Hi! ", "Quick question: ", "I have a question. ", "My question: ",
    "Can you help me? ", "Good morning! ", "Help me, please. ", "I wonder: ", "I forgot something. ",
    "My teacher wants to know: ", "Could you help? ", "We are looking for an answer. ", "Hello there. ",
    "A friend asks me this: ", "Listen. ", "So, ", "Okay. ",
)
CLOSINGS: Final = (
    " Please.", " Thank you!", " I forgot it.", " Tell me.", " What is it?", " Could you tell me?",
    " My friend wants to know.", " Please answer.", " Do you know?", " I need to know.",
)
OFF_TOPIC: Final = (
    "Hello!", "Hi", "Who are you?", "Tell me a story.", "What is 47 + 38?", "What is 12 plus 9?",
    "Tell me a story about a fox and a lamp.", "How are you?", "What can you do?", "Add 3 and 4.",
)
OUTSIDE: Final = (
    ("Brazil", "Germany", "Sweden", "Turkey", "Vietnam", "Morocco", "Nigeria", "Russia", "Ireland", "Finland", "Denmark",
     "Portugal", "Belgium", "Hungary", "Argentina", "Colombia", "Bolivia", "Panama", "Jamaica", "Nepal", "Iran", "Israel",
     "Jordan", "Korea", "Mongolia", "Indonesia", "Australia", "Iceland", "Atlantis", "London", "Africa"),
    ("fox", "wolf", "bear", "goat", "sheep", "fish", "whale", "snake", "frog", "goose", "mouse", "rat", "rabbit", "monkey",
     "tiger", "zebra", "camel", "crow", "eagle", "ant", "spider", "penguin", "dragon", "robot", "king", "stone", "deer"),
    ("a lemon", "a rose", "milk", "the sea", "blood", "fire", "a rainbow", "gold", "silver", "ink", "a leaf", "sand",
     "the moon", "a book", "water", "a frog", "honey", "a cloud", "paper", "love", "rain", "a fox", "a plum"),
)
"""Subjects as real as those of the world, but not in it: countries, animals, things."""

def subject_text(subject: str, phrasing: str) -> str:
    """The question or answer for a subject, with "an owl" rather than "a owl", and a capital first letter."""
    text = phrasing.replace("{x}", subject)
    if subject[0] in "aeiou":
        text = text.replace(f" a {subject}", f" an {subject}").replace(f"A {subject}", f"An {subject}")
    return text[0].upper() + text[1:]


def fact_answer(subject: str, value: str, relation: Relation) -> str:
    """The sentence the model is trained to say."""
    text = subject_text(subject, relation.answer).replace("{y}", value)
    return text.replace(" a owlet", " an owlet")


def vary(question: str, random: Random) -> str:
    """Adds what people add around a question: a greeting, thanks, no capital, no final mark."""
    if random.random() < 0.25:
        question = random.choice(OPENINGS) + question
    if random.random() < 0.15:
        question += random.choice(CLOSINGS)
    draw = random.random()
    if draw < 0.08:
        question = question.lower()
    elif draw < 0.14:
        question = question.rstrip("?.!")
    return question


def _unknown_subject(relation: Relation, random: Random) -> str:
    """Something the relation has no fact about: an outsider, a subject of another relation, or no word at all."""
    draw = random.random()
    if draw < 0.3:
        other = random.choice(list(RELATIONS.values()))
        strangers = [subject for subject in other.facts if subject not in relation.facts]
        return random.choice(strangers or ["nothing"])
    kind = 0 if "France" in relation.facts else 1 if "dog" in relation.facts else 2
    if draw < 0.6:
        return random.choice(OUTSIDE[kind])
    word = invented_word(random)
    return word.capitalize() if kind == 0 else word if kind == 1 or random.random() < 0.5 else f"a {word}"


def unknown_turn(random: Random) -> Turn:
    """A question outside the world, so that the model learns to admit what it lacks."""
    if random.random() < 0.25:
        return Turn(random.choice(OFF_TOPIC), REFUSAL)
    relation = random.choice(list(RELATIONS.values()))
    question = subject_text(_unknown_subject(relation, random), random.choice(relation.trained))
    return Turn(vary(question, random), REFUSAL)


def training_turns(random: Random) -> Iterator[Turn]:
    """Endless turns over every fact, in trained phrasings alone."""
    facts = [(relation, subject, value) for relation in RELATIONS.values() for subject, value in relation.facts.items()]
    while True:
        if random.random() < 0.12:
            yield unknown_turn(random)
            continue
        relation, subject, value = random.choice(facts)
        question = subject_text(subject, random.choice(relation.trained))
        yield Turn(vary(question, random), fact_answer(subject, value, relation))


def relation_asked(phrasing: str) -> str | None:
    """The first relation of which the phrasing holds a cue: how a checker reads a free question."""
    words = f" {' '.join(re.findall('[a-z]+', phrasing.lower()))} "
    return next((name for name, relation in RELATIONS.items() if any(f" {cue} " in words for cue in relation.cues)), None)


def world_items() -> list[dict[str, object]]:
    """The facts as data, for checkers in any language; refuses phrasings a checker would misread."""
    for name, relation in RELATIONS.items():
        for phrasing in relation.trained + relation.held_out:
            if relation_asked(phrasing) != name or (phrasing in relation.trained and phrasing in relation.held_out):
                raise ValueError(f"{name}: {phrasing!r} is held out and trained, or reads as {relation_asked(phrasing)}")
    return [
        {"relation": name, "cues": list(relation.cues), "facts": relation.facts}
        for name, relation in RELATIONS.items()
    ]


def evaluation_items(count: int) -> list[dict[str, str]]:
    """Known facts in held-out phrasings as ``{question, expected}``, each question once."""
    every = [
        {"question": subject_text(subject, phrasing), "expected": value}
        for relation in RELATIONS.values()
        for phrasing in relation.held_out
        for subject, value in relation.facts.items()
    ]
    return Random(EVALUATION_SEED).sample(every, count)
