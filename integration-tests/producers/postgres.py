"""Publishes each payload of standard input, a JSON array of texts, and prints the ids.

    postgres.py URL
"""

import json
import sys

import psycopg


# docs: this function
def publish(connection, event_type, key, payload):
    row = connection.execute("SELECT twinbox.publish(%s, %s, %s)", (event_type, key, payload)).fetchone()
    return row[0]


# docs: end
with psycopg.connect(sys.argv[1]) as connection:
    for payload in json.load(sys.stdin):
        print(publish(connection, "orders.placed", "order-7", payload))
