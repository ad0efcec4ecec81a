"""The choice of light or dark colours, which a browser keeps: no account is needed."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from tbservice.pages.base.frame import THEMES, keep_theme, redirect
from tbservice.pages.base.signed_in import OpenForm
from tbservice.pages.sign_in.next_page import safe_next

router = APIRouter(include_in_schema=False)


@router.post("/theme")
def choose_theme(request: Request, form: OpenForm) -> Response:
    """Keep the chosen colours in a cookie; show the page again."""
    theme = form.choice("theme", THEMES)
    response = redirect(safe_next(form.text("next")))
    keep_theme(request, response, theme)
    return response
