"""The recording LangSmith server, with datasets and their examples.

It speaks both ways in which LangSmith's client sends examples: `multipart=True` as the hosted
service has it, else the older one of self-hosted servers.
"""

from __future__ import annotations

import json
import re
import uuid
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, Self

from tests.langsmith_server import PROJECT_ID, Call, LangSmithServer, _Handler

_NOW = "2026-01-02T03:04:05+00:00"


class DatasetServer(LangSmithServer):
    """Keeps datasets by id, and examples by id as LangSmith returns them."""

    def __init__(self, *, multipart: bool = True) -> None:
        super().__init__()
        self.multipart = multipart
        self.datasets: dict[str, dict[str, Any]] = {}
        self.examples: dict[str, dict[str, Any]] = {}
        self.instead = self._datasets

    def __enter__(self) -> Self:
        super().__enter__()
        self._server.RequestHandlerClass = _MultipartHandler
        return self

    def writes(self) -> list[str]:
        return [call.name for call in self.calls if call.method != "GET"]

    def _datasets(self, call: Call) -> tuple[int, Any] | None:
        answer = {
            "GET /info": self._info,
            "GET /sessions": lambda _: (200, [{"id": PROJECT_ID, "tenant_id": PROJECT_ID}]),
            "GET /datasets": self._find_dataset,
            "POST /datasets": self._make_dataset,
            "GET /examples": self._list,
            "POST /v1/platform/datasets/ID/examples": self._create_parts,
            "PATCH /v1/platform/datasets/ID/examples": self._update_parts,
            "POST /examples/bulk": self._create,
            "PATCH /examples/bulk": self._update,
        }.get(call.name)
        return None if answer is None else answer(call)

    def _info(self, _: Call) -> tuple[int, Any]:
        flags = {"dataset_examples_multipart_enabled": self.multipart}
        return 200, {"version": "0.16.20", "instance_flags": flags}

    def _find_dataset(self, call: Call) -> tuple[int, Any]:
        name = call.params["name"][0]
        return 200, [one for one in self.datasets.values() if one["name"] == name]

    def _make_dataset(self, call: Call) -> tuple[int, Any]:
        dataset_id = str(uuid.uuid4())
        made = {"id": dataset_id, "name": call.body["name"], "created_at": _NOW}
        self.datasets[dataset_id] = made
        return 200, made

    def _list(self, call: Call) -> tuple[int, Any]:
        wanted, dataset = call.params["id"], call.params["dataset"][0]
        assert len(wanted) <= 100
        found = [self.examples[one] for one in wanted if one in self.examples]
        return 200, [one for one in found if one["dataset_id"] == dataset]

    def _create_parts(self, call: Call) -> tuple[int, Any]:
        return self._create(call, _joined(call))

    def _update_parts(self, call: Call) -> tuple[int, Any]:
        return self._update(call, _joined(call))

    def _create(self, call: Call, given: list[Any] | None = None) -> tuple[int, Any]:
        given = call.body if given is None else given
        if any(one["id"] in self.examples for one in given):
            return 409, {"detail": "Conflict"}
        for one in given:
            self.examples[one["id"]] = self._kept(one)
        ids = [one["id"] for one in given]
        bulk = [{"id": one} for one in ids]
        return 201, {"example_ids": ids, "count": len(ids)} if call.name[5:7] == "/v" else bulk

    def _update(self, call: Call, given: list[Any] | None = None) -> tuple[int, Any]:
        given = call.body if given is None else given
        if any(one["id"] not in self.examples for one in given):
            return 404, {"detail": "Not found"}
        for one in given:
            self.examples[one["id"]] |= self._kept(self.examples[one["id"]] | one)
        return 200, {"example_ids": [one["id"] for one in given], "count": len(given)}

    @staticmethod
    def _kept(given: dict[str, Any]) -> dict[str, Any]:
        """Keep the split where LangSmith does: in the metadata."""
        kept = dict(given) | {"created_at": _NOW}
        split = kept.pop("split", None)
        if split:
            kept["metadata"] = dict(kept["metadata"]) | {"dataset_split": [split]}
        return kept


class _MultipartHandler(_Handler):
    """Makes JSON of a multipart body, so that it can be recorded like any other."""

    def _serve(self) -> None:
        kind = self.headers.get("content-type", "")
        if kind.startswith("multipart/"):
            body = self.rfile.read(int(self.headers["content-length"]))
            head = f"content-type: {kind}\r\n\r\n".encode()
            message = BytesParser(policy=HTTP).parsebytes(head + body)
            parts = {
                part.get_param("name", header="content-disposition"): json.loads(
                    part.get_payload(decode=True)
                )
                for part in message.iter_parts()
            }
            data = json.dumps(parts).encode()
            self.rfile = _Body(data)
            self.headers.replace_header("content-length", str(len(data)))
        super()._serve()

    do_GET = do_POST = do_PATCH = do_DELETE = _serve  # noqa: N815


class _Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, _: int) -> bytes:
        return self._data

    def readline(self, _: int = -1) -> bytes:
        return b""  # one request a connection

    def close(self) -> None: ...

    closed = False

    def flush(self) -> None: ...


def _joined(call: Call) -> list[dict[str, Any]]:
    """Put the parts of each example together."""
    dataset = re.search(r"[0-9a-f-]{36}", call.path)
    assert dataset
    found: dict[str, dict[str, Any]] = {}
    for name, value in call.body.items():
        example_id, _, field = name.partition(".")
        one = found.setdefault(example_id, {"id": example_id, "dataset_id": dataset[0]})
        one.update({field: value} if field else value)
    return list(found.values())
