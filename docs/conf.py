"""The documentation site: Markdown pages, docstrings, formulas as MathML. `make docs` builds it."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

project = "dubito"
author = "The dubito authors"
copyright = "the dubito authors, Apache-2.0"
html_title = "dubito"

extensions = ["myst_parser", "sphinx.ext.autodoc", "mathml", "docstrings", "api_pages", "outside", "access"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_ext", "pictures", "results/readme.md"]

# MyST: formulas between dollars, anchors for headings, definition lists. Links to files of the repository
# (sources, tests) are copied beside the pages.
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence", "attrs_inline"]
myst_heading_anchors = 3
myst_dmath_double_inline = False

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_last_updated_fmt = None
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
add_module_names = False
nitpicky = False
