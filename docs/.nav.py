"""What mkdocs.yml leaves to the folders: the style sheet, and the order of the sections.

In a section its index comes first, then pages by file name. Pages beside the index of the whole come
last, by their own titles.
"""

from pathlib import Path
from typing import Any

SECTIONS = {
    "tutorial": "Tutorial",
    "guides": "Guides",
    "reference": "Reference",
    "alerts": "Alerts",
    "internals": "Internals",
    "adr": "Decisions",
}


def on_config(config: Any) -> Any:
    """Fill the navigation from the folders of docs/ that have pages."""
    docs = Path(config.docs_dir)
    config.nav = [{"Home": "index.md"}]
    for folder, title in SECTIONS.items():
        pages = sorted(
            (docs / folder).rglob("*.md"), key=lambda page: (page.name != "index.md", page)
        )
        if pages:
            config.nav.append({title: [page.relative_to(docs).as_posix() for page in pages]})
    config.extra_css.append("assets/site.css")
    config.nav += sorted(page.name for page in docs.glob("*.md") if page.name != "index.md")
    return config
