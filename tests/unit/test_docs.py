"""The docs say what the code says."""

from __future__ import annotations

import re
from pathlib import Path

from support.status_page import PAGE, page

ROOT = Path(__file__).parent.parent.parent


def test_the_page_of_statuses_is_the_table_of_moves() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python tests/support/status_page.py"


def test_every_link_between_pages_leads_somewhere() -> None:
    for document in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
