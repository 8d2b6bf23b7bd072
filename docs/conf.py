"""The site of the documents: `make docs` builds it in build/docs, with the reference made from the docstrings."""

import importlib.metadata

project = "Falkirk"
release = importlib.metadata.version("falkirk")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.mermaid"]
html_theme = "furo"
html_title = f"Falkirk {release}"

myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 3
exclude_patterns = ["names"]  # the reference for those who build nothing
suppress_warnings = ["myst.xref_missing"]  # links to sources, which are no pages

default_role = "literal"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

STREAMS = {"Stream", "Keyed", "Columns", "Changes", "GroupBy", "Windowed", "WindowedColumns", "Collection", "Groups"}
PARTS = {"Aggregate", "Scope", "Loop", "Region", "Capture", "Probe", "Hold", "Result", "Context", "Capability"}
MADE_BY_VERBS = STREAMS | PARTS | {"InputHandle", "ProbeHandle"}
"""Classes of which users make no objects themselves: how they are made is not shown."""


def setup(app):
    def signature(app, what, name, value, options, arguments, returns):
        if what == "class" and name.rpartition(".")[2] in MADE_BY_VERBS:
            return "", None
        return None

    def reached_by_links(app, doctree):
        if app.env.docname == "mistakes":  # too long for the list of pages, and meant to be searched
            app.env.metadata["mistakes"]["orphan"] = "true"

    app.connect("autodoc-process-signature", signature)
    app.connect("doctree-read", reached_by_links)
