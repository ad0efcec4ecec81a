"""Files of TensorBoard's wheel that our own files depend on, and whether they have changed.

A file of ours depends on all that it imports from TensorBoard; `DEPENDS_ON` names what no import
shows: stock code that ours replaces, changes, or must agree with.
`tests/tidy/tensorboard_files.json` has the digest of each such file when ours was last compared
with it. After raising TensorBoard's version and comparing what the test names,

    PYTHONPATH=tests python -m support.tensorboard_files

writes the digests of the installed version.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path

import tensorboard

from support.source_code import ROOT, product

WHEEL = Path(tensorboard.__file__).parent
NOTED = ROOT / "tests" / "tidy" / "tensorboard_files.json"
WEB_FILES = "webfiles.zip"

PAGE = "service/tbservice/tensorboard"
DEPENDS_ON = {
    f"{PAGE}/assets.py": {
        f"{WEB_FILES}/index.html": "the page is put together from its parts, and finds its script and fonts elsewhere",
        f"{WEB_FILES}/index.js": "is served as it is, below an address of its own",
    },
    "service/tbservice/pages/templates/stock_page/bar.html": {
        f"{WEB_FILES}/index.html": "the style makes room in <body> beside <tb-webapp>"
    },
    f"{PAGE}/page.py": {
        f"{WEB_FILES}/index.js": "the Content-Security-Policy allows what it does and no more"
    },
    "service/tbservice/pages/stock_page/page_script.js": {
        f"{WEB_FILES}/index.js": "changes `reload` and requests of <tf-hparams-query-pane>"
    },
    f"{PAGE}/mount.py": {
        f"{WEB_FILES}/index.js": "asks below the page's address, for /experiment/defaultExperimentId/ at times",
        "backend/application.py": "the addresses of the data routes, and what is done around each request",
    },
    f"{PAGE}/page_routes.py": {
        "plugins/core/core_plugin.py": "`data/environment` and `data/runs` are answered in its place",
        "plugins/audio/audio_plugin.py": "`individualAudio` is answered in its place",
        "plugins/image/images_plugin.py": "`individualImage` is answered in its place",
        "plugins/metrics/metrics_plugin.py": "`imageData` is answered in its place",
    },
    f"{PAGE}/native/json_answers.py": {
        "backend/http_util.py": "answers are written as its `Respond` writes them"
    },
    f"{PAGE}/native/hparams.py": {
        "plugins/hparams/hparams_plugin.py": "answers all of its routes in its place",
        f"{WEB_FILES}/index.js": "sends what both front ends can read: the run table hides other values, "
        "and values outside of domains; nine are check boxes",
    },
    f"{PAGE}/native/hparams_download.py": {
        "plugins/hparams/download_data.py": "writes tables as it does",
    },
    f"{PAGE}/native/plugins_listing.py": {
        "backend/application.py": "`plugins_listing` is answered in its place"
    },
    f"{PAGE}/native/scalars.py": {
        "plugins/scalar/scalars_plugin.py": "answers `scalars` and `scalars_multirun` for it"
    },
    f"{PAGE}/native/tags.py": {
        "plugins/metrics/metrics_plugin.py": "answers `timeseries/tags` in its place",
        "plugins/scalar/scalars_plugin.py": "answers `scalars/tags` in its place",
    },
    f"{PAGE}/native/time_series.py": {
        "plugins/metrics/metrics_plugin.py": "answers `timeSeries` in its place"
    },
    f"{PAGE}/plugins/projector.py": {
        "plugins/projector/projector_plugin.py": "answers all of its routes in its place",
        "plugins/projector/tf_projector_plugin/index.js": "is served as it is",
        "plugins/projector/tf_projector_plugin/projector_binary.html": "is served as it is, and needs 'unsafe-eval'",
        "plugins/projector/tf_projector_plugin/projector_binary.js": "is served as it is, and asks the routes",
    },
    f"{PAGE}/provider.py": {
        "backend/event_processing/data_provider.py": "behaves as this, the provider for files, does",
    },
    f"{PAGE}/stock_application.py": {
        "default.py": "the list of plugins is this one, less those that read files",
        "plugins/core/core_plugin.py": "`_FLAGS` has the flags that are read of those it defines",
        "compat/__init__.py": "`tensorboard.compat.notf` keeps TensorFlow from being imported",
    },
    "service/tbservice/api/v0_classic/histograms.py": {
        "plugins/distribution/compressor.py": "compresses at the same points"
    },
    "uploader/tbupload/events/decode/legacy.py": {"data_compat.py": "has the same rules, in bulk"},
    "uploader/tbupload/events/tag_registry.py": {
        "dataclass_compat.py": "has the same table of data classes"
    },
    "uploader/tbupload/events/decode/summaries.py": {
        "dataclass_compat.py": "makes the same series of graphs and of tagged run metadata",
        "backend/event_processing/event_file_loader.py": "reads the same kinds of events",
    },
    "uploader/tbupload/logdir/entries.py": {
        "backend/event_processing/plugin_event_multiplexer.py": "names runs in the same way",
    },
    "uploader/tbupload/logdir/tree.py": {
        "backend/event_processing/io_wrapper.py": "takes the same files for event files",
    },
    "uploader/tbupload/upload/plugins/projector.py": {
        "plugins/projector/projector_plugin.py": "finds configs, and the files they name, in the same places",
    },
}
"""Dependencies of our files on TensorBoard's, besides imports."""

