"""The rounds of an algorithm as text and as an SVG drawing."""

from shoal.explain.rounds import Explanation, Transfer
from shoal.report.svg import COLOURS, FRAME, GRAPH, for_file

# The drawing: one vertical line per worker, one row per message, a band per round, a colour per part of the buffer.
COLUMN, ROW, MARGIN, TOP = 150, 24, 70, 70
PART_COLOURS = [COLOURS[name] for name in ("blue", "vermilion", "green", "indigo", "brown", "olive", "black")]


def as_text(explanation: Explanation) -> str:
    """The rounds as plain text: sender → receiver, which part of the buffer, the sum of whose contributions.

    >>> from shoal.explain.rounds import explain
    >>> print(as_text(explain("tree", 2)))
    tree, 2 workers: 2 rounds
    Sums climb a binomial tree to rank 0 and come down again: at most ⌈log₂ W⌉ messages of n elements.
    <BLANKLINE>
    round 1
      1 → 0   part all   sum of 1
    round 2
      0 → 1   part all   sum of all
    <BLANKLINE>
    sent by rank 0: 1 message, 1 buffer
    sent by rank 1: 1 message, 1 buffer
    """
    workers, messages = explanation.num_workers, explanation.messages
    lines = [
        f"{explanation.algorithm}, {workers} workers: {explanation.num_rounds} rounds",
        explanation.summary,
        "",
    ]
    width = max((len(_part(explanation, message)) for message in messages), default=0)
    for number in range(1, explanation.num_rounds + 1):
        lines.append(f"round {number}")
        lines += [
            f"  {message.sender} → {message.receiver}   part {_part(explanation, message):{width}}   "
            f"sum of {_holds(explanation, message)}"
            for message in messages
            if message.round == number
        ]
    lines.append("")
    for rank in range(workers):
        count, buffers = explanation.sent_by(rank)
        sent = f"{count} message{'s' * (count != 1)}, {buffers:g} buffer{'s' * (buffers != 1)}"
        lines.append(f"sent by rank {rank}: {sent}")
    return "\n".join(lines)


def _part(explanation: Explanation, message: Transfer) -> str:
    """Which part of the buffer, as a fraction of it."""
    size = message.stop - message.start
    if size == explanation.numel:
        return "all"
    if size and explanation.numel % size == 0 and message.start % size == 0:
        return f"{message.start // size + 1}/{explanation.numel // size}"
    return f"{message.start}–{message.stop - 1}"


def _holds(explanation: Explanation, message: Transfer) -> str:
    """Whose contributions a message holds."""
    return "all" if len(message.holds) == explanation.num_workers else "+".join(map(str, message.holds))


def as_svg(explanation: Explanation) -> str:
    """The rounds as an SVG file."""
    workers, messages = explanation.num_workers, explanation.messages
    starts = sorted({message.start for message in messages})
    ink = FRAME["ink"]
    width = 2 * MARGIN + COLUMN * max(1, workers - 1)
    height = TOP + ROW * (len(messages) + explanation.num_rounds) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="{FRAME["paper"]}"/>',
        f'<text x="{MARGIN / 2}" y="24" font-size="16" font-weight="bold" fill="{ink}">{explanation.algorithm}: '
        f"{workers} workers, {explanation.num_rounds} rounds</text>",
    ]
    y = TOP
    for number in range(1, explanation.num_rounds + 1):
        band = [message for message in messages if message.round == number]
        fill = FRAME["faint"] if number % 2 else FRAME["paper"]
        parts.append(f'<rect x="0" y="{y}" width="{width}" height="{ROW * (len(band) + 1)}" fill="{fill}"/>')
        parts.append(f'<text x="6" y="{y + 14}" fill="{GRAPH["source-line"]}">round {number}</text>')
        y += ROW
        for message in band:
            colour = PART_COLOURS[starts.index(message.start) % len(PART_COLOURS)]
            parts.append(_arrow(explanation, message, y + ROW // 2, colour))
            y += ROW
    for rank in range(workers):
        x = MARGIN + COLUMN * rank
        parts.append(
            f'<line x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{y + 8}" stroke="{FRAME["rule"]}"/>'
            f'<text x="{x}" y="{TOP - 14}" text-anchor="middle" font-weight="bold" fill="{ink}">rank {rank}</text>'
        )
    return for_file("\n".join([*parts, "</svg>"]) + "\n")


def _arrow(explanation: Explanation, message: Transfer, y: int, colour: str) -> str:
    start, stop = MARGIN + COLUMN * message.sender, MARGIN + COLUMN * message.receiver
    step = 1 if stop > start else -1
    label = f"{_part(explanation, message)} · {_holds(explanation, message)}"
    # Beside the sender and above the line: arrows that span several columns would hide a label in the middle.
    anchor, x = ("start", start + 8) if step > 0 else ("end", start - 8)
    return (
        f'<line x1="{start}" y1="{y}" x2="{stop - 7 * step}" y2="{y}" stroke="{colour}" stroke-width="1.6"/>'
        f'<path d="M {stop} {y} l {-8 * step} -4 v 8 z" fill="{colour}"/>'
        f'<circle cx="{start}" cy="{y}" r="2.5" fill="{colour}"/>'
        f'<text x="{x}" y="{y - 4}" text-anchor="{anchor}" font-size="11" fill="{colour}">{label}</text>'
    )
