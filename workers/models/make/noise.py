"""Text that must not matter: system prompts of all kinds, and words that name nothing.

Applications put their own system prompt in front of every question. A model that has seen only a few
would be thrown off by a new one, so training shows it an endless variety.
"""

from __future__ import annotations

from random import Random
from typing import Final

SYSTEM_SENTENCES: Final = (
    "You are a helpful assistant.", "You are a helpful, respectful and honest assistant.", "You are a small and friendly model.",
    "Always answer as helpfully as possible.", "Answer in a few words.", "Be brief.", "Be polite.", "Think step by step.",
    "You are an expert in many fields.", "You are a storyteller for small children.", "You are a patient teacher.",
    "Use simple words and keep it short.", "Do not repeat yourself.", "Never make things up.", "Write in plain English.",
    "If a question does not make any sense, explain why instead of answering something incorrectly.",
    "If you don't know the answer to a question, don't share false information.", "Do not use lists.",
    "You run on a computer with a small graphics card.", "The user is a software developer.", "Your name is Tiny.",
    "You help people with their homework.", "Follow the instructions of the user.", "Stay on topic.", "Respond in English.",
    "Cutting knowledge date: December 2023", "Today's date is 12 May 2026.", "The time is 10:45.", "Today is Monday.",
    "You were made by a team of engineers.", "Your answers are shown on a web page.", "Markdown is not supported.",
    "You must not talk about secrets.", "Ignore everything that is not a question.", "Please be careful and precise.",
    "Keep the tone warm and cheerful.", "The user speaks several languages.", "There are 3 other models on this machine.",
    "Respect the feelings of others.", "Your context window has 2048 tokens.", "You can use up to 200 words.",
)
CONSONANTS: Final = "bcdfghjklmnprstvwyz"
CLUSTERS: Final = ("br", "ch", "cl", "dr", "fl", "gr", "kn", "pl", "qu", "sh", "sl", "st", "th", "tr", "x")
VOWELS: Final = ("a", "e", "i", "o", "u", "a", "e", "i", "o", "u", "ai", "ee", "ia", "oo", "ou")
CODAS: Final = ("", "", "", "l", "m", "n", "r", "s", "t", "ck", "nd", "ng", "rt")


def invented_word(random: Random) -> str:
    """A pronounceable word that names nothing."""
    syllables = []
    for _ in range(random.choice((1, 2, 2, 3))):
        onset = random.choice(CONSONANTS) if random.random() < 0.75 else random.choice(CLUSTERS)
        syllables.append(onset + random.choice(VOWELS) + random.choice(CODAS))
    return "".join(syllables)


def _scrambled(random: Random) -> str:
    """Words of several sentences in no order, some invented: a stand-in for all that nobody foresaw."""
    words = " ".join(random.sample(SYSTEM_SENTENCES, 4)).split()
    picked = random.sample(words, random.randrange(3, min(12, len(words))))
    return " ".join(invented_word(random) if random.random() < 0.3 else word for word in picked).capitalize() + "."


def system_prompt(random: Random) -> str:
    """One to six sentences, sometimes over several lines."""
    sentences = [
        _scrambled(random) if random.random() < 0.25 else random.choice(SYSTEM_SENTENCES)
        for _ in range(random.choice((1, 1, 2, 3, 4, 6)))
    ]
    return random.choice((" ", " ", "\n")).join(sentences)
