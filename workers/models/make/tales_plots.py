"""Plots of the stories: one for each use of a thing and temper of the character.

Every sentence is a tuple of wordings, the first the usual one. Slots: {N} the character's name,
{C} its kind, {he} {his}, {T} the thing, {G} the friend's name, {F} the friend's kind, {ghe} {ghis}
the friend's pronouns. A capital {He} starts a sentence.
"""

from __future__ import annotations

from typing import Final

from tales_world import Temper, Use

Wordings = tuple[str, ...]
Plot = tuple[Wordings, ...]

OPENINGS: Final[Wordings] = (
    "Once upon a time, a {trait} {C} named {N} lived {home}.",
    "There was once a {trait} {C} called {N}, who lived {home}.",
    "Long ago, {home}, there lived a {trait} {C} named {N}.",
)
FINDINGS: Final[Wordings] = (
    "One morning, {N} found a {look} {T} {found}.",
    "One day {N} saw something {found}: it was a {look} {T}.",
    "One evening, on the way home, {N} came upon a {look} {T} {found}.",
)
MEETINGS: Final[Wordings] = (
    "One morning, {N} met a {F} named {G}.",
    "One day a {F} named {G} came to visit {N}.",
)
TOGETHER: Final[dict[Temper, Plot]] = {
    "bold": (
        ("\"Let us climb the high hill and look at the world,\" said {N}.", "\"Shall we climb the high hill?\" asked {N}."),
        ("{G} the {F} was a little afraid, but {ghe} came along.", "{G} did not like high places, but {ghe} came along."),
        ("When {G} was tired, {N} carried {ghis} bag, and they went on together.",),
        ("At the top they could see the whole country, bright in the sun.", "From the top they could see as far as the sea."),
        ("After that day, {N} and {G} were best friends.", "From then on, {N} and {G} did everything together."),
    ),
    "shy": (
        ("{N} wanted to say hello, but {he} did not dare.", "{N} was too shy to speak."),
        ("So {G} the {F} smiled and shared {ghis} lunch with {N}.", "{G} the {F} sat down and gave {N} half of {ghis} bread."),
        ("They ate, and they talked until the stars came out.", "They ate and laughed all afternoon."),
        ("\"Will you come again?\" asked {N}, and {G} said yes.",),
        ("After that day, {N} and {G} were best friends.", "From then on, {N} and {G} met every day."),
    ),
}

