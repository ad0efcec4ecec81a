"""A reader of changes that applies each answer as documented, and fails if points come twice."""

from __future__ import annotations


class ChangeReader:
    """The points that a reader holds: {series id: (run, tag, {step: (wall time, value)})}."""

    def __init__(self):
        self.cursor = None
        self.series = {}
        self.sent = 0

    def apply(self, answer):
        """Apply an answer.

        Fails if a point comes that is held already and was not to be replaced.
        """
        self.cursor = answer["cursor"]
        for series_id in answer["removed"]:
            del self.series[series_id]
        for run, tags in answer["points"].items():
            for tag, new in tags.items():
                self._append(run, tag, new)

    def _append(self, run, tag, new):
        points = self.series.setdefault(new["series_id"], (run, tag, {}))[2]
        if new["replaces_from"] is not None:
            for step in [step for step in points if step >= new["replaces_from"]]:
                del points[step]
        assert not points or new["steps"][0] > max(points), (
            f"{tag}: step {new['steps'][0]} comes behind {max(points)}"
        )
        assert new["steps"] == sorted(set(new["steps"]))
        points.update(
            zip(new["steps"], zip(new["wall_times"], new["values"], strict=True), strict=True)
        )
        self.sent += len(new["steps"])

    def by_name(self):
        """{run: {tag: {step: (wall time, value)}}}."""
        named = {}
        for run, tag, points in self.series.values():
            assert tag not in named.setdefault(run, {})
            named[run][tag] = points
        return {run: tags for run, tags in named.items() if tags}


def by_name(columns):
    """Return the points of an answer of the data routes by run and tag."""
    return {
        run: {
            tag: dict(
                zip(
                    series["steps"],
                    zip(series["wall_times"], series["values"], strict=True),
                    strict=True,
                )
            )
            for tag, series in tags.items()
        }
        for run, tags in columns.items()
    }
