"""Run everything on one machine: `tbservice up`, embedded PostgreSQL and SeaweedFS, the demo."""
