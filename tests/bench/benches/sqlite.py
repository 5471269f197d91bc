"""The peer of the store benchmark: the same updates in sqlite.

Arguments: file, number of records, bytes of each, number of updates, seed.
Prints "ready" when the records exist and "done" after the updates, and waits
for a line after each, so that counters can be read in between.
"""
import random
import sqlite3
import sys

path, records, size, updates, seed = sys.argv[1], *map(int, sys.argv[2:6])
chance = random.Random(seed)

database = sqlite3.connect(path, isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA synchronous=FULL")
database.execute("CREATE TABLE record (id BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")
keys = [chance.randbytes(16) for _ in range(records)]
database.execute("BEGIN")
for key in keys:
    database.execute("INSERT INTO record VALUES (?, ?)", (key, chance.randbytes(size)))
database.execute("COMMIT")
database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

print("ready", flush=True)
sys.stdin.readline()
for _ in range(updates):
    value = (chance.randbytes(size), keys[chance.randrange(records)])
    database.execute("UPDATE record SET value = ? WHERE id = ?", value)
print("done", flush=True)
sys.stdin.readline()
