"""Who and what the stories are about: characters with a name, a home and a friend; things with a use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Temper = Literal["bold", "shy"]
Use = Literal["light", "music", "travel", "warmth", "secret", "food"]


@dataclass(frozen=True)
class Character:
    """``he``/``his`` are the pronouns; ``temper`` decides with a thing's use which plot is told."""

    name: str
    he: str
    his: str
    temper: Temper
    trait: str
    home: str
    friend: str
    favourite: str


@dataclass(frozen=True)
class Thing:
    """``found``: where it is come upon, as in "under an old tree"."""

    use: Use
    look: str
    found: str


def _he(name: str, temper: Temper, trait: str, home: str, friend: str, favourite: str) -> Character:
    return Character(name, "he", "his", temper, trait, home, friend, favourite)


def _she(name: str, temper: Temper, trait: str, home: str, friend: str, favourite: str) -> Character:
    return Character(name, "she", "her", temper, trait, home, friend, favourite)


CHARACTERS: Final[dict[str, Character]] = {
    "fox": _he("Finn", "bold", "clever", "at the edge of a green wood", "rabbit", "lamp"),
    "rabbit": _she("Ruby", "shy", "quick", "in a sunny meadow", "mole", "drum"),
    "bear": _he("Bruno", "shy", "big and gentle", "in a warm cave", "bee", "pie"),
    "mouse": _she("Mimi", "bold", "tiny", "behind the wall of an old mill", "cat", "key"),
    "cat": _she("Cleo", "bold", "proud", "in a little house by the sea", "mouse", "hat"),
    "dog": _he("Duke", "bold", "loyal", "on a farm at the end of the road", "cat", "balloon"),
    "owl": _she("Olive", "shy", "wise", "in a hollow oak", "fox", "book"),
    "frog": _he("Fred", "bold", "cheerful", "beside a quiet pond", "duck", "boat"),
    "duck": _she("Dora", "shy", "kind", "beside a quiet pond", "frog", "scarf"),
    "hedgehog": _he("Hugo", "shy", "small and careful", "under a heap of leaves", "squirrel", "lantern"),
    "squirrel": _she("Sally", "bold", "busy", "high in a pine tree", "hedgehog", "map"),
    "mole": _he("Max", "shy", "patient", "in a tunnel below the hill", "rabbit", "candle"),
    "bee": _she("Bella", "bold", "hard-working", "in a garden full of flowers", "bear", "cake"),
    "horse": _he("Henry", "bold", "strong", "on a farm at the end of the road", "dog", "wagon"),
    "lion": _he("Leo", "shy", "mighty", "on a wide golden plain", "mouse", "flute"),
    "dragon": _she("Daisy", "shy", "young", "on top of a high mountain", "knight", "blanket"),
    "knight": _he("Karl", "bold", "brave", "in a castle of grey stone", "dragon", "ring"),
    "girl": _she("Anna", "bold", "curious", "in a village by the river", "boy", "kite"),
    "boy": _he("Ben", "shy", "thoughtful", "in a village by the river", "girl", "letter"),
    "robot": _he("Rob", "bold", "shiny", "in a workshop full of wheels", "girl", "bell"),
    "penguin": _she("Pia", "bold", "funny", "on a white and icy shore", "whale", "coat"),
    "whale": _he("Walt", "shy", "very big", "in the deep blue sea", "penguin", "bell"),
    "wolf": _he("Will", "shy", "lonely", "in a dark forest", "owl", "fiddle"),
    "elephant": _she("Ella", "shy", "gentle", "on a wide golden plain", "lion", "apple"),
}

THINGS: Final[dict[str, Thing]] = {
    "lamp": Thing("light", "old", "under a bush"),
    "lantern": Thing("light", "red", "beside the path"),
    "candle": Thing("light", "white", "in a wooden box"),
    "torch": Thing("light", "long", "near the old bridge"),
    "drum": Thing("music", "round", "in the tall grass"),
    "flute": Thing("music", "silver", "beside a stream"),
    "bell": Thing("music", "golden", "under a fallen tower"),
    "fiddle": Thing("music", "brown", "on a bench"),
    "boat": Thing("travel", "small", "between the reeds"),
    "kite": Thing("travel", "blue", "in the branches of a tree"),
    "wagon": Thing("travel", "wooden", "behind a barn"),
    "balloon": Thing("travel", "red", "on top of a hill"),
    "hat": Thing("warmth", "tall", "on a fence"),
    "scarf": Thing("warmth", "long", "on a branch"),
    "blanket": Thing("warmth", "soft", "beside the path"),
    "coat": Thing("warmth", "thick", "on an old chair"),
    "key": Thing("secret", "golden", "under a flat stone"),
    "map": Thing("secret", "torn", "inside an old bottle"),
    "book": Thing("secret", "heavy", "on a dusty shelf"),
    "letter": Thing("secret", "folded", "under a door"),
    "ring": Thing("secret", "silver", "in the sand"),
    "pie": Thing("food", "warm", "on a window sill"),
    "cake": Thing("food", "sweet", "on a wooden table"),
    "apple": Thing("food", "red", "under a tree"),
}
