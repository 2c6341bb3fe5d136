"""Reads what was relayed as somebody would who has never heard of Twinbox.

    events.py bus URL NAME QUEUE…      makes a bus and queues behind it
    events.py sqs URL NAME COUNT       prints the events of the queue, a line each, until there were COUNT
    events.py nats URL STREAM COUNT    the same for a stream
"""

import asyncio
import json
import sys
import threading
from urllib.parse import unquote

import boto3
import nats
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent

BATCH = 10
READERS = 3
# Seconds, longer than any test.
HIDDEN = 3600
FORMAT = JSONFormat()


def show(event):
    attributes = {name: str(value) for name, value in event.get_attributes().items()}
    data = event.get_data()
    if isinstance(data, str):
        data = data.encode()
    if isinstance(data, bytes):
        data = {"bytes": list(data)}
    print(json.dumps({"attributes": attributes, "data": data}))


def client(service, url):
    keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
    return boto3.client(service, endpoint_url=url, region_name="eu-west-1", **keys)


def bus(url, name, queues):
    events, sqs = client("events", url), client("sqs", url)
    events.create_event_bus(Name=name)
    pattern = json.dumps({"source": [{"prefix": ""}]})
    events.put_rule(Name=name, EventBusName=name, EventPattern=pattern)
    targets = []
    for queue in queues:
        made = sqs.create_queue(QueueName=queue)["QueueUrl"]
        attributes = sqs.get_queue_attributes(QueueUrl=made, AttributeNames=["QueueArn"])["Attributes"]
        targets.append({"Id": queue, "Arn": attributes["QueueArn"]})
    events.put_targets(Rule=name, EventBusName=name, Targets=targets)


def sqs(url, name, count):
    seen, lock = set(), threading.Lock()

    def read():
        sqs = client("sqs", url)
        queue = sqs.get_queue_url(QueueName=name)["QueueUrl"]
        while len(seen) < count:
            # Hidden and never deleted: moto loses what is sent while it deletes.
            received = sqs.receive_message(
                QueueUrl=queue, MaxNumberOfMessages=BATCH, WaitTimeSeconds=1, VisibilityTimeout=HIDDEN
            )
            with lock:
                for message in received.get("Messages", []):
                    envelope = json.loads(message["Body"])
                    event = FORMAT.read(CloudEvent, json.dumps(envelope["detail"]))
                    assert envelope["source"] == event.get_source()
                    assert envelope["detail-type"] == event.get_type()
                    seen.add(event.get_id())
                    show(event)

    readers = [threading.Thread(target=read) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()


async def read_nats(url, stream, count):
    connection = await nats.connect(url)
    subscription = await connection.jetstream().pull_subscribe("", stream=stream)
    while count > 0:
        for message in await subscription.fetch(min(count, 500), timeout=10):
            headers = message.headers.items()
            attributes = {name[3:]: unquote(value) for name, value in headers if name.startswith("ce-")}
            content_type = attributes.get("datacontenttype")
            # The format knows how a time is written, and the data of other content types.
            bare = FORMAT.read(CloudEvent, json.dumps(attributes)).get_attributes()
            show(CloudEvent(bare, FORMAT.read_data(message.data, content_type)))
            await message.ack()
            count -= 1
    await connection.close()


if __name__ == "__main__":
    command, url, name, *rest = sys.argv[1:]
    match command:
        case "bus":
            bus(url, name, rest)
        case "sqs":
            sqs(url, name, int(rest[0]))
        case "nats":
            asyncio.run(read_nats(url, name, int(rest[0])))
