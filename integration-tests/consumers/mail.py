"""Handles the messages of a stream, each once, with an inbox of its own, and ends when none is left.

    mail.py NATS_URL STREAM SUBJECT DATABASE_URL [before-ack]

before-ack: it dies after the first commit, before the acknowledgement.
"""

import asyncio
import json
import os
import sys
from urllib.parse import unquote

import nats
import psycopg
from nats.js.api import ConsumerConfig

CONSUMER = "mail.python"


# docs: this function
def handle(connection, consumer, message):
    source, event_id = unquote(message.headers["ce-source"]), unquote(message.headers["ce-id"])
    event_type = message.subject.split(".", 2)[2]
    with connection.transaction():
        claim = connection.execute(
            "INSERT INTO inbox (consumer, source, type, event_id) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT DO NOTHING",
            (consumer, source, event_type, event_id),
        )
        if claim.rowcount == 1:
            work(connection, json.loads(message.data))


# docs: end
def work(connection, order):
    connection.execute("INSERT INTO effects (n) VALUES (%s)", (order["n"],))


async def main(nats_url, stream, subject, database_url, dies=None):
    client = await nats.connect(nats_url)
    config = ConsumerConfig(ack_wait=1)
    messages = await client.jetstream().pull_subscribe(subject, "mail", stream, config)
    with psycopg.connect(database_url, autocommit=True) as connection:
        while True:
            left = await messages.consumer_info()
            if left.num_pending + left.num_ack_pending == 0:
                break
            try:
                fetched = await messages.fetch(10, timeout=5)
            except nats.errors.TimeoutError:
                continue
            for message in fetched:
                handle(connection, CONSUMER, message)
                if dies:
                    os._exit(9)
                await message.ack_sync()
    await client.close()


asyncio.run(main(*sys.argv[1:]))
