"""Chat templates in ten common shapes, written for tests: each with and without {% generation %}."""

from __future__ import annotations

SPECIAL = (
    "<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>", "<|header|>", "<|/header|>", "<|eot|>", "[INST]", "[/INST]",
    "<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>", "<|system|>", "<|end|>",
)  # fmt: skip

_ALTERNATING = """{% for turn in messages %}
{% if (turn.role == 'assistant') != (loop.index0 % 2 == 1) %}{{ raise_exception('turns must alternate') }}{% endif %}
{% endfor %}"""

_SHAPES = {
    "im_start": """{% for turn in messages %}
{{ '<|im_start|>' + turn['role'] + '\n' }}
{%- if turn['role'] == 'assistant' %}
{%- generation %}{{ turn['content'] + '<|im_end|>' + '\n' }}{% endgeneration %}
{%- else %}{{ turn['content'] + '<|im_end|>' + '\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""",
    "headers": """{{- bos_token }}
{%- for turn in messages %}
    {{- '<|header|>' ~ turn.role ~ '<|/header|>\n\n' }}
    {%- if turn.role == 'assistant' %}{% generation %}{{ turn.content | trim }}<|eot|>{% endgeneration %}
    {%- else %}{{ turn.content | trim }}<|eot|>{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header|>assistant<|/header|>\n\n' }}{%- endif %}""",
    "inst": _ALTERNATING
    + """{{ bos_token }}{% for turn in messages %}
{% if turn.role == 'assistant' %}{% generation %}{{ ' ' + turn.content + eos_token }}{% endgeneration %}
{% else %}{{ '[INST] ' + turn.content + ' [/INST]' }}{% endif %}
{% endfor %}""",
    "turns": _ALTERNATING
    + """{{ bos_token }}{% for turn in messages %}
{{ '<start_of_turn>' + ('model' if turn.role == 'assistant' else turn.role) + '\n' -}}
{% if turn.role == 'assistant' %}{% generation %}{{ turn.content | trim + '<end_of_turn>\n' }}{% endgeneration %}
{% else %}{{ turn.content | trim + '<end_of_turn>\n' }}{% endif %}
{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}""",
    "bars": """{% for turn in messages %}
{{ '<|' + turn.role + '|>\n' -}}
{% if turn.role == 'assistant' %}{% generation %}{{ turn.content + eos_token + '\n' }}{% endgeneration %}
{% else %}{{ turn.content + eos_token + '\n' }}{% endif %}
{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}""",
    "end": """{% for turn in messages %}{% if turn.role == 'assistant' -%}
<|assistant|>{{ '\n' }}{% generation %}{{ turn.content }}<|end|>{% endgeneration %}
{%- else %}<|{{ turn.role }}|>{{ '\n' }}{{ turn.content }}<|end|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{{ '\n' }}{% endif %}""",
    "words": """{% set between = namespace(space='') %}
{%- for turn in messages %}{% if turn.role == 'assistant' -%}
ASSISTANT:{% generation %} {{ turn.content }}{{ eos_token }}{% endgeneration %}
{%- else %}{{ between.space }}{{ turn.role | upper }}: {{ turn.content }} {% endif %}
{%- set between.space = ' ' %}{% endfor %}
{%- if add_generation_prompt %}ASSISTANT:{% endif %}""",
    "headings": """{% for turn in messages %}
{% if turn.role == 'assistant' %}### Response:
{% generation %}{{ turn.content + '\n\n' }}{% endgeneration %}
{% elif turn.role == 'user' %}### Instruction:
{{ turn.content + '\n\n' }}
{% else %}{{ turn.content + '\n\n' }}
{% endif %}{% endfor %}{% if add_generation_prompt %}### Response:
{% endif %}""",
    "tools": """{% if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %}<|im_end|>
{% endif %}{% for turn in messages %}<|im_start|>{{ turn.role + '\n' }}
{%- if turn.role == 'assistant' %}{% generation %}{{ turn.content or '' }}
{%- for call in turn.tool_calls or [] %}<call>{{ call.function | tojson(indent=1) }}</call>{% endfor %}
<|im_end|>
{% endgeneration %}{% else %}{{ turn.content }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}""",
    "first_system": """{% set ns = namespace(system='') %}{% if messages and messages[0].role == 'system' -%}
{% set ns.system = '<<SYS>>\n' + messages[0].content + '\n<</SYS>>\n\n' %}{% endif %}
{%- for turn in messages %}{% if turn.role == 'system' %}{% continue %}{% endif %}
{%- if turn.role == 'assistant' %}{% generation %}{{ ' ' + turn.content + ' ' + eos_token }}{% endgeneration %}
{%- else %}{{ bos_token + '[INST] ' + ns.system + turn.content + ' [/INST]' }}{% set ns.system = '' %}{% endif %}
{%- endfor %}""",
}

NO_SYSTEM = ("inst", "turns")  # whose turns must begin with the user's

TEMPLATES = dict(_SHAPES)


def plain(template: str) -> str:
    """The template without {% generation %}."""
    for tag in ("generation", "endgeneration"):
        for dash in ("", "-"):
            template = template.replace(
                f"{{%{dash} {tag} %}}", f"{{%{dash} if true %}}" if tag == "generation" else "{% endif %}"
            )
    return template
