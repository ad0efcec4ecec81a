"""Templates of HTML pages: values are escaped, and a name that is missing is an error."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from tbservice.api.http.html_templates import Templates


@pytest.fixture
def templates(tmp_path):
    (tmp_path / "page.html").write_text('<style>a{}</style><b title="{{ name }}">{{ name }}</b>')
    return Templates(tmp_path)


def test_template_escapes_text_and_leaves_html(templates):
    page = templates.render("page.html", name="""<i>"&'""")
    assert page.endswith('<b title="&lt;i&gt;&#34;&amp;&#39;">&lt;i&gt;&#34;&amp;&#39;</b>')
    assert "<i>x</i></b>" in templates.render("page.html", name=Markup("<i>x</i>"))


def test_template_without_a_value_is_an_error(templates):
    with pytest.raises(UndefinedError, match="name"):
        templates.render("page.html")
