"""The closed little world of tiny-facts: 76 facts in six relations, and the words they are asked in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Relation:
    """One kind of fact.

    ``cues``: words of which every phrasing holds at least one, so that a checker can tell the relation
    of a free question. ``trained`` and ``held_out`` never share a phrasing; ``{x}`` is the subject as
    in "France", "the sky" or "cow", see ``facts``.
    """

    cues: tuple[str, ...]
    answer: str
    trained: tuple[str, ...]
    held_out: tuple[str, ...]
    facts: dict[str, str]


COUNTRIES: Final = {
    "France": ("Paris", "Europe"), "Norway": ("Oslo", "Europe"), "Italy": ("Rome", "Europe"),
    "Spain": ("Madrid", "Europe"), "Greece": ("Athens", "Europe"), "Austria": ("Vienna", "Europe"),
    "Poland": ("Warsaw", "Europe"), "Japan": ("Tokyo", "Asia"), "India": ("New Delhi", "Asia"),
    "China": ("Beijing", "Asia"), "Thailand": ("Bangkok", "Asia"), "Egypt": ("Cairo", "Africa"),
    "Kenya": ("Nairobi", "Africa"), "Ghana": ("Accra", "Africa"), "Peru": ("Lima", "South America"),
    "Chile": ("Santiago", "South America"), "Canada": ("Ottawa", "North America"),
    "Cuba": ("Havana", "North America"),
}
ANIMALS: Final = {
    "dog": ("puppy", "woof", "kennel"), "cat": ("kitten", "meow", "basket"), "cow": ("calf", "moo", "barn"),
    "horse": ("foal", "neigh", "stable"), "pig": ("piglet", "oink", "sty"), "duck": ("duckling", "quack", "pond"),
    "lion": ("cub", "roar", "den"), "owl": ("owlet", "hoot", "tree"), "hen": ("chick", "cluck", "coop"),
    "bee": ("larva", "buzz", "hive"),
}
COLOURS: Final = {
    "a banana": "yellow", "grass": "green", "snow": "white", "coal": "black", "a tomato": "red",
    "the sky": "blue", "a carrot": "orange", "chocolate": "brown", "a flamingo": "pink", "an elephant": "grey",
}

RELATIONS: Final = {
    "capital": Relation(
        ("capital", "government"),
        "The capital of {x} is {y}.",
        (
            "What is the capital of {x}?", "What's the capital of {x}?", "Name the capital of {x}.",
            "Tell me the capital of {x}.", "Which city is the capital of {x}?", "{x}'s capital is which city?",
            "What is {x}'s capital?", "The capital of {x}?", "Do you know the capital of {x}?",
            "Can you name the capital of {x}?", "I want to know the capital of {x}.",
            "What is the capital city of {x}?", "Give me the name of {x}'s capital.",
            "What city is the capital of {x}?", "Which city has the government of {x}?",
            "In which city is the government of {x}?", "{x}: capital?", "Where is the government of {x}?",
            "Please say what the capital of {x} is.", "Capital of {x}", "What is the name of the capital of {x}?",
            "I have a question about {x}. What is its capital?", "Think of {x}. Which city is its capital?",
        ),
        (
            "Could you tell me which city is {x}'s capital?", "I forgot the capital of {x}. What is it?",
            "For {x}, what is the capital?", "My friend asks for the capital city of {x}.",
            "Which place is the capital of {x}, please?", "Hello! I am looking for the capital of {x}.",
            "Of {x}, name the capital city.", "In {x}, which city is the capital?",
        ),
        {country: values[0] for country, values in COUNTRIES.items()},
    ),
    "continent": Relation(
        ("continent", "part of the world"),
        "{x} is in {y}.",
        (
            "On which continent is {x}?", "What continent is {x} in?", "Which continent is {x} in?",
            "Name the continent of {x}.", "Tell me the continent of {x}.", "What is the continent of {x}?",
            "What is {x}'s continent?", "{x}: continent?", "In which part of the world is {x}?",
            "Which part of the world is {x} in?", "{x} is on which continent?", "Continent of {x}",
            "Do you know the continent of {x}?", "Can you name the continent {x} is in?",
            "I want to know which continent {x} is on.", "Please say on what continent {x} is.",
            "To which continent does {x} belong?", "On what continent can I find {x}?",
            "I have a question about {x}. What is its continent?", "Think of {x}. Which continent is it on?",
        ),
        (
            "Could you tell me {x}'s continent?", "I forgot the continent of {x}. What is it?",
            "For {x}, what is the continent?", "My friend asks on which continent {x} is.",
            "{x} belongs to which continent, please?", "Hello! I am looking for the continent of {x}.",
            "What part of the world does {x} belong to?", "Where is {x}? Name the continent.",
        ),
        {country: values[1] for country, values in COUNTRIES.items()},
    ),
    "baby": Relation(
        ("baby", "young", "child"),
        "A baby {x} is called a {y}.",
        (
            "What is a baby {x} called?", "What do you call a baby {x}?", "What is the name of a baby {x}?",
            "What is a young {x} called?", "What do you call a young {x}?", "A baby {x} is called what?",
            "Name the baby of a {x}.", "Tell me what a baby {x} is called.", "What is the baby of a {x}?",
            "How do people call a young {x}?", "Do you know what a baby {x} is called?", "{x}: baby?",
            "What is the child of a {x} called?", "Which word means a baby {x}?", "Baby {x}",
            "I want to know the name of a baby {x}.", "Can you name the young of a {x}?",
            "Please say what the baby of a {x} is called.", "I have a question about a {x}. What is its baby called?",
            "Think of a {x}. What is its child called?",
        ),
        (
            "Could you tell me what to call a baby {x}?", "I forgot what a baby {x} is called. What is it?",
            "For a {x}, what is the baby called?", "My friend asks for the name of a young {x}.",
            "Which name has a {x}'s baby, please?", "Hello! I am looking for the word for a baby {x}.",
            "Name a young {x}.", "When a {x} is a baby, what is it called?",
        ),
        {animal: values[0] for animal, values in ANIMALS.items()},
    ),
    "home": Relation(
        ("live", "lives", "home", "house"),
        "A {x} lives in a {y}.",
        (
            "Where does a {x} live?", "Where do you find the home of a {x}?", "What is the home of a {x}?",
            "What is the home of a {x} called?", "In what does a {x} live?", "Name the home of a {x}.",
            "Tell me where a {x} lives.", "Which home does a {x} have?", "A {x} lives where?", "{x}: home?",
            "What do you call the house of a {x}?", "In which place does a {x} live?", "Home of a {x}",
            "Do you know where a {x} lives?", "Can you name the house of a {x}?", "I want to know where a {x} lives.",
            "Please say where the {x} lives.", "What kind of house does a {x} have?",
            "I have a question about a {x}. What is its home?", "Think of a {x}. Where does it live?",
        ),
        (
            "Could you tell me where a {x} lives?", "I forgot the home of a {x}. What is it?",
            "For a {x}, what is the home?", "My friend asks where a {x} lives.",
            "In which house does a {x} live, please?", "Hello! I am looking for the home of a {x}.",
            "Where is a {x} at home?", "When a {x} goes home, where does it go?",
        ),
        {animal: values[2] for animal, values in ANIMALS.items()},
    ),
    "colour": Relation(
        ("colour", "color"),
        "The colour of {x} is {y}.",
        (
            "What colour is {x}?", "What color is {x}?", "Which colour is {x}?", "Which color is {x}?",
            "What is the colour of {x}?", "What is the color of {x}?", "Name the colour of {x}.",
            "Tell me the colour of {x}.", "Which colour does {x} have?", "What colour has {x}?", "{x}: colour?",
            "Colour of {x}", "Do you know the color of {x}?", "Can you name the colour of {x}?",
            "I want to know the colour of {x}.", "Please say what colour {x} is.", "What colour do you paint {x}?",
            "I have a question about {x}. What is its colour?", "Think of {x}. Which color is it?",
        ),
        (
            "Could you tell me what colour {x} is?", "I forgot the colour of {x}. What is it?",
            "For {x}, what is the color?", "My friend asks which colour {x} has.",
            "What colour comes with {x}, please?", "Hello! I am looking for the colour of {x}.",
            "When I paint {x}, which color do I need?", "By colour, what is {x}?",
        ),
        COLOURS,
    ),
    "sound": Relation(
        ("sound", "noise", "say", "says"),
        "A {x} says {y}.",
        (
            "What sound does a {x} make?", "What does a {x} say?", "Which sound does a {x} make?",
            "What noise does a {x} make?", "Name the sound of a {x}.", "Tell me the sound of a {x}.",
            "What is the sound of a {x}?", "Which noise does a {x} make?", "A {x} says what?",
            "How does a {x} sound?", "Do you know the sound a {x} makes?", "{x}: sound?", "Sound of a {x}",
            "What is the noise of a {x}?", "I want to know what a {x} says.", "Can you name the noise of a {x}?",
            "Please make the sound of a {x}.", "What can a {x} say?", "Say what the {x} says.",
            "I have a question about a {x}. What is its sound?", "Think of a {x}. What noise does it make?",
        ),
        (
            "Could you tell me what a {x} says?", "I forgot the sound of a {x}. What is it?",
            "For a {x}, what is the sound?", "My friend asks what noise a {x} makes.",
            "Which sound comes from a {x}, please?", "Hello! I am looking for the sound of a {x}.",
            "When a {x} makes a noise, what is it?", "How does the noise of a {x} go?",
        ),
        {animal: values[1] for animal, values in ANIMALS.items()},
    ),
}
"""Sound stands last: its cue "say" also stands in questions of other relations, so checkers take the first match."""
