"""Pages of the site for files of the repository that are outside of docs/, and links to them.

Pages in docs/ link to sources and manifests by relative paths, which work where the repository is browsed. The site has
no repository beside it, so it gets a page for each linked file, and the links lead there.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = "docs"
OTHER_DOCUMENTS: Final = {
    "README.md": "project/repository.md",
    "AGENTS.md": "project/agents.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
}
"""Document at the top of the repository -> its page."""
_LINK: Final = re.compile(r"(?<=\]\()(?!\w+:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
_QUOTED: Final = re.compile(r"^<!-- (?P<path>\S+) -->\n```(?P<language>\w+)\n", re.MULTILINE)
_FENCED: Final = re.compile(
    r"^(?P<indent> *)(?P<fence>`{3,}).*?^(?P=indent)(?P=fence)`*$", re.DOTALL | re.MULTILINE
)


def page_of(path: str) -> str:
    """Return the page, relative to docs/, that shows a file or folder of the repository. Sources are plain text.

    Args:
        path: relative to the repository.
    """
    if path in OTHER_DOCUMENTS:
        return OTHER_DOCUMENTS[path]
    if path.startswith(f"{DOCS}/"):
        return path.removeprefix(f"{DOCS}/")
    if (ROOT / path).is_dir():
        return f"source/{path}/index.md"
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.txt"


def for_the_site(text: str, path: str) -> str:
    """Return a document with its links to pages of the site, and with the names of quoted files as titles.

    Args:
        text: Markdown.
        path: of the document, relative to the repository.
    """
    here = PurePosixPath(page_of(path)).parent

    def link(match: re.Match[str]) -> str:
        target = _target(match["path"], path)
        if target is None:
            return match[0]
        return os.path.relpath(page_of(target), here) + (match["anchor"] or "")

    text = _QUOTED.sub(r'```\g<language> title="\g<path>"\n', text)
    ends = [(match.start(), match.end()) for match in _FENCED.finditer(text)]
    shown, at = [], 0
    for start, end in [*ends, (len(text), len(text))]:
        shown += _LINK.sub(link, text[at:start]), text[start:end]
        at = end
    return "".join(shown)


def linked_pages(documents: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each page, with its text, of files and folders outside of docs/ that documents lead to.

    Args:
        documents: paths of documents, relative to the repository; the documents of `OTHER_DOCUMENTS` are added.
    """
    waiting = [*documents, *(name for name in OTHER_DOCUMENTS if (ROOT / name).exists())]
    known = set(waiting)
    while waiting:
        path = waiting.pop()
        text = _text_of(path)
        is_markdown = path.endswith(".md") or (ROOT / path).is_dir()
        if not path.startswith(f"{DOCS}/"):
            yield page_of(path), for_the_site(text, path) if is_markdown else text
        if is_markdown:
            found = (_target(match["path"], path) for match in _LINK.finditer(_FENCED.sub("", text)))
            new = {each for each in found if each is not None and not each.startswith(f"{DOCS}/")} - known
            known |= new
            waiting += sorted(new)


def _target(link: str, document: str) -> str | None:
    """Return the path of a linked file or folder, relative to the repository; None if there is none."""
    folder = PurePosixPath(document) if (ROOT / document).is_dir() else PurePosixPath(document).parent
    path = os.path.normpath(folder / link)
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def _text_of(path: str) -> str:
    file = ROOT / path
    if file.is_dir():
        names = sorted(f"{each.name}{'/' if each.is_dir() else ''}" for each in file.iterdir())
        shown = [name for name in names if not name.startswith(("__", "."))]
        return f"# {path}\n\n" + "".join(f"- [`{name}`]({name})\n" for name in shown)
    return file.read_text()
