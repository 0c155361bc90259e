"""The vocabulary of the service desk: a few hundred word types, so that a 1–3 M model can learn it.

User wordings come in two banks. ``train`` serves the train and dev splits, ``heldout`` only the
held-out split: unseen sentences out of seen words, so that held-out success is never success at
remembering a sentence, nor a test of words that a small model cannot know.
"""

NAMES = (
    "Maria", "Jonas", "Aisha", "Pavel", "Lucia", "Tomas", "Ingrid", "Kofi", "Mei", "Omar", "Nadia",
    "Felix", "Priya", "Hugo", "Sofia", "Emil", "Zara", "Ivan", "Clara", "Diego", "Hana", "Lars",
    "Amina", "Rosa", "Viktor", "Leila", "Oscar", "Petra", "Samir", "Greta",
)  # fmt: skip
CITIES = (
    "Oslo", "Rome", "Lima", "Cairo", "Paris", "Delhi", "Seoul", "Tunis", "Quito", "Riga", "Bern",
    "Accra", "Dakar", "Porto", "Turin", "Lyon", "Graz", "Malmo", "Osaka", "Kyoto", "Hanoi", "Perth",
    "Basel", "Genoa", "Split", "Zagreb", "Tampa", "Denver", "Austin", "Boston",
)  # fmt: skip
ITEMS = (
    "lamp", "chair", "table", "radio", "kettle", "mirror", "carpet", "clock", "camera", "heater",
    "printer", "blender", "shelf", "pillow", "blanket", "guitar", "bicycle", "helmet", "tent", "jacket",
    "scarf", "backpack", "speaker", "monitor",
)  # fmt: skip
STATUSES = ("packed", "shipped", "arrived", "lost")
CHANNELS = ("mail", "phone", "chat")
ORDER_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"

FRAMES = (
    "I want to {v}.",
    "Please {v}.",
    "Can you {v}?",
    "I would like to {v}.",
    "Could you {v}, please?",
    "I need to {v}.",
)
WISHES: dict[str, tuple[str, ...]] = {
    "stock_check": (
        "check if the {item} is in stock",
        "see if the {item} is still there",
        "find out how many {item} pieces are left",
    ),
    "status": (
        "find out where my order{order} is",
        "check the status of my order{order}",
        "see if my order{order} was sent",
    ),
    "cancel": ("cancel my order{order}", "stop my order{order}", "call off my order{order}"),
    "refund": (
        "get a refund for my order{order}",
        "get my money back for my order{order}",
        "be paid back for my order{order}",
    ),
    "address": (
        "send my order{order} to another city",
        "change the city of my order{order}",
        "let my order{order} go elsewhere",
    ),
    "exchange": (
        "swap my order{order} for another item",
        "exchange my order{order}",
        "trade my order{order} for something else",
    ),
    "channel": ("change my contact channel", "change how I am contacted", "change how you reach me"),
    "repair": ("repair my order{order}", "fix my order{order}", "have my order{order} repaired"),
    "return": ("return my order{order}", "send my order{order} back", "give my order{order} back"),
}


def _openings(kind: str, heldout: bool) -> tuple[str, ...]:
    """Frames times wishes; a third of the sentences is held out, every frame and wish is also trained on."""
    return tuple(
        frame.format(v=wish)
        for i, frame in enumerate(FRAMES)
        for j, wish in enumerate(WISHES[kind])
        if ((i + j) % 3 == 0) == heldout
    )


OPENINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {kind: _openings(kind, heldout=False) for kind in WISHES if kind != "return"},
    "heldout": {kind: _openings(kind, heldout=True) for kind in WISHES},
}
NEXT = {
    "train": (
        "One more thing. {x}",
        "Also, {x}",
        "And then: {x}",
        "Another thing. {x}",
        "There is more. {x}",
    ),
    "heldout": ("And one more thing. {x}", "Then also: {x}"),
}
INTRO = {
    "train": (
        "This is {name}. ",
        "I am {name}. ",
        "Hello, {name} here. ",
        "My name is {name}. ",
        "Hello, it is {name}. ",
        "{name} here. ",
    ),
    "heldout": ("Hello, I am {name}. ", "Hello, this is {name}. "),
}
ORDER_MENTION = (" {order}", " number {order}")
ANSWERS: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {
        "name": (
            "I am {v}.",
            "My name is {v}.",
            "This is {v}.",
            "It is {v}.",
            "{v} is my name.",
            "{v}.",
            "Name {v}.",
            "You can call me {v}.",
        ),
        "pin": (
            "The pin is {v}.",
            "My pin is {v}.",
            "Pin {v}.",
            "{v} is the pin.",
            "It should be {v}.",
            "{v}.",
            "The number is {v}.",
            "Here is my pin, {v}.",
        ),
        "order": (
            "It is order {v}.",
            "The order number is {v}.",
            "Order {v}.",
            "{v} is the order.",
            "It is about {v}.",
            "{v}.",
            "The one with number {v}.",
            "I mean order {v}.",
        ),
        "city": (
            "Send it to {v}.",
            "The new city is {v}.",
            "To {v}, please.",
            "{v} is the new city.",
            "{v}, please.",
            "It should go to {v}.",
            "I would like it sent to {v}.",
            "Make it {v}.",
        ),
        "home": (
            "I live in {v}.",
            "My home town is {v}.",
            "At home in {v}.",
            "{v} is my home town.",
            "It is {v}.",
            "I come from {v}.",
        ),
        "item": (
            "I want the {v}.",
            "Give me the {v}.",
            "The {v}, please.",
            "I would like the {v}.",
            "I choose the {v}.",
            "Make it the {v}.",
            "It should be the {v}.",
        ),
        "channel": (
            "Use {v}.",
            "I prefer {v}.",
            "By {v}, please.",
            "I would like {v}.",
            "{v} is best.",
            "{v}, please.",
            "Make it {v}.",
        ),
    },
    "heldout": {
        "name": ("The name is {v}.",),
        "pin": ("It is pin {v}.",),
        "order": ("My order is {v}.",),
        "city": ("I want it in {v}.",),
        "home": ("My home is {v}.",),
        "item": ("I prefer the {v}.",),
        "channel": ("I want {v}.",),
    },
}
CHANGED_MIND = {
    "train": ("No wait, rather {v}.", "No, sorry, {v}.", "Wait, make it {v}."),
    "heldout": ("Wait, no, rather {v}.",),
}
NO_SUCH = {"train": "That is not needed here.", "heldout": "This is not needed."}
UNCLEAR = {"train": "I do not understand.", "heldout": "I do not understand that."}
GOODBYE = {"train": ("Thanks, bye.", "Good, that is all."), "heldout": ("Good, thanks.", "That is all, bye.")}

SLOT_WORDS = {
    "name": "your name",
    "pin": "your pin",
    "order": "the order number",
    "city": "the new city",
    "home": "your home town",
    "item": "the item you want",
    "channel": "the channel, mail, phone or chat",
}
ASKED_BY = {
    "name": "your name",
    "pin": "your pin",
    "order": "order number",
    "city": "city",
    "home": "home town",
    "item": "item",
    "channel": "channel",
}
"""What in a question counts as asking for the slot."""
