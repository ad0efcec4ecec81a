"""Every dashboard draws what was uploaded: the demo's sessions, and the files of each real writer
in tests/data.

One page visits all tabs, and must have no problem. With PICTURES, each test saves a
screenshot in `tests/browser/screenshots/`: look at them after a change of the front end.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import TimeoutError as PageTimeout
from playwright.sync_api import expect

from support.browser_pages import SLOW_FRAMES, has_drawing, new_page, open_tab, share_link, shoot
from support.projector import write_projector_run
from support.uploading import wait_until
from tbservice.local.demo import write_demo_logdir

DATA = Path(__file__).parent.parent / "data"
WRITERS = (  # not their hparams: a schema that one run declares hides the demo's
    *(
        "pytorch/dashboards",
        "pytorch/media",
        "tensorboardx/dashboards",
        "tensorboardx/media",
        "tensorflow1/run",
    ),
    *(
        "tensorflow2/edges",
        "tensorflow2/keras",
        "tensorflow2/media",
        "tensorflow2/profile",
        "tensorflow2/trace",
    ),
    *(
        f"tensorboard_plugins/{name}"
        for name in ("custom_scalars", "first_api", "mesh", "pr_curves", "unknown")
    ),
)
SESSIONS = ("adam-0.01-width-32", "adam-0.01-width-8", "sgd-0.02-width-32", "sgd-0.2-width-32")
HPARAMS, METRICS = 4, 5
"""Columns of the demo: three metrics are declared, two more are seen."""

SETTLING_MS = 400
"""No event tells that most dashboards have moved into place; and what goes wrong later than this is
found by the next test.
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    logdir = tmp_path_factory.mktemp("dashboards")
    write_demo_logdir(logdir)
    for name in WRITERS:
        shutil.copytree(DATA / name, logdir / name)
    write_projector_run(logdir / SESSIONS[0])
    return logdir


@pytest.fixture(scope="module")
def opened(browser, live_service, uploader, logdir):
    """The page of all that data, opened once: selections of a test remain."""
    ended = uploader.run("--logdir", logdir, "--one-shot", "--name", "Every dashboard")
    assert ended.code == 0, ended.err
    page = new_page(browser, live_service.url)
    page.add_init_script(SLOW_FRAMES)
    page.goto(share_link(uploader, ended.experiment_id))
    yield page
    page.context.close()


@pytest.fixture
def page(opened, request):
    yield opened
    opened.wait_for_timeout(SETTLING_MS)
    shoot(opened, request.node.name.removeprefix("test_"))
    problems, opened.watch.problems = opened.watch.problems, []
    assert problems == []


def choose_tags(page, dashboard, pattern):
    """Narrows an older dashboard to the tags that match."""
    page.locator(f"{dashboard} tf-tag-filterer input").fill(pattern)


def test_time_series_page_draws_curves_and_hparams(page):
    page.get_by_role("combobox", name="Filter tags (regex)").fill(
        "^loss$|^decision$|weights/output/kernel"
    )
    page.keyboard.press("Escape")
    for name, shape in (
        ("weights/output/kernel", "tb-histogram"),
        ("decision", "img"),
        ("loss", "canvas"),
    ):
        card = page.locator("card-view").filter(has_text=name).first
        card.scroll_into_view_if_needed()
        assert has_drawing(card.locator(shape).first)
    for column in ("Optimizer", "Learning rate"):
        page.locator("runs-data-table").get_by_title("Add Column").click()
        page.locator("tb-data-table-column-selector-component button").filter(
            has_text=column
        ).click()
        page.keyboard.press("Escape")
    row = page.locator("runs-data-table tb-data-table-content-row").filter(
        has_text="sgd-0.2-width-32/validation"
    )
    expect(row).to_contain_text(re.compile(r"sgd\s+0\.2"))


def test_scalars_draws_curve_for_each_run(page):
    open_tab(page, "Scalars")
    choose_tags(page, "tf-scalar-dashboard", "^accuracy$|^loss$")
    for card in page.locator("tf-scalar-card").all():
        assert has_drawing(card.locator("vz-line-chart2"))


def test_custom_scalars_draws_layouts_charts(page):
    open_tab(page, "Custom Scalars")
    for kind in ("multi-line", "margin"):
        chart = page.locator(f"tf-custom-scalar-{kind}-chart-card vz-line-chart2").first
        assert has_drawing(chart)
    expect(page.locator("tf-custom-scalar-dashboard")).to_contain_text(
        re.compile("Loss.*Confidence.*losses", re.DOTALL)
    )


def test_images_shows_pictures(page):
    open_tab(page, "Images")
    choose_tags(page, "tf-image-dashboard", "^decision$|^boxes$")
    for tag in ("boxes", "decision"):
        image = page.locator("tf-image-loader").filter(has_text=tag).first.locator("img")
        assert has_drawing(image)


def test_audio_plays_clips(page):
    open_tab(page, "Audio")
    clips = page.locator("tf-audio-loader audio")
    expect(clips.first).to_be_visible()
    seconds = "clips => clips.map(clip => clip.readyState >= 1 && !clip.error ? clip.duration : 0)"

    def are_ready():  # each clip appears by itself
        lengths = clips.evaluate_all(seconds)
        return all(lengths) and lengths.count(1.5) == len(SESSIONS)

    wait_until(are_ready)


def has_chosen(menu, item):
    """Click an item of a menu, which closes again if the page changes its items meanwhile."""
    menu.click()
    try:
        item.click(timeout=3_000)
    except PageTimeout:
        return False
    return True


