"""What MkDocs calls while it builds the site: adds the generated pages, leads links to them, and serves Mermaid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

from docs.generate.reference import PAGES
from docs.generate.repository_pages import DOCS, for_the_site, linked_pages

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_MERMAID: Final = "assets/vendor/mermaid.js"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the reference pages, and a page for each file of the repository that a document links to."""
    documents = [f"{DOCS}/{file.src_uri}" for file in files.documentation_pages()]
    generated = {page: make() for page, make in PAGES.items()} | dict(linked_pages(documents))
    for page, text in generated.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_others: object) -> str:
    """Lead the links of a document in docs/ to pages of the site; generated pages have these links already."""
    return markdown if page.file.generated_by else for_the_site(markdown, f"{DOCS}/{page.file.src_uri}")


def on_page_content(html: str, page: Page, **_others: object) -> str:
    """Load Mermaid on a page with diagrams; the theme requests it from another host if it is not there."""
    if 'class="mermaid"' not in html:
        return html
    return f'{html}\n<script src="{get_relative_url(_MERMAID, page.url)}"></script>\n'
