"""What MkDocs calls while it builds the site: adds the generated pages, and leads links to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from docs.generate.reference import PAGES
from docs.generate.repository_pages import DOCS, for_the_site, linked_pages

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page


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