def choose_graph(page, run, tag, kind):
    for row, name in (("runs", run), ("tags", tag)):
        menu = page.locator(f"tf-graph-controls .{row}-row paper-dropdown-menu")
        item = menu.locator("paper-item", has_text=re.compile(rf"^\s*{re.escape(name)}\s*$"))
        wait_until(lambda menu=menu, item=item: has_chosen(menu, item))
    page.locator(f"tf-graph-controls paper-radio-button[name={kind}]").click()


def test_graphs_draws_operations(page):
    open_tab(page, "Graphs")
    choose_graph(page, SESSIONS[0], "Default", "op_graph")
    layers = ["data", "hidden_1", "hidden_2", "output", "loss", "train"]
    expect(page.locator("tf-graph-scene g.node")).to_contain_text(layers)


def test_graphs_draws_model_as_keras_describes_it(page):
    choose_graph(page, SESSIONS[0], "keras", "conceptual_graph")
    expect(page.locator("tf-graph-scene g.node")).to_contain_text(["spirals"])
    page.locator("tf-graph-scene g.node").dblclick()
    expect(page.locator("tf-graph-scene g.node .subscene g.node")).to_contain_text(
        ["points", "hidden_1"]
    )


def test_graphs_tells_from_run_metadata_what_each_operation_cost(page):
    choose_graph(page, SESSIONS[0], "forward pass", "profile")
    expect(page.locator("tf-graph-scene g.node.faded")).to_have_count(3)
    page.locator("tf-graph-controls paper-radio-button", has_text="Compute time").click()
    expect(page.locator("tf-graph-controls")).to_contain_text("Compute time")
    assert has_drawing(page.locator("tf-graph-scene"))


def test_distributions_draws_bands(page):
    open_tab(page, "Distributions")
    assert has_drawing(page.locator("vz-distribution-chart").first)


def test_histograms_draws_slice_for_each_step(page):
    open_tab(page, "Histograms")
    choose_tags(page, "tf-histogram-dashboard", "^gradients/output/kernel$")
    chart = page.locator("tf-histogram-loader").first
    expect(chart.locator(".histogram path")).to_have_count(13)
    assert has_drawing(chart)


def test_text_is_shown_as_markdown(page):
    open_tab(page, "Text")
    about = page.locator("tf-text-loader").filter(has_text=SESSIONS[0]).first
    expect(about.locator("h3")).to_have_text("Two spirals")
    expect(about.locator("table td").first).to_have_text("optimizer")


def test_pr_curves_draws_precision_over_recall(page):
    open_tab(page, "PR Curves")
    choose_tags(page, "tf-pr-curve-dashboard", "^curve$|^spirals$")
    cards = page.locator("tf-pr-curve-card")
    for tag in ("curve", "spirals"):
        assert has_drawing(
            cards.filter(has=page.get_by_text(tag, exact=True)).first.locator("vz-line-chart2")
        )


def test_hparams_lists_sessions(page):
    open_tab(page, "HParams")
    table = page.locator("tf-hparams-table-view")
    for session in SESSIONS:
        expect(table.get_by_text(session)).to_be_visible()
    for title in ("Annealed", "Optimizer", "Learning rate", "Width", "Accuracy", "Validation loss"):
        expect(table.get_by_text(title, exact=True).first).to_be_visible()
    expect(table.get_by_text("0.98500").first).to_be_visible()


def test_hparams_draws_each_session_across_parallel_axes(page):
    page.locator("paper-tab", has_text=re.compile("parallel", re.IGNORECASE)).click()
    plot = page.locator("tf-hparams-parallel-coords-plot")
    expect(plot.locator("svg .foreground path")).to_have_count(len(SESSIONS))
    expect(plot.locator("svg .axis")).to_have_count(HPARAMS + METRICS)
    assert has_drawing(plot)


def test_hparams_draws_each_session_in_matrix_of_scatter_plots(page):
    page.locator("paper-tab", has_text=re.compile("scatter", re.IGNORECASE)).click()
    plot = page.locator("tf-hparams-scatter-plot-matrix-plot")
    expect(plot.locator("svg .data-marker")).to_have_count(
        (HPARAMS + METRICS) * METRICS * len(SESSIONS)
    )
    assert has_drawing(plot)


def test_projector_draws_tensors_with_their_metadata_and_sprites(page):
    open_tab(page, "Projector")
    projector = page.frame_locator("iframe")
    # Of the run that was uploaded first: this module's, or the demo's.
    expect(projector.locator(".numDataPoints")).to_have_text(re.compile(r"^(60|300)$"))
    expect(projector.locator(".dim")).to_have_text(re.compile(r"^[1-9]\d*$"))
    assert has_drawing(projector.locator("vz-projector canvas").first)


def test_mesh_draws_surfaces(page):
    """The last test: surfaces move for as long as the page is open. Of two runs, because each takes a
    second of processor time.
    """
    open_tab(page, "Text")
    runs = f"{SESSIONS[0]}/validation|mesh"
    page.locator("tf-text-dashboard tf-runs-selector #names-regex input").fill(runs)
    open_tab(page, "Mesh")
    loaders = page.locator("tf-mesh-loader")
    expect(loaders.nth(1)).to_be_visible()
    find = "found => found.findIndex(loader => loader.tag === 'surface')"

    def surface():  # looked for again: the page moves its loaders while more of them arrive
        return loaders.nth(loaders.evaluate_all(find)).locator("canvas")

    wait_until(lambda: surface().count())
    assert has_drawing(surface())
