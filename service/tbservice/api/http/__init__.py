"""HTTP rules that all routes share: dependencies, bodies, ETags, errors, streaming."""
