"""Requests that are refused: each with a problem that has its status and tells nothing else."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.server.asking import ask

PATHS: dict[int, tuple[str, ...]] = {
    404: (
        *("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/..%2f..%2fetc%2fpasswd"),
        *("/scenes/data/..%2F..%2Fetc%2Fpasswd", "/scenes/data//etc/passwd", "/other/1/0/1.png"),
        *("/scenes/data/%2Fetc%2Fpasswd", "/scenes/data/http:%2F%2F169.254.169.254%2F"),
        *("//", "//tiles/0/0/0.png", "/tiles//", "/http://169.254.169.254/", "/healthz/x"),
        *("/_/%2e%2e%2fregistry.py", "/_/../making.py", "/_/..%2f..%2fetc", "/_/", "/_/nothing.js"),
        *("/collections/nothing", "/tileMatrixSets/Nothing", "/sources.json/x"),
        # absent, below the last zoom, in no matrix, in no format, in no scale
        *("/tiles/2/3/3.png", "/tiles/3/0/0.png", "/tiles/1/2/0.png", "/tiles/1/0/1.gif"),
        *("/tiles/1/0/99999999999.png", "/tiles/99/0/0.png", "/tiles/1/0/1@3x.png"),
        *("/tiles/1/0/1@0x.png", "/tiles/1/0/1@.png", "/tiles/1/0/1@2x@2x.png", "/tiles/1/0"),
        *("/dem/2/0/0.png", "/dem/1/2/0.png", "/dem/1/0/0.tif", "/dem/1/0/0@3x.png"),
        # sizes in pixels are of Tapalcatl 1
        *("/tiles/256/1/0/1.png", "/tiles/1/0/1/2/3/4.png", "/tiles.json?ext=exe"),
    ),
    400: (
        *("/tiles/..%5c..%5cx/0/0.png", "/tiles/0/0/0.png%00", "/%00", "/%ff%fe", "/" + "a/" * 100),
        *("/tiles%0d%0aX-Bad:%20yes", "/scenes/items?bbox=%00", "/scenes/items?%ff=%ff"),
        *("/scenes/items?" + "a=b&" * 200, "/rgb/1/0/1.png?x=" + "&x=" * 150),
        *("/tiles/a/0/1.png", "/tiles/1/b/1.png", "/tiles/1/0/c.png", "/tiles/-1/0/0.png"),
        *("/tiles/01/0/0.png", "/tiles/1/+0/0.png", "/tiles/1.0/0/0.png", "/tiles/1/ 0/0.png"),
        *("/tiles/1/0/.png", "/tiles/1//0.png", "/dem/1/0/x.png"),
        "/tiles/%D9%A1/0/0.png",  # a digit, but no ASCII
    ),
    414: ("/" + "x" * 9000, "/scenes/items?filter=" + "x" * 9000),
}
DRAWN = (
    *("bidx=0", "bidx=4", "bidx=x", "bidx=-1", "bidx=1&bidx=2", "rescale=1", "rescale=2,1"),
    *("rescale=a,b", "rescale=nan,1", "rescale=0,inf", "rescale=0,1&rescale=0,2", "time=3"),
    *("colormap_name=nothing", "colormap_name=../../etc/passwd", "nodata=x", "nodata=inf"),
    *("return_mask=maybe", "algorithm=magic", "expression=b9", "expression=1"),
    *("colormap_name=viridis", "algorithm=terrarium"),  # three bands
    *("expression=__import__('os').system('id')", "expression=b1.__class__"),
    *("expression=[b1 for b1 in (1,)]", "expression=lambda: b1", "expression=open('x')"),
    *("expression=b1 if b1 else b2", "expression=b1" + "%2Bb1" * 300, "expression=" + "(" * 400),
    *("expression=sqrt(b1,b2)", "expression=9**9**9**b1**1e999&rescale=0,1;"),
)
"""Of a raster of three bands."""
ROWS = (
    *("limit=0", "limit=-1", "limit=x", "limit=1e3", "offset=-1", "bbox=1,2", "bbox=0,50,0,40"),
    *(
        "bbox=1,2,3,4,5",
        "bbox=1,2,3,4,5,6,7",
        "bbox=0,-90.1,1,1",
        "bbox=0,0,1,90.1",
        "bbox=a,0,1,1",
    ),
    *("bbox=-360.1,0,1,1", "bbox=0,0,360.1,1", "bbox=inf,0,1,1"),
    *("bbox=nan,0,1,1", "datetime=yesterday", "datetime=2024-01-01/2023-01-01", "datetime=.."),
    *("sortby=nothing", "sortby=stac:geotransform", "filter-lang=cql2-json", "filter=%00"),
    *("filter-crs=EPSG:3857", "filter=%FF", "nothing=1"),
)
FILTERS = (
    *("cloud_cover <", "cloud_cover < 'a'", "nothing = 1", "split = 1", "1 = 1", "cloud_cover"),
    *("split LIKE 1", "cloud_cover LIKE 'a'", "cloud_cover IN ()", "cloud_cover IN (1, 'a')"),
    *("(cloud_cover < 1", "cloud_cover < 1)", "cloud_cover < 1; DROP TABLE data", "NOT", "AND AND"),
    *("cloud_cover < 1 -- x", "id = 'a' UNION SELECT 1", "read_csv('/etc/passwd')"),
    *("sqrt(cloud_cover) < 1", 'id = "unclosed', "id = 'unclosed", "stac:time_start > 5"),
    *("stac:time_start > 'no time'", "TIMESTAMP('x') < stac:time_start", "clear > 1"),
    *("stac:centroid = 'x'", "internal:offset = 'x'", "(" * 100 + "TRUE" + ")" * 100),
    *("cloud_cover < 99999999999999999999999e999", "\u0661 < cloud_cover"),
    *("cloud_cover < 1 cloud_cover", "id IN (" + ",".join(["1"] * 1200) + ")"),
    *("stac:time_start > cloud_cover"),
)


def check(app: Any, path: str, status: int) -> Any:
    """The problem document of a refusal."""
    reply = ask(app, path)
    assert reply.status == status, (path, reply.body)
    assert reply.headers["content-type"] == "application/problem+json"
    document = reply.json()
    assert document.keys() == {"type", "title", "status", "detail", "code", "id"}
    assert (document["id"], document["status"]) == (reply.headers["x-request-id"], status)
    assert "Traceback" not in reply.body.decode()
    assert not any("\r" in value or "\n" in value for _, value in reply.pairs)
    return document


@pytest.mark.parametrize("status", PATHS)
def test_paths(app: Any, status: int) -> None:
    for path in PATHS[status] * 2:  # once closed, once open
        check(app, path, status)


def test_parameters(app: Any) -> None:
    for query in DRAWN:
        check(app, f"/rgb/1/0/1.png?{query}", 400)
    for query in ROWS:
        check(app, f"/scenes/items?{query}", 400)
    for text in FILTERS:
        document = check(app, f"/scenes/items?filter={quote(text)}", 400)
        assert document["code"] in {"query", "bad-request"}, text


def test_empty_parameters_are_as_if_they_were_not_there(app: Any) -> None:
    assert ask(app, "/rgb/1/0/1.png?expression=").status == 200
    assert ask(app, "/tiles/").status == 200
    beyond = "/scenes/items?filter=cloud_cover%3C9999999999999999999"
    assert ask(app, beyond).json()["numberMatched"] == 5, "no int64, but a number"


def test_huge_headers(app: Any) -> None:
    many = {f"X-{number}": "y" * 40 for number in range(500)}
    for headers in ({"X-Long": "x" * 20_000}, many) * 2:
        assert ask(app, "/tiles/0/0/0.png", headers=headers).status == 431
        assert ask(app, "/tiles/0/0/0.png").status == 200


def test_methods(app: Any) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "TRACE", "NONSENSE"):
        reply = ask(app, "/tiles/1/0/1.png", method)
        assert (reply.status, reply.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
