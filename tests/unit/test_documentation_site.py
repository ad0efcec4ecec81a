"""The documentation that the service shows: all pages, whose links lead somewhere, and a search."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.metadata import version

import pytest

from tbservice.pages.documentation import site

DOCS = site.find_docs()
NAMES = sorted(
    [site.CHANGELOG, *(str(file.relative_to(DOCS).with_suffix("")) for file in DOCS.rglob("*.md"))]
)


class Links(HTMLParser):
    """The links, pictures and anchors of a page."""

    def __init__(self, page):
        super().__init__()
        self.targets, self.anchors = [], set()
        self.feed(page)

    def handle_starttag(self, _tag, attributes):
        for name, value in attributes:
            if name in {"href", "src"}:
                self.targets.append(value)
            elif name == "id":
                self.anchors.add(value)


@pytest.fixture(scope="module")
def pages():
    return {name: Links(site.render_page(name)) for name in NAMES}


def test_every_page_is_in_contents_once():
    grouped = [name for names in site.GROUPS.values() for name in names]
    assert sorted(grouped) == [name for name in NAMES if not re.match("decisions/0", name)]


def test_every_link_leads_to_page_and_anchor(pages):
    for name, page in pages.items():
        for target in page.targets:
            path, _, anchor = target.partition("#")
            if target.startswith(("https://", "http://")):
                continue
            file = path.removeprefix(f"{site.PATH}/")
            if file.startswith("images/"):
                assert site.find_image(file.removeprefix("images/")), (name, target)
                continue
            linked = pages[file] if path else page
            assert not anchor or anchor in linked.anchors, (name, target)


def test_index_names_sources_of_all_pages_in_contents():
    listed = re.findall(r"\(/docs/(.+)\.md\)", site.list_contents())
    assert listed == [name for names in site.GROUPS.values() for name in names]
    assert all(site.read_source(name).startswith("# ") for name in listed)
    assert f"of tbhub {version('tbhub')}." in site.list_contents()


def test_search_knows_anchors_of_its_pages(pages):
    for section in site._list_sections():
        assert section.anchor in pages[section.page].anchors, section[:4]


def test_search_finds_all_words_and_headings_first():
    results = site.search("Retry TIMEOUT")
    assert results
    for section, excerpt in results:
        text = f"{section.title} {section.heading} {section.text}".casefold()
        assert "retry" in text
        assert "timeout" in text
        assert len(excerpt) <= site._EXCERPT_CHARS + 4
    assert site.search("exit codes")[0].section.heading == "Exit codes and output"
    assert site.search("no such words anywhere") == site.search("  ") == []


@pytest.mark.parametrize("name", ["nope", "../pyproject", "/etc/passwd", "images/x", "", "api.md"])
def test_other_names_are_no_pages(name):
    assert site.render_page(name) is None
    assert site.find_image(name) is None


def test_page_keeps_text_of_code_and_runs_no_html(tmp_path, monkeypatch):
    (tmp_path / "hostile.md").write_text("# A\n<script>x</script>\n\n`<b>` [x](javascript:x)\n")
    monkeypatch.setattr(site, "find_docs", lambda: tmp_path)
    page = site.render_page("hostile")
    site.render_page.cache_clear()
    assert "<script" not in page
    assert "javascript" not in page.replace("(javascript:x)", "")
    assert "<code>&lt;b&gt;</code>" in page


def test_picture_has_its_size():
    page = site.render_page("start")
    assert re.search(
        r'<img src="/docs/images/\S+\.png"[^>]* width="\d{3,4}" height="\d{3,4}"', page
    )
