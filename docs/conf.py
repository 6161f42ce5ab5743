"""The documentation as a site. scripts/build_site.sh builds it."""

import sys
from pathlib import Path

import npu_rope

sys.path.append(str(Path(__file__).parent))  # c_header, accessible, search_words

project = "npu_rope"
author = "the npu_rope developers"
version = release = npu_rope.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
extensions += ["c_header", "accessible", "search_words"]
# The pages are where GitHub looks for them; links between them go to files.
root_doc = "docs/site"
include_patterns = [
    "README.md",
    "README.zh.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/**",
    "simulator/README.md",
    "simulator/docs/**",
]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_use_rtype = False  # "Returns: x: y" is one text, not a type and a text
html_theme = "furo"
html_title = f"npu_rope {version}"
html_theme_options = {"top_of_page_buttons": []}
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["site.css"]
html_extra_path = ["start"]  # index.html, which leads to the root document
# scripts/build_site.sh --external-links
linkcheck_timeout = 20
linkcheck_retries = 2
