"""The flywheel lab's picture: recall and wrong answers over events, rules side by side."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_feedback.demo.flywheel_records import (
    FlywheelRun,
    FlywheelSettings,
    Policy,
    Signal,
)
from langchain_feedback.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["check_plot", "compared_settings", "plot_runs"]

# Colors that people with any color vision tell apart (M. Okabe and K. Ito, "Color universal
# design", 2008). Lines may lie on each other: the lower ones are broader, the top one is dashed.
_STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#E69F00", "linewidth": 8, "alpha": 0.7, "solid_capstyle": "butt"},
    {"color": "#0072B2", "linewidth": 1.8, "linestyle": (0, (3, 2)), "zorder": 4},
    {"color": "#009E73", "linewidth": 4, "solid_capstyle": "butt", "zorder": 3},
)


def compared_settings(events: int) -> dict[str, FlywheelSettings]:
    """Return the runs that the picture sets side by side, by name."""
    classic = FlywheelSettings(Signal.THUMBS, Policy.AVERAGE, events=events)
    return {
        "classic rule (mean rating / 3), rated answers": classic,
        "this library, cited sources": FlywheelSettings(events=events),
        "this library, cited sources and a reviewer": FlywheelSettings(
            reviewer=True, events=events
        ),
    }


def check_plot(path: Path) -> None:
    """See that a picture could be drawn, before anything is run for it.

    Raises:
        MissingExtraError: The `plot` extra is not installed.
        ValueError: The folder does not exist, or there is no such kind of picture.
    """
    with _plot_extra():
        from matplotlib.backend_bases import FigureCanvasBase  # noqa: PLC0415
    kinds = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in kinds:
        msg = f"The picture's name must end in .png, .svg or .pdf, got {path.name!r}"
        raise ValueError(msg)
    if not path.parent.is_dir() or path.is_dir():
        msg = f"There is no folder {path.parent} to write {path.name} to."
        raise ValueError(msg)


def plot_runs(runs: Mapping[str, FlywheelRun], path: Path) -> None:
    """Draw up to three runs of the same number of events, and write the picture.

    Args:
        runs: Name in the legend: run.
        path: Where to write; the ending says which kind, such as `.png`.

    Raises:
        MissingExtraError: The `plot` extra is not installed.
        ValueError: There are more than three runs or none, the folder does not exist, or there
            is no such kind of picture.
    """
    if not 0 < len(runs) <= len(_STYLES):
        msg = f"Between one and {len(_STYLES)} runs can be drawn, got {len(runs)}"
        raise ValueError(msg)
    check_plot(path)
    with _plot_extra():
        from matplotlib.figure import Figure  # noqa: PLC0415
        from matplotlib.ticker import MaxNLocator  # noqa: PLC0415
    figure = Figure(figsize=(8, 7), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    events = max(len(run.moments) for run in runs.values()) - 1
    # A little more than the events, so that what the last one did can be seen.
    end = max(events, 1) * 1.02
    recall = {name: [moment.mean_recall for moment in run.moments] for name, run in runs.items()}
    wrong = {name: [sum(moment.wrong) for moment in run.moments] for name, run in runs.items()}
    _draw(above, recall, end)
    _draw(below, wrong, end)
    above.set_title(f"The flywheel lab: five questions in turn, {events} rated answers")
    above.set_ylabel("mean recall@2\n(share of the evidence in the answer)")
    above.set(xlim=(0, end), ylim=(0, 1.05))
    below.set_ylabel("wrong answers so far")
    below.set_xlabel("events (one question asked, answered and rated)")
    below.set_ylim(0, max(1.1 * max(map(max, wrong.values())), 1))
    below.legend(loc="upper left", frameon=False)
    for axis in (below.xaxis, below.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    figure.savefig(path, dpi=150)


def _draw(axes: "Axes", lines: Mapping[str, Sequence[float]], end: float) -> None:
    for (name, values), style in zip(lines.items(), _STYLES, strict=False):
        axes.step(
            [*range(len(values)), end], [*values, values[-1]], where="post", label=name, **style
        )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    # The last values stand beside the lines; equal ones once.
    for value in {values[-1] for values in lines.values()}:
        axes.annotate(
            f"{value:g}" if isinstance(value, int) else f"{value:.2f}",
            (1, value),
            xycoords=("axes fraction", "data"),
            xytext=(6, 0),
            textcoords="offset points",
            verticalalignment="center",
        )


@contextmanager
def _plot_extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        msg = (
            f"Drawing needs a package that is not installed ({error}). "
            'Run: pip install "langchain-feedback[plot]"'
        )
        raise MissingExtraError(msg) from error
