"""Publishes each payload of standard input, a JSON array of texts, and prints the ids.

    sqlite.py FILE
"""

import json
import sqlite3
import sys
import uuid


# docs: this function
def publish(connection, event_type, key, payload):
    event_id = str(uuid.uuid4())
    connection.execute(
        "INSERT INTO twinbox_outbox (id, type, key, payload) VALUES (?, ?, ?, ?)",
        (event_id, event_type, key, payload.encode()),
    )
    return event_id


# docs: end
with sqlite3.connect(sys.argv[1]) as connection:
    for payload in json.load(sys.stdin):
        print(publish(connection, "orders.placed", "order-7", payload))
