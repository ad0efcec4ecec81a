"""Summary metadata of series as columns beside their points, in CSV, Arrow and Parquet."""

from __future__ import annotations

from typing import Final

from tbservice.types.series import Series
from tbwire.tensorboard_pb2 import SummaryMetadata

METADATA_COLUMNS: Final = ("plugin", "display_name", "description", "plugin_content")


def series_metadata(series: Series) -> tuple[str, str, str, bytes]:
    """Return the values of METADATA_COLUMNS: three texts, and the plugin's own bytes."""
    metadata = SummaryMetadata.FromString(series.summary_metadata)
    return (
        metadata.plugin_data.plugin_name,
        metadata.display_name,
        metadata.summary_description,
        metadata.plugin_data.content,
    )
