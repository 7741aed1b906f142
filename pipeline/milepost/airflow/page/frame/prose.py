"""Our own prose on a page: what it has in backticks, as in Markdown, is shown as code."""

from __future__ import annotations

import re

from jinja2.runtime import Markup

_CODE = re.compile(r"`([^`]+)`")


def prose(text: str) -> Markup:
    """Return the HTML of a text, in which all else is escaped; a backtick without a second one stays."""
    between, *rest = _CODE.split(text)
    html = Markup.escape(between)
    for code, after in zip(rest[::2], rest[1::2], strict=True):
        html += Markup("<code>{}</code>{}").format(code, after)
    return html
