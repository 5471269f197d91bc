"""Writes an OCI image layout: layout.py LAYOUT DIRECTORY. Its tags are images of one layer each,
of the files in the directory, an index of several, and an image of a container."""

import hashlib
import json
import os
import sys

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
TITLE = "org.opencontainers.image.title"
layout, files = sys.argv[1:]
os.makedirs(f"{layout}/blobs/sha256")


def blob(content, **more):
    digest = hashlib.sha256(content).hexdigest()
    with open(f"{layout}/blobs/sha256/{digest}", "wb") as file:
        file.write(content)
    return {"digest": f"sha256:{digest}", "size": len(content), **more}


def read(name):
    with open(f"{files}/{name}", "rb") as file:
        return file.read()


def layer(name, media_type, title=True):
    more = {"annotations": {TITLE: name}} if title else {}
    return blob(read(name), mediaType=media_type, **more)


def manifest(*layers, **annotations):
    config = blob(b"{}", mediaType="application/vnd.oci.empty.v1+json")
    content = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
    if annotations:
        content["annotations"] = annotations
    return blob(json.dumps(content).encode(), mediaType=MANIFEST)


octets = "application/octet-stream"
# The media type that `oras push` gives to each file.
tar = "application/vnd.oci.image.layer.v1.tar"
tags = {
    "raw": manifest(layer("disk.raw", octets)),
    "qcow2": manifest(layer("disk.qcow2", tar)),
    "zstd": manifest(layer("disk.raw.zst", "application/zstd")),
    # Without any hint.
    "plain": manifest(layer("disk.qcow2", octets, title=False)),
    "container": manifest(layer("root.tar.gz", tar + "+gzip", title=False)),
}


def entry(tag, disk_type, architecture):
    platform = {"architecture": architecture, "os": "linux"}
    return {**tags[tag], "annotations": {"disktype": disk_type}, "platform": platform}


index = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.oci.image.index.v1+json",
    "manifests": [entry("zstd", "raw", "arm64"), entry("raw", "raw", "amd64")],
}
tags["many"] = blob(json.dumps(index).encode(), mediaType=index["mediaType"])
named = [
    {**found, "annotations": {"org.opencontainers.image.ref.name": tag}}
    for tag, found in tags.items()
]
with open(f"{layout}/index.json", "w", encoding="ascii") as file:
    json.dump({"schemaVersion": 2, "manifests": named}, file)
with open(f"{layout}/oci-layout", "w", encoding="ascii") as file:
    json.dump({"imageLayoutVersion": "1.0.0"}, file)
for tag, found in tags.items():
    print(tag, found["digest"])
