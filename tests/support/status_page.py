"""`docs/statuses.md`, made from the table of moves: `python tests/support/status_page.py` writes it, a test compares it."""

from __future__ import annotations

from pathlib import Path

from subagents.statuses import MOVES, SETTLED, ErrorKind

PAGE = Path(__file__).parent.parent.parent / "docs" / "statuses.md"


def page() -> str:
    """The page as it should read."""
    lines = ["# Statuses", "", "Made from the table of moves in `scheduler/subagents/statuses.py`; these are the only moves there are.", ""]
    lines += ["```mermaid", "stateDiagram-v2"]
    for before, moves in MOVES.items():
        lines += [f"    {before or '[*]'} --> {after}" for after in moves]
    lines += [f"    {status} --> [*]" for status in sorted(SETTLED)]
    lines += ["```", "", "| from | to | by |", "|---|---|---|"]
    for before, moves in MOVES.items():
        lines += [f"| {before or '(new)'} | {after} | {reason} |" for after, reason in moves.items()]
    lines += [
        "",
        "An admitted agent that has not started yet reads `queued`, with `admitted_at` set. `stopping` is told to stop and not yet out:",
        "its permit is still held. `stopped` is out, or never started. A run has one terminal status: " + ", ".join(sorted(SETTLED)) + ".",
        "",
        "`error` carries an `error_kind`: " + ", ".join(f"`{kind}`" for kind in ErrorKind) + ".",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
