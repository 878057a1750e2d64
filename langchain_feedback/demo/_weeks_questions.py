"""What people ask about the handbook, in their own words, and which chunk answers it."""

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["LEAD_INS", "NEEDS", "Need", "need_of"]


class Need(NamedTuple):
    """One thing that somebody wants to know."""

    chunk_id: str
    """The chunk that answers it."""
    wordings: tuple[str, ...]
    """Ways to ask for it; who gets no answer tries another one."""


_ASKED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "export": (
        ("How do I export my data?", "Where can I download everything that we stored?"),
        ("Which format does an export have?", "Is the export one archive or many files?"),
        ("How quickly is an export ready?", "How many minutes until I can download my archive?"),
        ("Can I take a copy of my data to another provider?", "How do we move our data away?"),
    ),
    "retention": (
        ("How long is my data kept?", "What is the data retention period?"),
        ("When is everything erased?", "When do you delete the data of former customers?"),
        ("Is my data gone at once when I leave?", "Do you keep records of a closed account?"),
        ("Until when can I fetch old data?", "How many days remain to save my files?"),
    ),
    "cancel": (
        ("How do I cancel?", "Is cancelling possible at any time?"),
        ("When does a cancelled plan end?", "Does cancelling stop my servers immediately?"),
        ("Is there a notice period?", "Am I bound to a contract for a year?"),
        ("Can I leave in the middle of a month?", "Do I keep using what I paid for?"),
    ),
    "refund-window": (
        ("Until when may I ask for a refund?", "What is the refund window?"),
        ("How many days do I have to get my payment back?", "Is it too late for a refund?"),
        ("Can I return my plan for a refund?", "Do you have a money back guarantee?"),
        ("I changed my mind: is a refund possible?", "What is the deadline for a refund?"),
    ),
    "refund-timing": (
        ("How long does a refund take?", "When does my refund arrive?"),
        ("When is the money on my card again?", "My refund was approved, where is it?"),
        ("How is a refund paid out?", "Do refunds go to the bank or to the card?"),
        ("What is the timing of refunds?", "How many working days does the payout need?"),
    ),
    "sizing": (
        ("Which server sizes are there?", "How large is a server?"),
        ("How do I get more memory?", "My load grows: can I upgrade the server?"),
        ("How do I resize a server?", "Can I move to a larger plan?"),
        ("What does a plan say about processor share?", "How many processors do I get?"),
    ),
    "reboot": (
        ("How do I reboot a server?", "My machine hangs, where is the restart button?"),
        ("How long does rebooting last?", "For how many minutes is a restarting server offline?"),
        ("Does a server get a new address when it restarts?", "Is my IP the same after a reboot?"),
        ("Can I restart from the console?", "What is the way to power cycle a machine?"),
    ),
    "sla": (
        ("What uptime do you promise?", "How available is the service in percent?"),
        ("Do I get a credit for downtime?", "What do you pay if the uptime promise is missed?"),
        ("Is planned work part of the uptime promise?", "Do attacks count as downtime?"),
        ("How much of the fee comes back as a credit?", "Is there compensation for an outage?"),
    ),
    "incidents": (
        ("Where do you announce incidents?", "Is there a status page?"),
        ("How fast am I told of an interruption?", "When do you notify us of an outage?"),
        ("How often are incident updates sent?", "Do I get news while something is broken?"),
        ("How do I find out that something is down?", "Is the platform having trouble now?"),
    ),
    "backups": (
        ("Are there backups of my server?", "How often do you take snapshots?"),
        ("How long are backups stored?", "For how many weeks can I go back to a snapshot?"),
        ("How do I restore a backup?", "Who may restore a server from a snapshot?"),
        ("Is there a backup of the database?", "Are attached volumes copied too?"),
    ),
    "keys": (
        ("How often do access keys rotate?", "After how many days does a key expire?"),
        ("I lost my key, what now?", "How do I revoke a stolen access key?"),
        ("Where is the security tab for keys?", "Where do I replace an old key?"),
        ("Must colleagues fetch a fresh key?", "What happens to a shared key that rotates?"),
    ),
    "seats": (
        ("How do I invite colleagues?", "How do I add people to the team?"),
        ("When does an invitation take effect?", "Must a new team member wait?"),
        ("Who may see invoices?", "What can each role do?"),
        ("How do team seats work?", "Who in the team can open tickets?"),
    ),
    "payment": (
        ("Can I pay by bank transfer?", "Do you take a bank transfer as payment?"),
        ("What is the reference for a bank transfer?", "How do I pay without a card?"),
    ),
}

NEEDS: tuple[Need, ...] = tuple(
    Need(chunk_id, wordings) for chunk_id, asked in _ASKED.items() for wordings in asked
)
"""Eight ways to ask for each chunk of the handbook, and four for one that does not exist yet."""

LEAD_INS: tuple[str, ...] = (
    "I run a small web shop.",
    "Our auditor asks:",
    "For a school project:",
    "My boss wants to know this before lunch.",
    "Hello from Lisbon!",
    "We are three freelancers.",
    "I am new here.",
    "A customer called this morning.",
    "Quick one before the weekend:",
    "I could not find it in the menu.",
    "We host a choir's web site.",
    "Writing our yearly report.",
    "Moving over from a competitor.",
    "This is about the staging box.",
    "Our bakery has two shops.",
    "Sorry if this was asked already.",
    "I maintain a game for children.",
    "The lawyers insist on an answer.",
    "On behalf of the city library:",
    "Preparing tonight's meeting.",
    "I have read the page twice.",
    "We sell bicycles.",
    "My laptop died yesterday.",
    "Our newsletter has nine thousand readers.",
)
"""What people say before they ask: words that have nothing to do with the answer."""

_BY_WORDING = {wording: need for need in NEEDS for wording in need.wordings}


def need_of(question: str) -> Need:
    """Return what somebody needs who asks this, as anybody would understand who reads it.

    Raises:
        LookupError: If it is no question of this place.

    Example:
        >>> need_of("We sell bicycles. How do I reboot a server?").chunk_id
        'reboot'
    """
    for lead_in in ("", *(f"{one} " for one in LEAD_INS)):
        need = _BY_WORDING.get(question.removeprefix(lead_in))
        if need is not None:
            return need
    msg = f"Nobody here asks {question!r}"
    raise LookupError(msg)
