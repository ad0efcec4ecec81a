"""HTTP code that all routes share: dependencies, bodies, ETags, errors, streaming."""