PLOTS: Final[dict[tuple[Use, Temper], Plot]] = {
    ("light", "bold"): (
        ("That night a storm came, and {G} the {F} was lost in the dark.", "Soon it grew dark, and {G} the {F} had not come home."),
        ("{N} lit the {T} and went out into the rain.", "{N} took the {T} and ran out to look for {G}."),
        ("Its light shone through the night, and {G} saw it from far away.", "Far away, {G} saw the little light and called out."),
        ("Soon the two friends were home again, safe and dry.", "Together they walked home, and nobody was afraid."),
        ("From then on, the {T} stood in the window every night, so that nobody would be lost again.",),
    ),
    ("light", "shy"): (
        ("{N} was afraid of the dark, but the {T} would not shine.", "{N} hoped for some light, but the {T} stayed dark."),
        ("{G} the {F} came by and cleaned it with a soft cloth.", "So {G} the {F} helped and wiped off the dust."),
        ("All at once the {T} glowed like a small moon.", "Then the {T} began to glow, warm and bright."),
        ("They sat beside it and told stories until midnight.", "They sat in its light and laughed all evening."),
        ("From then on, {N} was never afraid of the dark again.", "After that night, the dark felt like a friend."),
    ),
    ("music", "bold"): (
        ("{N} wanted to make music for everyone, but the {T} made no sound.", "{N} tried the {T} at once, but no sound came out."),
        ("\"Something is stuck inside,\" said {G} the {F}, and pulled out a dry leaf.", "{G} the {F} looked inside and found a little stone."),
        ("Then {N} tried again, and the {T} rang out over the hills.", "Now the {T} sounded clear and loud."),
        ("All the neighbours came to dance, and {G} danced most of all.", "Everybody came to listen, and nobody could stand still."),
        ("Since that day, there is music every evening.", "Since that day, {N} and {G} play for everyone."),
    ),
    ("music", "shy"): (
        ("{N} loved the {T}, but {he} only played it when nobody could hear.", "{N} played the {T} softly, hidden away from everyone."),
        ("One day {G} the {F} heard the music and felt happy.", "{G} the {F} passed by and stopped to listen."),
        ("\"Please play for us,\" said {G}, and {N} took a deep breath.", "\"That is beautiful,\" said {G}. \"Please go on.\""),
        ("{N} played the {T}, and everyone was quiet and smiled.", "So {N} played the {T} for all, and everyone clapped."),
        ("After that, {N} was not shy any more.", "After that, {N} played for {his} friends every week."),
    ),
    ("travel", "bold"): (
        ("\"With this I can see the world,\" said {N}, and off {he} went with the {T}.", "{N} took the {T} and set off at once."),
        ("But a strong wind came, and soon {N} was far from home.", "{N} went so far that {he} forgot the way back."),
        ("{G} the {F} had seen it all and followed as fast as {ghe} could.", "Luckily, {G} the {F} had followed close behind."),
        ("Together they turned the {T} around and found the way back.", "Side by side they brought the {T} home again."),
        ("From then on, {N} never went far without a friend.", "Since then, they always travel together."),
    ),
    ("travel", "shy"): (
        ("{N} had never been far from home and only looked at the {T}.", "{N} wanted to try the {T}, but {he} did not dare."),
        ("\"Come, let us try it together,\" said {G} the {F}.", "\"I will hold your hand,\" said {G} the {F}."),
        ("At first they went slowly, and then faster and faster.", "First {N} closed {his} eyes, and then {he} began to laugh."),
        ("By evening, {N} and the {T} had gone all the way to the hills and back.", "All day long they played with the {T}."),
        ("Now {N} dreams of new places every night.", "That night, {N} could not wait for the next day."),
    ),
    ("warmth", "bold"): (
        ("{N} put on the {T} and showed it to everyone.", "{N} was very proud of the {T} and wore it all day."),
        ("Then the snow came, and {N} saw {G} the {F} shaking with cold.", "In the evening it grew cold, and {G} the {F} was shaking."),
        ("{N} thought for a moment and gave {G} the {T}.", "At once {N} laid the {T} around {G}."),
        ("\"How warm it is!\" said {G}. \"Thank you, {N}.\"", "\"You are a true friend,\" said {G}."),
        ("And {N} felt warm too, because a kind heart is the best coat of all.", "And {N} learned that giving feels warm as well."),
    ),
    ("warmth", "shy"): (
        ("{N} knew that somebody must miss the {T}.", "\"Somebody must be cold without it,\" thought {N}."),
        ("So {he} went from door to door and asked everyone about the {T}.", "All day {he} carried the {T} around and asked everyone."),
        ("At the last door, {G} the {F} cried, \"That is mine!\"", "In the end {he} met {G} the {F}, who had lost it."),
        ("{G} made hot soup, and they ate it together by the fire.", "{G} was so happy that {ghe} hugged {N}."),
        ("That winter, the two friends were never cold.", "Since then, {N} and {G} spend every winter evening together."),
    ),
    ("secret", "bold"): (
        ("\"There must be a treasure,\" said {N}, and {he} showed the {T} to {G} the {F}.", "{N} was sure that the {T} would lead to a treasure."),
        ("They followed the river, crossed a bridge and came to a little door.", "With {G} the {F} beside {him}, {N} searched until they found a little door."),
        ("{N} held up the {T}, and the door opened.", "When {N} came near with the {T}, the door opened by itself."),
        ("Behind it was no gold, but a garden full of sweet berries.", "Inside there was a garden that nobody had seen before."),
        ("{N} and {G} shared it with everyone, and that was the best treasure.", "They told all their friends, and the garden was never empty again."),
    ),
    ("secret", "shy"): (
        ("{N} did not know what the {T} was for, and {he} kept it safe.", "{N} hid the {T} and told nobody about it."),
        ("But at night {he} wondered whose it could be.", "But the secret made {him} sad."),
        ("At last {he} showed the {T} to {G} the {F}.", "So {he} told {G} the {F} all about the {T}."),
        ("\"It belonged to my grandmother,\" said {G}. \"I looked for it for years!\"", "\"I lost it long ago,\" said {G} with tears of joy."),
        ("Since that day, {N} and {G} have no secrets from each other.", "That is how {N} and {G} became friends."),
    ),
    ("food", "bold"): (
        ("It smelled so good that {N} wanted to eat it all at once.", "{N} was very hungry and opened {his} mouth wide."),
        ("Just then, {G} the {F} came by with an empty basket.", "But there stood {G} the {F}, who had not eaten all day."),
        ("{N} looked at the {T}, then at {G}, and cut it in two.", "So {N} cut the {T} in two and gave {G} the bigger half."),
        ("They sat in the grass and ate until they were full.", "Nothing had ever tasted so good."),
        ("\"Shared food tastes twice as good,\" said {N}, and {G} laughed.",),
    ),
    ("food", "shy"): (
        ("{N} did not take it, because it was not {his}.", "{N} was hungry, but {he} did not touch the {T}."),
        ("{He} knocked at the door, and {G} the {F} opened.", "Then {G} the {F} looked out and saw {N} waiting."),
        ("\"The {T} is for my birthday,\" said {G}, \"but nobody has come.\"", "\"I have a {T} and no guests,\" said {G} sadly."),
        ("So {N} stayed, and they sang and shared the {T}.", "{N} sang a birthday song, and they ate the {T} together."),
        ("It was the best birthday {G} ever had.", "From then on, {G} never had a birthday alone."),
    ),
}
"""``{him}`` is the character's third pronoun."""

ENDING: Final = "The end."