NAMES_USED = {
    f"{PAGE}/assets.py": {
        f"{WEB_FILES}/index.html": (
            "<title>TensorBoard</title>",
            "<tb-webapp>",
            '<script src="index.js',
        )
    },
    f"{PAGE}/mount.py": {f"{WEB_FILES}/index.js": ("defaultExperimentId", "tb-relative-root")},
    "service/tbservice/pages/stock_page/page_script.js": {
        f"{WEB_FILES}/index.js": (
            *(
                "tf-hparams-query-pane",
                "_maxNumHparamsToLoad",
                "getExperiment",
                "experimentName",
                "_experiment",
            ),
            *("_computeHParams", "_computeMetrics", "_computeDataFound", "_queryServer"),
            *("_sendListSessionGroupsRequest", "_resolveGetExperiment", "_sortByIndex"),
            *("domainDiscrete", "_hparams", "_metrics"),
        )
    },
    f"{PAGE}/plugins/regular_expressions.py": {
        "plugins/custom_scalar/custom_scalars_plugin.py": ("def scalars_impl",),
    },
    f"{PAGE}/stock_application.py": {
        "compat/__init__.py": ('import_module("tensorboard.compat.notf")',)
    },
    f"{PAGE}/native/plugins_listing.py": {"backend/application.py": ("self._plugins",)},
}
"""Names of TensorBoard's that are not public, and that our files are lost without."""


def leanings() -> dict[str, dict[str, str]]:
    """Return {our file: {file in the wheel: how it depends on that}}, imports included."""
    files = {ours: dict(theirs) for ours, theirs in DEPENDS_ON.items()}
    for module in product():
        ours = str(module.path.relative_to(ROOT))
        for name in module.imports:
            theirs = _file_of(name)
            if theirs is not None:
                files.setdefault(ours, {}).setdefault(theirs, "imports it")
    return files


def _file_of(imported: str) -> str | None:
    """Return the wheel's file that an import reads; None if it is not TensorBoard's own, or is
    generated by protoc.
    """
    top, *parts = imported.split(".")
    while top == WHEEL.name:
        path = WHEEL.joinpath(*parts)
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file() and parts:
                return None if file.stem.endswith("_pb2") else str(file.relative_to(WHEEL))
        if not parts:
            return None
        parts.pop()
    return None


def read(file: str) -> bytes | None:
    """Return a file of the wheel, or of its zip of web files; None if it does not exist."""
    if not file.startswith(f"{WEB_FILES}/"):
        return (WHEEL / file).read_bytes() if (WHEEL / file).is_file() else None
    with zipfile.ZipFile(WHEEL / WEB_FILES) as files:
        name = file.removeprefix(f"{WEB_FILES}/")
        return files.read(name) if name in files.namelist() else None


def digests(files: set[str]) -> dict[str, str]:
    """Return {file: the first digits of its SHA-256}, "gone" for a missing file."""
    contents = {file: read(file) for file in sorted(files)}
    return {
        file: "gone" if content is None else hashlib.sha256(content).hexdigest()[:16]
        for file, content in contents.items()
    }


def main() -> None:
    """Write the digests of the installed wheel."""
    files = {theirs for of in leanings().values() for theirs in of}
    NOTED.write_text(json.dumps(digests(files), indent=2) + "\n")


if __name__ == "__main__":
    main()
