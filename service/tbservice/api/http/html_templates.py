"""Templates of HTML pages: every value is escaped, and a missing name is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tbservice.api.http.security_headers import content_hash


class Templates:
    """The templates of a directory, by their paths below it."""

    def __init__(
        self,
        directory: Path,
        *,
        values: Mapping[str, Any] | None = None,
        filters: Mapping[str, Callable[..., Any]] | None = None,
        tests: Mapping[str, Callable[..., bool]] | None = None,
    ) -> None:
        """Read nothing yet: a template is read at its first use.

        Args:
            directory: Where the templates are.
            values: Values and functions that every template has, by name.
            filters: Jinja filters by name.
            tests: Jinja tests by name.
        """
        self._environment: Final = Environment(
            loader=FileSystemLoader(directory),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals |= values or {}
        self._environment.filters |= filters or {}
        self._environment.tests |= tests or {}
        self._directory = directory

    def render(self, name: str, /, **context: Any) -> str:
        """Return the template's HTML with these values."""
        return self._environment.get_template(name).render(context)

    def hash_of(self, name: str, element: str) -> str:
        """Return the hash source of a template's only `<style>` or `<script>`, as `content_hash`.

        Of the template and not of a page, which may have elements that nobody meant.
        """
        return content_hash((self._directory / name).read_text(encoding="utf-8"), element)
