"""Fetch the JavaScript of others that the web pages need, at pinned versions, through npm.

python scripts/vendor_web.py                 rewrite src/comal/site/vendor
python scripts/vendor_web.py --tests DIR     what only the browser tests need, into DIR

A package is taken only when its archive has the digest that is pinned here. Files are copied byte
for byte. Modules are renamed from .mjs to .js, because not every static host knows the type of
the former.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

VENDOR = Path(__file__).resolve().parent.parent / "src" / "comal" / "site" / "vendor"


@dataclass(frozen=True)
class Package:
    """One npm package: its archive's digest, and which files are copied under which names."""

    name: str
    version: str
    license: str
    sha512: str
    files: dict[str, str]


SHIPPED = (
    Package(
        "maplibre-gl",
        "6.17.0",
        "BSD-3-Clause",
        "2chIZwpLGenoUQOcnm9Pk4SLbA8ppNFq8jlpXiq9vcYm3Y1wJ3fc82FL0GLwBaPYJCLzPv/mC46KEupVov75rQ==",
        {
            "dist/maplibre-gl.mjs": "maplibre-gl.js",
            "dist/maplibre-gl-worker.mjs": "maplibre-gl-worker.js",
            "dist/maplibre-gl.css": "maplibre-gl.css",
            "LICENSE.txt": "LICENSE.txt",
        },
    ),
    Package(
        "fzstd",
        "0.1.1",
        "MIT",
        "dkuVSOKKwh3eas5VkJy1AW1vFpet8TA/fGmVA5krThl8YcOVE/8ZIoEA1+U1vEn5ckxxhLirSdY837azmbaNHA==",
        {"esm/index.mjs": "fzstd.js", "LICENSE": "LICENSE.txt"},
    ),
)
TESTED = (
    Package(
        "leaflet",
        "1.9.4",
        "BSD-2-Clause",
        "nxS1ynzJOmOlHp+iL3FyWqK89GtNL8U8rvlMOsQdTTssxZwCXh8N2NB3GDQOL+YR3XnWyZAxwQixURb+FA74PA==",
        {
            "dist/leaflet-src.esm.js": "leaflet.js",
            "dist/leaflet.css": "leaflet.css",
            "LICENSE": "LICENSE.txt",
        },
    ),
)


def main() -> None:
    """Fetch what the command line asks for."""
    match sys.argv[1:]:
        case []:
            shutil.rmtree(VENDOR, ignore_errors=True)
            listed = [fetch(package, VENDOR) for package in SHIPPED]
            document = json.dumps(listed, indent=2) + "\n"
            (VENDOR / "vendored.json").write_text(document, encoding="utf-8")
        case ["--tests", folder]:
            for package in TESTED:
                fetch(package, Path(folder))
        case _:
            sys.exit(__doc__)


def fetch(package: Package, root: Path) -> dict[str, object]:
    """Copy the files of one package below `root`; what came, with digests, is returned."""
    spec = f"{package.name}@{package.version}"
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, spec]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (archive,) = Path(folder).glob("*.tgz")
        found = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        if found != package.sha512:
            sys.exit(f"{spec}: the archive has the digest {found}, pinned is {package.sha512}")
        target = root / package.name
        target.mkdir(parents=True, exist_ok=True)
        digests = {}
        with tarfile.open(archive) as packed:
            for source, name in package.files.items():
                member = packed.extractfile(f"package/{source}")
                if member is None:
                    sys.exit(f"{spec}: {source} is no file")
                data = member.read()
                (target / name).write_bytes(data)
                digests[f"{package.name}/{name}"] = hashlib.sha256(data).hexdigest()
    print(f"{spec}: {len(digests)} files")
    return {
        "name": package.name,
        "version": package.version,
        "license": package.license,
        "sha256": digests,
    }


if __name__ == "__main__":
    main()
