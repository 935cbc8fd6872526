"""How the files of the pages are served: types, caching, packing, and what a page may do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from podium.server.pages import POLICY, STATIC, read_files, static_files
from support.site import Site

if TYPE_CHECKING:
    from playwright.async_api import Page, Response

FIRST_PAGE_BYTES = 300_000


async def test_every_answer_says_what_a_page_may_do(site: Site) -> None:
    async with httpx.AsyncClient(base_url=site.address) as client:
        for path in ("/", "/runs/run_none", "/experiments/a/b", "/static/app.js"):
            headers = (await client.get(path)).headers
            assert headers["content-security-policy"] == POLICY
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
    assert "unsafe" not in POLICY
    assert POLICY.startswith("default-src 'none'")


async def test_files_are_kept_for_ever_below_their_fingerprint_and_else_asked_for_again(
    site: Site,
) -> None:
    async with httpx.AsyncClient(base_url=site.address) as client:
        index = await client.get("/")
        assert index.headers["cache-control"] == "no-cache"
        (script,) = set(re.findall(r'"(/static/v-[0-9a-f]{12}/app\.js)"', index.text))
        kept = await client.get(script)
        assert "immutable" in kept.headers["cache-control"]
        assert kept.headers["content-type"] == "text/javascript; charset=utf-8"
        other = await client.get("/static/v-000000000000/app.js")
        assert (other.text, other.headers["cache-control"]) == (kept.text, "no-cache")
        again = await client.get("/", headers={"If-None-Match": index.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert (await client.head("/runs")).status_code == 200


async def test_files_are_compressed_if_the_client_accepts_it(site: Site) -> None:
    async with httpx.AsyncClient(base_url=site.address) as client:
        packed = await client.get("/static/style/base.css")
        plain = await client.get("/static/style/base.css", headers={"Accept-Encoding": "identity"})
        assert (packed.headers["content-encoding"], plain.headers.get("content-encoding")) == (
            "gzip",
            None,
        )
        assert packed.content == plain.content
        assert int(packed.headers["content-length"]) < len(plain.content) / 2


@pytest.mark.parametrize(
    "path",
    [
        "/static/none.js",
        "/static/../pages/__init__.py",
        "/static/%2e%2e/__init__.py",
        "/static/",
        "/static/v-1",
    ],
)
async def test_nothing_but_the_files_is_served(site: Site, path: str) -> None:
    async with httpx.AsyncClient(base_url=site.address) as client:
        assert (await client.get(path)).status_code == 404


def test_a_change_in_any_file_changes_the_address_of_all(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text("1", "utf-8")
    (tmp_path / "index.html").write_text('<script src="/static/a.js">', "utf-8")
    (tmp_path / "notes.py").write_text("no file of a page", "utf-8")
    before = read_files(tmp_path)
    (tmp_path / "a.js").write_text("2", "utf-8")
    after = read_files(tmp_path)
    assert set(before.by_path) == {"a.js", "index.html"}
    assert before.fingerprint != after.fingerprint
    assert before.by_path["index.html"].etag != after.by_path["index.html"].etag


def test_the_page_links_every_style_there_is() -> None:
    index = (STATIC / "index.html").read_text("utf-8")
    linked = set(re.findall(r'"/static/(style/[a-z-]+\.css)"', index))
    assert linked == {path for path in static_files().by_path if path.startswith("style/")}


def modules() -> dict[Path, str]:
    """Our own modules, and what stands in each."""
    own = (path for path in sorted(STATIC.rglob("*.js")) if "vendor" not in path.parts)
    return {path: path.read_text("utf-8") for path in own}


def test_shared_settings_do_not_depend_on_the_draw() -> None:
    for path, source in modules().items():
        if path.parent.name == "lib":
            assert not re.search(r"'\.\./(?:parts|pages)/|'\.\./app", source), path.name


def test_exports_can_be_imported_elsewhere() -> None:
    sources = modules()
    for path, source in sources.items():
        kinds = r"(?:async )?(?:function\*?|const|class)"
        exported = set(re.findall(rf"^export {kinds} (\w+)", source, re.MULTILINE))
        others = "".join(item for other, item in sources.items() if other != path)
        imported = " ".join(re.findall(r"\{([^}]*)\} (?:from|= await import)", others))
        of_pages = {"title", "show"} if path.parent.name == "pages" else set[str]()
        assert not exported - of_pages - set(re.findall(r"\w+", imported)), path.name


def test_every_class_of_the_styles_is_some_elements() -> None:
    made = "".join(modules().values()) + (STATIC / "index.html").read_text("utf-8")
    words = set(re.findall(r"[\w-]+", made))
    for path in sorted((STATIC / "style").glob("*.css")):
        for name in set(re.findall(r"\.([a-z][a-z0-9-]*)(?=[^{}]*\{)", path.read_text("utf-8"))):
            begun = re.sub(r"-[^-]+$", "-${", name)  # `hue-${number}`
            assert name in words or begun in made, f"{path.name} has .{name}"


def test_modules_are_small_and_import_what_there_is() -> None:
    for path, source in modules().items():
        assert len(source.splitlines()) <= 500, f"{path.name} is long; split it"
        for name in re.findall(r"(?:from|import\()\s*'(\.[^']+)'", source):
            assert (path.parent / name).resolve().is_file(), f"{path.name} imports {name}"


@pytest.mark.usefixtures("fresh_profile")
async def test_the_first_page_is_light(page: Page, site: Site) -> None:
    sizes: dict[str, int] = {}

    def weigh(response: Response) -> None:
        sizes[response.url] = int(response.headers.get("content-length", 0))

    page.on("response", weigh)
    await page.goto(site.url("/"))
    await page.wait_for_load_state("networkidle")
    assert len(sizes) > 5
    assert all(url.startswith(site.address + "/") for url in sizes)
    total = sum(sizes.values()) + 400 * len(sizes)  # headers, on the high side
    assert total < FIRST_PAGE_BYTES
    assert not [url for url in sizes if "vendor" in url], "mathematics is loaded when there is some"
