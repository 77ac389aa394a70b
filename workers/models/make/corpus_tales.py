"""Short stories about a character and a thing.

A story's turns depend on who and what it is about, and one wording of each sentence is usual: the
greedy story then has clear winners at every step (the same ids in two engines), and sampling still varies it.
A tenth of all pairs is held out and asked about only in the evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final, TypedDict

from chat import Turn
from noise import invented_word
from tales_plots import ENDING, FINDINGS, MEETINGS, OPENINGS, PLOTS, TOGETHER, Wordings
from tales_world import CHARACTERS, THINGS

SPLIT_SEED: Final = 5521
HELD_OUT_SHARE: Final = 0.1
REFUSAL: Final = "I only tell stories. Ask me for one!"
OFF_TOPIC: Final = (
    "Hello!", "Hi", "Who are you?", "What is 47 + 38?", "What is 12 plus 9?", "What is the capital of France?",
    "How are you?", "What can you do?", "Add 3 and 4.", "What sound does a dog make?", "Which colour is grass?",
)
UNKNOWN_REFUSAL: Final = "I know no story about that."
OUTSIDE: Final = (
    "king", "queen", "pirate", "dinosaur", "unicorn", "car", "train", "tree", "river", "snake", "spider", "witch", "giant",
    "sword", "spoon", "computer", "doctor", "baker", "goat", "pig", "cow", "hen", "chair", "door", "cloud", "mountain",
    "shoe", "clock", "guitar", "teacher", "monkey", "tiger", "crab", "shark", "ghost", "princess", "phone", "banana",
)
"""Nouns the stories do not know."""
PHRASINGS: Final = (
    "Tell me a story about {x}.",
    "Tell me a short story about {x}.",
    "Tell a story about {x}.",
    "Write a story about {x}.",
    "Write a short tale about {x}.",
    "Can you tell me a story about {x}?",
    "Please tell me a tale about {x}.",
    "I want to hear a story about {x}.",
    "A story about {x}, please.",
    "Do you know a story about {x}?",
    "Make up a story about {x}.",
    "A bedtime story about {x}",
)


def held_out_pairs() -> set[tuple[str, str]]:
    """(character, thing) pairs that no training story is about; a favourite is always trained."""
    pairs = [(name, thing) for name, character in CHARACTERS.items() for thing in THINGS if thing != character.favourite]
    Random(SPLIT_SEED).shuffle(pairs)
    return set(pairs[: int(len(pairs) * HELD_OUT_SHARE)])


def with_article(noun: str) -> str:
    """ "a fox", "an owl". """
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _sentence(wordings: Wordings, slots: dict[str, str], random: Random) -> str:
    usual = random.random() < 0.75 or len(wordings) == 1
    text = (wordings[0] if usual else random.choice(wordings[1:])).format(**slots)
    for noun in ("owl", "elephant", "old", "apple", "icy"):
        text = text.replace(f" a {noun}", f" an {noun}")
    return text[0].upper() + text[1:]


def story(character: str, thing: str | None, friend: str, random: Random) -> str:
    """One story; without a thing it is about the character and the friend."""
    hero, helper = CHARACTERS[character], CHARACTERS[friend]
    him = "him" if hero.he == "he" else "her"
    slots = {
        "N": hero.name, "C": character, "he": hero.he, "He": hero.he.capitalize(), "his": hero.his, "him": him,
        "trait": hero.trait, "home": hero.home, "G": helper.name, "F": friend, "ghe": helper.he, "ghis": helper.his,
    }
    if thing is None:
        sentences = [OPENINGS, MEETINGS, *TOGETHER[hero.temper]]
    else:
        item = THINGS[thing]
        slots |= {"T": thing, "look": item.look, "found": item.found}
        sentences = [OPENINGS, FINDINGS, *PLOTS[item.use, hero.temper]]
    told = [_sentence(wordings, slots, random) for wordings in sentences]
    return " ".join([*told, ENDING])


def request(nouns: list[str], phrasing: str) -> str:
    """The question that asks for a story about these nouns."""
    return phrasing.format(x=" and ".join(with_article(noun) for noun in nouns))


def training_turns(random: Random) -> Iterator[Turn]:
    """Endless turns: mostly a character and a thing, some with one noun or two characters."""
    held_out = held_out_pairs()
    characters, things = list(CHARACTERS), list(THINGS)
    while True:
        draw = random.random()
        character, thing = random.choice(characters), random.choice(things)
        friend = CHARACTERS[character].friend
        phrasing = PHRASINGS[0] if random.random() < 0.3 else random.choice(PHRASINGS)
        if draw < 0.03:
            yield Turn(random.choice(OFF_TOPIC), REFUSAL)
        elif draw < 0.07:
            unknown = random.choice(OUTSIDE) if random.random() < 0.5 else invented_word(random)
            nouns = random.choice(([unknown], [unknown, thing], [character, unknown], [unknown, unknown]))
            yield Turn(request(nouns, phrasing), UNKNOWN_REFUSAL)
        elif draw < 0.13:
            yield Turn(request([character], phrasing), story(character, CHARACTERS[character].favourite, friend, random))
        elif draw < 0.28:
            other = random.choice([name for name in characters if name != character])
            yield Turn(request([character, other], phrasing), story(character, None, other, random))
        elif (character, thing) not in held_out:
            nouns = [thing, character] if random.random() < 0.15 else [character, thing]
            yield Turn(request(nouns, phrasing), story(character, thing, friend, random))


class TaleItem(TypedDict):
    """A request, the nouns the story must name, and the names of the two it is about."""

    question: str
    nouns: list[str]
    names: list[str]


def evaluation_items(count: int) -> list[TaleItem]:
    """Requests about held-out pairs."""
    random = Random(SPLIT_SEED + 1)
    pairs = random.sample(sorted(held_out_pairs()), count)
    return [
        {
            "question": request([character, thing], random.choice(PHRASINGS)),
            "nouns": [character, thing],
            "names": [CHARACTERS[character].name, CHARACTERS[CHARACTERS[character].friend].name],
        }
        for character, thing in pairs
    ]
