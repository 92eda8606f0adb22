"""Sphinx's settings; ``build.py`` writes the pages that it reads."""

from __future__ import annotations

from importlib.metadata import version as version_of

project = "fastio"
author = "the authors of fastio"
project_copyright = author
version = release = version_of("fastio")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "docs.names"]
nitpicky = True
smartquotes = False  # what stands in quotes is typed as it stands

# Anchors of headings are GitHub's, so that the same link works there and here.
myst_heading_anchors = 6
myst_enable_extensions = ["deflist"]

# Signatures have types, an argument a line; docstrings are prose.
autodoc_typehints_format = "fully-qualified"
autodoc_member_order = "bysource"
autodoc_class_signature = "mixed"
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
add_module_names = False
# Libraries that no page needs: the reference builds without them.
autodoc_mock_imports = ["accelerate", "lightning", "numba", "obstore", "pytorch_lightning", "ray", "transformers"]
nitpick_ignore_regex = [("py:class", r"[A-Z]|.*\.Picture|Outside")]  # type variables, and a name for three words
# Types that pass between our own parts; a user neither makes nor reads one.
_INTERNAL = (
    *("store.beside.joined.Member", "computing.computed.ComputedSource"),
    *("_native.BatchCounts", "_native.Buffers", "_native.ThreadPool", "dataset.iterable.BatchReadable"),
    *("store.kinds.recognise.Recognised", "store.kinds.unknown.Near", "converters.sources.source.DocumentCounts"),
    *("converters.sources.source.StreamedSource", "dataset.token_collate.TokenCollate"),
    *(
        "measure.loop.step_timer._Timed",
        "samplers.batches.Computed",
        "samplers.order.Division",
        "samplers.lanes.Windows",
    ),
    *("store.files.byte_source.ByteSource", "store.files.byte_source.Prefetch", "store.files.byte_source.StoreFiles"),
    "store.sets.set_object.SetMembers",
    *("store.index.arrays.IndexArrays", "store.index.far_points.FarSpans", "store.index.sealed.FarIntervals"),
    *("transforms.batch.program.PixelTransform", "transforms.canvas.Canvas", "transforms.joint.JointTransform"),
    *(
        "lazy.Dataset",
        "store.index.elements._Owner",
        "samplers.clips.HasVideos",
        "samplers.shape_bucket.Shapes",
        "transforms.batch.mix.Mix",
    ),
    *("types.receipt.ReceiptPart", "converters.sources.options.IdOptions"),
    *("types.traits.Traits", "converters.sources.documents.TextOptions", "converters.sources.documents.TextSource"),
    *("converters.text.chat.ChatEncoder", "converters.text.preference.PreferenceEncoder"),
    *("samplers.batches.Computed", "samplers.order.Division", "store.index.elements._Owner"),
)
nitpick_ignore = [("py:class", f"fastio.{name}") for name in _INTERNAL]

html_theme = "furo"
html_title = f"fastio {version}"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sphinx = False
html_use_index = False  # the search finds more
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6b50", "color-brand-content": "#0b6b50"},
    "dark_css_variables": {"color-brand-primary": "#4fc9a4", "color-brand-content": "#4fc9a4"},
}
pygments_style = "friendly"
pygments_dark_style = "monokai"

copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
linkcheck_timeout = 20
