"""The templates of all pages, in `pages/templates`, and what each of them may use."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Final

from tbservice.api.http.html_templates import Templates
from tbservice.pages.base import texts
from tbservice.pages.base.static_files import static_url

TEMPLATES: Final = Templates(
    Path(__file__).parents[1] / "templates",
    values={"static": static_url, "version": version("tbhub")},
    filters={
        "ago": texts.format_moment,
        "clip": texts.clip,
        "number": texts.format_number,
        "figure": texts.format_figure,
        "bytes": texts.format_bytes,
        "browser": texts.format_browser,
    },
    tests={"ended": texts.is_ended},
)
