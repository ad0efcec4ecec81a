"""Plain values passed between layers: ids, grants, people, experiments, series, sampling."""
