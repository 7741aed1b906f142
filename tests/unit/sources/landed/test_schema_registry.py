"""A landing reads each schema from the registry once, and says what is wrong with the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from milepost.errors import CheckpointError, EnvironmentUnusable, InvalidRequest, SourceUnreachable
from milepost.sources.landed import (
    Reached,
    ResumableSource,
    SchemaRegistry,
    WithSchemas,
    decode_schema,
    schema_registry,
)
from milepost_testkit import wording
from milepost_testkit.jobs.avro_messages import header
from milepost_testkit.jobs.message_feed import MessageFeed
from milepost_testkit.processes.processes import free_ports
from milepost_testkit.servers.schema_registry import Registry
from milepost_testkit.servers.schema_registry import schema_registry as running

SECRET = "hush-3f9"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(schema_registry, "MAX_WAIT_S", 0.01)
    with running() as server:
        server.register(7, {"type": "string"}, "orders-value")
        yield server


def opened(registry: Registry, **keys: str) -> SchemaRegistry:
    return SchemaRegistry("orders", "AVRO", keys.pop("url", registry.url), **keys)


def test_a_schema_is_read_once(registry: Registry) -> None:
    client = opened(registry)
    assert client.schemas([]) == {}
    for _ in range(2):
        (found,) = client.schemas([7]).values()
    assert (decode_schema(found).kind, decode_schema(found).schema) == ("AVRO", '{"type": "string"}')
    assert registry.asked == ["/schemas/ids/7"]


def test_a_schema_has_all_that_it_refers_to_before_what_needs_it(registry: Registry) -> None:
    def reference(name: str, subject: str) -> dict[str, object]:
        return {"name": name, "subject": subject, "version": 3}

    registry.register(1, "A", "a b/1", 3)
    registry.register(2, "B", "b", 3, references=[reference("a", "a b/1")])
    registry.register(3, "C", "c", 1, references=[reference("b", "b"), reference("a", "a b/1")], schemaType="JSON")
    (found,) = opened(registry).schemas([3]).values()
    schema = decode_schema(found)
    assert (schema.kind, schema.schema, schema.references) == ("JSON", "C", (("a", "A"), ("b", "B")))


def test_a_schema_that_the_registry_lacks_is_left_out(registry: Registry) -> None:
    client = opened(registry)
    assert [*client.schemas([7, 8])] == [b"milepost.schema.7"]
    client.schemas([8])
    assert registry.asked == ["/schemas/ids/7", "/schemas/ids/8"]


def test_too_many_schemas_that_the_registry_lacks_stop_the_landing(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_registry, "MAX_UNKNOWN_IDS", 3)
    with wording.raises(InvalidRequest):
        opened(registry).schemas([7, *range(100, 200)])


def test_a_reference_that_the_registry_lacks_stops_the_landing(registry: Registry) -> None:
    registry.register(1, "A", "a", 3, references=[{"name": "b", "subject": "b", "version": 1}])
    with wording.raises(InvalidRequest):
        opened(registry).schemas([1])


@pytest.mark.parametrize(
    ("failure", "error", "tries"),
    [
        (500, SourceUnreachable, 3),
        (503, SourceUnreachable, 3),
        (429, SourceUnreachable, 3),
        (403, EnvironmentUnusable, 1),
        (404, InvalidRequest, 1),
        (302, InvalidRequest, 1),
        (400, InvalidRequest, 1),
    ],
)
def test_an_answer_that_is_none_is_a_typed_error(
    registry: Registry, failure: int, error: type[CheckpointError], tries: int
) -> None:
    registry.failure = failure
    with wording.raises(error):
        opened(registry).schemas([7])
    assert len(registry.asked) == tries


def test_a_registry_that_does_not_run_is_a_typed_error(registry: Registry) -> None:
    with pytest.raises(SourceUnreachable) as refused:
        opened(registry, url=f"http://user:{SECRET}@127.0.0.1:{free_ports(1)[0]}").schemas([7])
    assert "gave no answer" in refused.value.message and SECRET not in refused.value.message


@pytest.mark.parametrize("url", ["http://[", "ftp://registry", "http://127.0.0.1:99999"])
def test_a_url_of_no_registry_is_a_typed_error(registry: Registry, url: str) -> None:
    with pytest.raises((InvalidRequest, SourceUnreachable)):
        opened(registry, url=url).schemas([7])


def test_another_server_s_answers_are_a_typed_error(registry: Registry) -> None:
    with wording.raises(InvalidRequest):
        opened(registry, url=registry.url + "/elsewhere").schemas([7])
    for content in (["x"], {"id": 7}, {"schema": 5}, {"schema": "x", "references": [{"name": "a"}]}):
        registry.schemas[7] = content  # type: ignore[assignment]
        with pytest.raises(InvalidRequest):
            opened(registry).schemas([7])


def test_the_login_is_sent_and_never_shown(registry: Registry) -> None:
    registry.login = ("reader", SECRET)
    assert len(opened(registry, username="reader", password=SECRET).schemas([7])) == 1
    registry.login = ("reader", "another")
    with wording.raises(EnvironmentUnusable) as refused:
        opened(registry, username="reader", password=SECRET).schemas([7])
    assert SECRET not in refused.value.message + str(refused.value.hint) + repr(refused.value.details)


def test_batches_carry_the_schemas_of_their_values(registry: Registry) -> None:
    feed = MessageFeed(2)
    feed.add([(header(7) + b"a", None, 0), (None, None, 0), (b"{}", None, 0)])
    source = WithSchemas(feed, opened(registry))
    assert isinstance(source, ResumableSource), "a gap can be approved"
    assert source.resume_position("latest", {"next": 0}) == Reached({"next": 3})
    position = source.initial_position()
    found = []
    while (pull := source.next_pull(position)) is not None:
        batches = [item for item in source.read(pull.splits[0]) if not isinstance(item, Reached)]
        found.append([json.loads(text) for item in batches for text in (item.schema.metadata or {}).values()])
        position = pull.end
    assert found == [[{"kind": "AVRO", "references": [], "schema": '{"type": "string"}'}], []]
    assert isinstance(batches[0], pa.RecordBatch)


def test_a_protobuf_schema_is_read_as_a_descriptor(registry: Registry) -> None:
    registry.register(1, "syntax", "a", 3, schemaType="PROTOBUF")
    references = [{"name": "a.proto", "subject": "a", "version": 3}]
    registry.register(2, "import", "b", 1, schemaType="PROTOBUF", references=references)
    registry.serialized = {"syntax": "AAAA", "import": "AAEA", '{"type": "string"}': "not base64"}
    client = SchemaRegistry("orders", "PROTOBUF", registry.url)
    (found,) = client.schemas([2]).values()
    schema = decode_schema(found)
    assert (schema.kind, schema.schema, schema.references) == ("PROTOBUF", "AAEA", (("a.proto", "AAAA"),))
    assert client.schemas([7]), "the message is bad, not the registry: the schema is of another kind"


def test_a_registry_that_returns_texts_of_protobuf_is_refused(registry: Registry) -> None:
    registry.register(1, 'syntax = "proto3";', "a", 3, schemaType="PROTOBUF")
    registry.serialized = {'syntax = "proto3";': 'syntax = "proto3";'}
    with wording.raises(InvalidRequest):
        SchemaRegistry("orders", "PROTOBUF", registry.url).schemas([1])
