"""Searches for secrets in files and directories: find.py SECRETS PATH...

SECRETS has one secret per line. Each is searched in clear text, in hexadecimal and in base64,
which has three forms: one for each offset within a group of three bytes. Prints each secret
found with its form and file, and ends with 1; otherwise with 0.
"""

import base64
import os
import sys


def forms(secret):
    yield "clear", secret
    yield "hex", secret.hex().encode()
    yield "HEX", secret.hex().upper().encode()
    # Only the characters that do not depend on neighbouring bytes.
    for before in range(3):
        whole = base64.b64encode(bytes(before) + secret)
        first = -(-before * 8 // 6)
        last = (before + len(secret)) * 8 // 6
        inner = whole[first:last]
        yield f"base64 from {before}", inner
        yield f"base64 for URLs from {before}", inner.replace(b"+", b"-").replace(b"/", b"_")


def files(path):
    if not os.path.isdir(path):
        yield path
    for directory, _, names in os.walk(path):
        for name in names:
            yield os.path.join(directory, name)


def main(secrets, *paths):
    with open(secrets, "rb") as file:
        wanted = [line for line in file.read().split(b"\n") if line]
    found = read = 0
    for path in (file for path in paths for file in files(path)):
        if not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            held = file.read()
        read += len(held)
        for secret in wanted:
            for form, text in dict(forms(secret)).items():
                if text in held:
                    found += 1
                    print(f"{secret.decode()} as {form} in {path}")
    if read == 0:
        print("nothing was read")
    return 1 if found or read == 0 else 0


sys.exit(main(*sys.argv[1:]))
