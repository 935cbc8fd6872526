from __future__ import annotations

from podium.server.dialects.request import id_stem


def test_ids_of_a_response_share_the_stem_of_its_own() -> None:
    assert (id_stem("run_1f"), id_stem("run_1f_2")) == ("1f", "1f_2")
