"""Run everything on one machine: `tbservice up`, embedded PostgreSQL and SeaweedFS, and the demo."""
