"""The vocabulary of the service desk: a few hundred word types, so that a 1–3 M model can learn it.

User wordings come in two banks. ``train`` serves the train and dev splits, ``heldout`` only the
held-out split, so that held-out success is never success at remembering a sentence.
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

OPENINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {
        "stock_check": (
            "Do you have the {item} in stock?",
            "How many {item} pieces are left?",
            "Is the {item} still there?",
        ),
        "status": (
            "Where is my order{order}?",
            "What is the status of my order{order}?",
            "Has my order{order} been sent?",
        ),
        "cancel": (
            "I want to cancel my order{order}.",
            "Please cancel my order{order}.",
            "I do not need my order{order} any more, stop it.",
        ),
        "refund": (
            "I want my money back for my order{order}.",
            "Please refund my order{order}.",
            "Can I get a refund for my order{order}?",
        ),
        "address": (
            "Please send my order{order} to another city.",
            "I moved, so my order{order} must go elsewhere.",
            "Can you change the address of my order{order}?",
        ),
        "exchange": (
            "I want to swap my order{order} for another item.",
            "Please exchange my order{order}.",
            "Can I trade my order{order} for something else?",
        ),
        "channel": (
            "I want you to contact me in another way.",
            "Please change how you contact me.",
            "Can you change my contact channel?",
        ),
        "repair": (
            "My order{order} is broken, please repair it.",
            "I need a repair for my order{order}.",
            "The thing from my order{order} does not work.",
        ),
    },
    "heldout": {
        "stock_check": ("Any {item} available at the moment?", "I look for one {item}, have you got it?"),
        "status": ("Tell me how far my order{order} is.", "I still wait for my order{order}, any news?"),
        "cancel": ("Call off my order{order}, please.", "My order{order} should not be sent after all."),
        "refund": (
            "Give me back what I paid for my order{order}.",
            "I would like my payment for my order{order} returned.",
        ),
        "address": (
            "My order{order} goes to the wrong town, correct it.",
            "Please redirect my order{order}.",
        ),
        "exchange": (
            "My order{order} does not suit me, I prefer a different thing.",
            "Replace my order{order} with another product.",
        ),
        "channel": ("Reach me differently from now on.", "I would rather hear from you by other means."),
        "repair": (
            "Something is wrong with my order{order}, fix it.",
            "My order{order} stopped working, can you mend it?",
        ),
        "return": (
            "I want to send my order{order} back.",
            "My order{order} can be picked up again, I return it.",
        ),
    },
}
NEXT = {
    "train": ("One more thing. {x}", "Also, {x}", "And then: {x}"),
    "heldout": ("Something else too. {x}", "Before I go: {x}"),
}
INTRO = {
    "train": ("This is {name}. ", "I am {name}. ", "Hello, {name} here. "),
    "heldout": ("{name} speaking. ", "You talk to {name}. "),
}
ORDER_MENTION = (" {order}", " number {order}")
ANSWERS: dict[str, dict[str, tuple[str, ...]]] = {
    "train": {
        "name": ("I am {v}.", "My name is {v}."),
        "pin": ("The pin is {v}.", "My pin is {v}."),
        "order": ("It is order {v}.", "The order number is {v}."),
        "city": ("Send it to {v}.", "The new city is {v}."),
        "home": ("I live in {v}.", "My home town is {v}."),
        "item": ("I want the {v}.", "Give me the {v}."),
        "channel": ("Use {v}.", "I prefer {v}."),
    },
    "heldout": {
        "name": ("They call me {v}.", "You can write {v}."),
        "pin": ("Here is the pin: {v}.", "It should be {v}."),
        "order": ("I mean order {v}.", "That would be {v}."),
        "city": ("Let it go to {v}.", "It belongs in {v}."),
        "home": ("My place is in {v}.", "I am at home in {v}."),
        "item": ("Let me have the {v}.", "The {v} would be right."),
        "channel": ("Better by {v}.", "Only {v} from now on."),
    },
}
CHANGED_MIND = {"train": "No wait, rather {v}.", "heldout": "Sorry, I mean {v}."}
NO_SUCH = {"train": "That is not needed here.", "heldout": "That has nothing to do with it."}
UNCLEAR = {"train": "I do not understand.", "heldout": "What is that about?"}
GOODBYE = {
    "train": ("Thanks, bye.", "Good, that is all."),
    "heldout": ("Fine, see you.", "That was everything."),
}

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
