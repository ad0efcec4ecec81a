"""Create an experiment and read it with a generated client; print what it has, as JSON."""

import json
import os

from tbhub_client import AuthenticatedClient
from tbhub_client.api.experiments import create_experiment, show_experiment
from tbhub_client.models import NewExperiment

client = AuthenticatedClient(os.environ["SERVER"], os.environ["TOKEN"])
made = create_experiment.sync(client=client, body=NewExperiment(name="generated", tags=["a"]))
read = show_experiment.sync(made.experiment_id, client=client)
missing = show_experiment.sync_detailed("a" * 22, client=client)
answer = {"name": read.name, "tags": read.tags, "missing": missing.status_code}
print(json.dumps(answer))  # noqa: T201 - the answer
