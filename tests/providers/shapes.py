"""Answers as each wire gives them, written from the types of the providers' SDKs, and answers of
every kind as values.
"""

from typing import Any

from loom import Conversation, Message, Reasoning, Text, Tool, ToolCall
from loom.conversation.message import Carried, Opaque

Json = dict[str, Any]

ASKED = Conversation(
    messages=(Message("user", (Text("what is in the folder?"),)),),
    tools=(Tool("bash", "Run a command.", '{"type":"object","properties":{"command":{}}}'),),
    model="scripted",
)
SPEAK = Message("assistant", (Text("There are two files, and a folder."),))
CALL = Message("assistant", (ToolCall("call_1", "bash", '{"command":"ls -la"}'),))
BOTH = Message(
    "assistant",
    (
        Text("I look, and count."),
        ToolCall("call_1", "bash", '{"command":"ls"}'),
        ToolCall("call_2", "bash", '{"command":"wc -l *"}'),
    ),
)

# By wire: responses of every kind of content.
RESPONSES: dict[str, list[Json]] = {
    "anthropic": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [
                {"type": "thinking", "thinking": "Which files?", "signature": "c2ln"},
                {"type": "redacted_thinking", "data": "ZGF0YQ=="},
                {"type": "text", "text": "I look: naïve ✓"},
                {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}},
                {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
            ],
            "stop_reason": "tool_use",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 10,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 20,
                "output_tokens": 33,
            },
        },
        {
            "id": "msg_2",
            "type": "message",
            "role": "assistant",
            "model": "claude-x",
            "content": [
                {
                    "type": "compaction",
                    "content": "The user wants a list of files.",
                    "encrypted_content": "b3BhcXVl",
                },
                {
                    "type": "server_tool_use",
                    "id": "srvtoolu_1",
                    "name": "web_search",
                    "input": {"query": "ls"},
                },
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                {
                    "type": "text",
                    "text": "It lists files.",
                    "citations": [
                        {
                            "type": "char_location",
                            "cited_text": "lists",
                            "document_index": 0,
                            "document_title": None,
                            "start_char_index": 0,
                            "end_char_index": 5,
                        }
                    ],
                },
            ],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 4, "output_tokens": 9},
        },
    ],
    "openai": [
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "gpt-x",
            "system_fingerprint": "fp_1",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "I look: naïve ✓",
                        "refusal": None,
                        "tool_calls": [
                            {
                                "id": "call_1",
                                "type": "function",
                                "function": {"name": "bash", "arguments": '{"command":"ls"}'},
                            },
                            {
                                "id": "call_2",
                                "type": "function",
                                "function": {"name": "now", "arguments": ""},
                            },
                        ],
                    },
                    "logprobs": None,
                    "finish_reason": "tool_calls",
                }
            ],
            "usage": {
                "prompt_tokens": 130,
                "completion_tokens": 33,
                "total_tokens": 163,
                "prompt_tokens_details": {"cached_tokens": 100},
                "cost": 0.0125,
            },
        },
        {
            "id": "chatcmpl-2",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "deepseek-x",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "reasoning_content": "It is a greeting.",
                        "content": "Hello.",
                    },
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9},
        },
        {
            "id": "chatcmpl-3",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "gpt-x",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": None,
                        "refusal": "I cannot do that.",
                    },
                    "finish_reason": "content_filter",
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9},
        },
    ],
    "responses": [
        {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "model": "gpt-x",
            "output": [
                {
                    "id": "rs_1",
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": "Which files?"}],
                    "encrypted_content": "b3BhcXVl",
                },
                {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "status": "completed",
                    "content": [
                        {"type": "output_text", "text": "I look: naïve ✓", "annotations": []}
                    ],
                },
                {
                    "id": "fc_1",
                    "type": "function_call",
                    "call_id": "call_1",
                    "name": "bash",
                    "arguments": '{"command":"ls"}',
                    "status": "completed",
                },
                {
                    "id": "ct_1",
                    "type": "custom_tool_call",
                    "call_id": "call_2",
                    "name": "patch",
                    "input": "*** begin",
                    "status": "completed",
                },
            ],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 130,
                "input_tokens_details": {"cached_tokens": 100},
                "output_tokens": 33,
                "output_tokens_details": {"reasoning_tokens": 5},
                "total_tokens": 163,
            },
        },
        {
            "id": "resp_2",
            "object": "response",
            "created_at": 1_700_000_000,
            "status": "incomplete",
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"},
            "model": "gpt-x",
            "output": [
                {"id": "cmp_1", "type": "compaction", "encrypted_content": "b3BhcXVl"},
                {
                    "id": "ws_1",
                    "type": "web_search_call",
                    "status": "completed",
                    "action": {"type": "search", "query": "ls"},
                },
                {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "status": "incomplete",
                    "content": [{"type": "refusal", "refusal": "I cannot"}],
                },
            ],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": 3,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 9,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 12,
            },
        },
    ],
}
EVERY_RESPONSE = [(wire, response) for wire, each in RESPONSES.items() for response in each]
NAMES = [f"{wire}-{response['id']}" for wire, response in EVERY_RESPONSE]

THINKING = Message("assistant", (Reasoning("Let me see.", "anthropic", "c2ln"), Text("I see it.")))
COMPACTED = Message(
    "assistant",
    (
        Opaque("anthropic", '{"type":"compaction","content":"They talked of files."}'),
        Text("Go on."),
    ),
)
REFUSED = Message("assistant", (Text("I cannot.", Carried("openai", form=("refusal-field",))),))
