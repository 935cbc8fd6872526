import pytest

from podium._util.addresses import proxy_for, redact_url, strip_credentials


@pytest.fixture(autouse=True)
def no_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("proxy", ["http://u:p@box:3128", "u:p@box:3128"])
def test_a_proxy_may_be_named_without_its_scheme(
    monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    assert proxy_for("http://models.example/v1") == "http://u:p@box:3128"


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost", "[::1]:9", "models.internal"])
def test_ones_own_machine_and_what_the_user_names_are_reached_directly(
    monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setenv("http_proxy", "http://box:3128")
    monkeypatch.setenv("no_proxy", ".internal")
    assert proxy_for(f"http://{host}/v1") is None


@pytest.mark.parametrize(
    ("address", "seen"),
    [
        ("https://ada:pw@host:1/v1?signature=x", "https://host:1/v1"),
        ("https://ada:p@w@host/v1", "https://host/v1"),
        ("ada:pw@host", "host"),
        ("https://host/@cf/model", "https://host/@cf/model"),
    ],
)
def test_an_address_is_shown_without_what_lets_someone_in(address: str, seen: str) -> None:
    assert redact_url(address) == seen


def test_a_text_keeps_everything_but_the_credentials_of_its_addresses() -> None:
    said = "407, message='No', url='http://ada:pw@box:1'; write to ada@example.com"
    expected = "407, message='No', url='http://box:1'; write to ada@example.com"
    assert strip_credentials(said) == expected
