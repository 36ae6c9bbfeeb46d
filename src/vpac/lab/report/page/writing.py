"""A document as one HTML file that asks nothing of any network.

Text is escaped by the template; data is JSON in which no character can end its element. Should both fail, the page's own
content security policy still runs only the scripts whose digests it lists, and lets nothing be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from vpac.errors import UserError
from vpac.files import write_text
from vpac.lab.report.document import Document
from vpac.lab.report.draw import static_svg
from vpac.lab.report.page.views import Paint, document_view
from vpac.lab.report.style import DARK, LIGHT

__all__ = ["MOST_BYTES", "as_json", "render", "write_page"]

HERE = Path(__file__).parent
SCRIPTS = ("tools.js", "figures.js", "explorer.js")
"""What runs after the page is read, in this order, behind Plotly; theme.js runs before it is painted."""
MOST_BYTES = 15_000_000


def write_page(document: Document, folder: Path, paint: Paint = static_svg) -> Path:
    """Write `index.html` into the folder, whole or not at all; `paint` draws what print and readers without scripts see."""
    text = render(document, paint)
    size = len(text.encode("utf-8"))
    if size > MOST_BYTES:
        heaviest = ", ".join(f"{name} {count / 1e6:.1f} MB" for name, count in _weights(document, paint)[:3])
        raise UserError(
            f"the page has {size / 1e6:.1f} MB, at most {MOST_BYTES / 1e6:g} are allowed; heaviest: {heaviest}"
        )
    return write_text(Path(folder) / "index.html", text)


def render(document: Document, paint: Paint = static_svg) -> str:
    """The page as text."""
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["json"] = lambda value: Markup(as_json(value))
    theme, plotly, ours = _read("theme.js"), _plotly(), "\n".join(_read(name) for name in SCRIPTS)
    scripts = {"theme": theme, "plotly": plotly, "ours": ours}
    return environment.get_template("index.html.j2").render(
        page=document_view(document, paint),
        style=Markup(_read("style.css") + _palette()),
        scripts={name: Markup(text) for name, text in scripts.items()},
        policy=_policy([theme, plotly, ours]),
    )


def as_json(value: Any) -> str:
    """JSON that may stand inside a script element: no character of it can end the element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """The drawing library as text; Plotly's package is opened for this file only, never imported."""
    import importlib.util

    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        raise UserError("the page needs the package plotly: pip install plotly")
    text = (Path(found.origin).parent / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    text = text.replace("\r\n", "\n")
    if "</script" in text.lower() or "<!--" in text:
        raise RuntimeError("plotly.min.js cannot stand inside an HTML element")
    return text


def _policy(scripts: list[str]) -> str:
    """Nothing is loaded; only these scripts run."""
    digests = [base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _palette() -> str:
    """The series' colours, light and dark."""
    pairs = enumerate(zip(LIGHT, DARK, strict=True))
    lines = [f"  --series-{number}: light-dark({light}, {dark});" for number, (light, dark) in pairs]
    return "\n:root {\n" + "\n".join(lines) + "\n}\n"


def _weights(document: Document, paint: Paint) -> list[tuple[str, int]]:
    """Which figures take how many bytes, the heaviest first."""
    view = document_view(document, paint)
    sizes = [
        (chart["name"], len(chart["static"]) + len(chart["csv"]) + len(as_json(chart["figures"])))
        for section in view["sections"]
        for chart in section["charts"]
    ]
    return sorted(sizes, key=lambda pair: -pair[1])
