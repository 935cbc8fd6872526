from __future__ import annotations

import json

from openai.types.chat import ChatCompletion, ChatCompletionChunk

from benchmarks.upstream import PIECES, STREAMED, WHOLE

ANSWER = "".join(PIECES)


def test_the_whole_response_is_a_chat_completion_of_the_length_it_announces() -> None:
    head, _, body = WHOLE.partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    completion = ChatCompletion.model_validate_json(body)
    assert completion.choices[0].message.content == ANSWER
    assert completion.usage is not None
    assert completion.usage.total_tokens == 19


def test_streamed_chat_completion_chunks_add_up_to_the_same_answer() -> None:
    lines = b"".join(STREAMED).decode().split("\r\n")
    events = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    assert events[-1].strip() == "[DONE]"
    chunks = [ChatCompletionChunk.model_validate(json.loads(event)) for event in events[:-1]]
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == ANSWER
    assert chunks[-1].usage is not None
    assert b"".join(STREAMED).endswith(b"0\r\n\r\n")


def test_only_the_first_piece_of_a_stream_comes_at_once() -> None:
    assert [json.dumps(piece).encode() in STREAMED[0] for piece in PIECES] == [True] + [False] * 6
    assert len(STREAMED) == len(PIECES) + 1
