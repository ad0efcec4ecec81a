"""Reading sessions from a server that refuses: pages over a limit, and a server without the API."""

from __future__ import annotations

import json

import pytest

from support.faulty_server import FaultyServer, Reply, refusal, running
from tbupload import Experiment
from tbupload.errors import Refused


def test_pages_over_limit_of_server_are_halved_until_one_session():
    empty = {"sessionGroups": [], "totalSize": 0}
    columns, page = (
        Reply(body=json.dumps(content).encode()) for content in ({"hparamInfos": []}, empty)
    )
    with running(FaultyServer()) as server:
        server.replies = [columns, refusal(413), refusal(413), page]
        assert len(Experiment(f"{server.url}/experiment/abc/", token="tbh_x").hparams()) == 0
        sizes = [json.loads(request.body)["sliceSize"] for request in server.requests[1:]]
        assert sizes == [2_001, 1_001, 501]
        server.replies = [columns, refusal(413)]
        with pytest.raises(Refused):
            Experiment(f"{server.url}/experiment/abc/", token="tbh_x").hparams()


def test_older_server_without_route_is_clear_error():
    with running(FaultyServer()) as server:
        for status, code in ((404, "not_found"), (405, "method_not_allowed")):
            server.replies = [refusal(status, code), Reply()]
            with pytest.raises(Refused, match=r"has no HParams API: .* update the server"):
                Experiment(f"{server.url}/experiment/abc/", token="tbh_x").hparams()
        server.replies = [refusal(404, "not_found")]
        with pytest.raises(Refused, match="the detail of not_found"):
            Experiment(f"{server.url}/experiment/abc/", token="tbh_x").hparams()
