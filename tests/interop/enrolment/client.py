"""The agent's side of an enrolment, after certs/enrol/README.md alone.

token MAILBOX CA: checks the layout of a mailbox (hexadecimal digits) and prints its token.
content TOKEN KEY: a mailbox with this token and digest of a CA key, both in hexadecimal digits.
body MAC CSR TOKEN: the body of a request, proven with the token (hexadecimal digits).
swap BODY CSR: the same body with another signing request.
certificate ANSWER: the certificate in an answer.
"""

import base64
import hashlib
import hmac
import json
import subprocess
import sys
import time


def checksum(data):
    return hashlib.sha256(data).digest()[:8]


def token(mailbox, authority):
    data = bytes.fromhex(mailbox)
    assert len(data) == 80, f"{len(data)} bytes"
    assert int.from_bytes(data[0:3], "little") == 32473, data[:3]
    assert (data[3], data[4:8]) == (1, b"TRVT"), data[:8]
    assert abs(int.from_bytes(data[32:40], "little") - time.time()) < 600, data[32:40]
    public = subprocess.run(
        ["openssl", "x509", "-in", authority, "-noout", "-pubkey"], capture_output=True, check=True
    )
    key = subprocess.run(
        ["openssl", "pkey", "-pubin", "-outform", "DER"],
        input=public.stdout, capture_output=True, check=True,
    )
    assert data[40:72] == hashlib.sha256(key.stdout).digest(), "another key of the CA"
    assert data[72:80] == checksum(data[:72]), "checksum"
    return data[8:32].hex()


def content(one_time, key):
    data = (32473).to_bytes(3, "little") + b"\1TRVT" + bytes.fromhex(one_time)
    data += int(time.time()).to_bytes(8, "little") + bytes.fromhex(key)
    return (data + checksum(data)).hex()


def body(mac, csr, one_time):
    request = open(csr, "rb").read()
    proof = hmac.new(bytes.fromhex(one_time), b"trivet enrolment 1\0" + request, "sha256").digest()
    encoded = {"csr": request, "proof": proof}
    encoded = {name: base64.b64encode(value).decode() for name, value in encoded.items()}
    return json.dumps({"addresses": [mac], **encoded})


def swap(text, csr):
    swapped = json.loads(text)
    swapped["csr"] = base64.b64encode(open(csr, "rb").read()).decode()
    return json.dumps(swapped)


def certificate(answer):
    return json.load(open(answer))["certificate"]


COMMANDS = {one.__name__: one for one in (token, content, body, swap, certificate)}
print(COMMANDS[sys.argv[1]](*sys.argv[2:]))
