"""Rendering of chat templates: what they may use, what messages must be, and how they say no."""

# ruff: noqa: E501 (a row of a table is a line)

import datetime

import pytest
from text.vocabularies import byte_level_keys, load_keys

from pyrt.chat import render as render_chat
from pyrt.errors import TemplateError

USER = [{"role": "user", "content": "Hi"}]


def render(template, messages=USER, **variables):
    return render_chat(template, messages, variables)


CASES = [
    ("{{ messages[0].role }}: {{ messages[0]['content'] }}", "user: Hi"),
    # trim_blocks and lstrip_blocks
    ("{% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb"),
    ("a\n    {%- if true %} b {%- endif %}\n", "a b"),
    # loop controls
    ("{% for i in range(9) %}{% if i == 1 %}{% continue %}{% elif i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}", "023"),
    ("{% for i in [1, 2, 3] %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}", "1/3,2/3,3/3"),
    ("{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}{{ v }}{% endfor %}", "a1b2"),
    ("{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}", "123"),
    ("{% for x in [] %}a{% else %}none{% endfor %}", "none"),
    ("{% for i in range(6) if i is odd %}{{ i }}{% endfor %}", "135"),
    # the block that marks what the assistant says, with a scope of its own
    ("{% generation %}a{% set x = 1 %}{{ x }}{% endgeneration %}{{ x is defined }}", "a1False"),
    # namespaces, macros, calls, set blocks, filter blocks
    ("{% set ns = namespace(a=1) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}", "4"),
    ("{% macro f(x, y=2) %}<{{ x }}{{ y }}>{% endmacro %}{{ f(1) }}{{ f(1, y=f(3)) }}", "<12><1<32>>"),
    ("{% macro f() %}[{{ caller() }}]{% endmacro %}{% call f() %}x{% endcall %}", "[x]"),
    ("{% set x %}a{{ 1 }}{% endset %}{{ x * 2 }}{% filter upper %}b{% endfilter %}", "a1a1B"),
    ("{% block b %}x{% endblock %}{{ self.b() }}", "xx"),
    # values
    ("{{ none }} {{ true }} {{ 1.5 }} {{ undefined_one }}|{{ undefined_one is defined }}", "None True 1.5 |False"),
    ("{{ [1, 'a', none] }}{{ {'a': (1, 2)} }}", "[1, 'a', None]{'a': (1, 2)}"),
    ("{{ 'abc'[1:] }}{{ 'abc'[::-1] }}{{ [1, 2, 3][-2:] }}", "bccba[2, 3]"),
    ("{{ 1 ~ 'a' ~ [2] }}{{ 7 // 2 }}{{ 7 % 4 }}{{ 2 ** 10 }}{{ 'ab' * 2 }}{{ [1] + [2] }}", "1a[2]331024abab[1, 2]"),
    ("{{ 1 in [1] }}{{ 'a' in 'abc' }}{{ 'a' not in {'a': 1} }}{{ 1 < 2 <= 2 }}", "TrueTrueFalseTrue"),
    # methods
    ("{{ ' a b '.strip().split(' ') }}{{ 'a.b'.split('.', 1)[-1] }}{{ 'x'.join(['a', 'b']) }}", "['a', 'b']baxb"),
    ("{{ 'Ab'.lower() }}{{ 'ab'.startswith('a') }}{{ 'aXb'.replace('X', '-') }}{{ 'a'.center(5, '*') }}", "abTruea-b**a**"),
    ("{{ '{0}-{x:>3}'.format(1, x=2) }}{{ '%s=%03d' % ('a', 7) }}{{ '%(a)s' % {'a': 1} }}", "1-  2a=0071"),
    ("{{ {'a': 1}.get('b', 2) }}{{ {'a': 1}.keys() | list }}{{ [1, 2, 2].count(2) }}", "2['a']2"),
    # filters
    ("{{ {'b': 'é<', 'a': [1, none]} | tojson }}", '{"b": "é<", "a": [1, null]}'),
    ("{{ {'b': 1, 'a': 2} | tojson(indent=2, sort_keys=true) }}", '{\n  "a": 2,\n  "b": 1\n}'),
    ("{{ [1] | tojson(separators=(',', ':')) }}{{ 'é' | tojson(ensure_ascii=true) }}", '[1]"\\u00e9"'),
    ("{{ ' a ' | trim }}{{ 'a' | upper }}{{ [3, 1] | sort | join('-') }}{{ 'abc' | length }}", "aA1-33"),
    ("{{ x | default('d') }}{{ 'a\nb' | indent(2) }}{{ [1, 2] | first }}{{ [1, 2] | last }}", "da\n  b12"),
    ("{{ [{'a': 1}, {'a': 2}] | map(attribute='a') | list }}{{ [0, 1] | select | list }}", "[1, 2][1]"),
    ("{{ [{'r': 'u'}, {'r': 's'}] | selectattr('r', 'equalto', 'u') | list | length }}", "1"),
    ("{{ [{'r': 'u'}, {'r': 's'}] | rejectattr('r', 'in', ['u']) | map(attribute='r') | join }}", "s"),
    ("{{ {'a': 1} | items | list }}{{ {'b': 1, 'a': 2} | dictsort }}", "[('a', 1)][('a', 2), ('b', 1)]"),
    ("{{ 'a' | safe + '<' }}{{ '<' | e }}{{ 3.7 | int }}{{ '3' | int + 1 }}{{ [1, 2] | sum }}", "a&lt;&lt;343"),
    ("{{ dict(a=1) }}{{ dict([('b', 2)]) }}{{ range(3) | list }}", "{'a': 1}{'b': 2}[0, 1, 2]"),
    ("{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{% set j = joiner('|') %}{{ j() }}{{ j() }}", "aba|"),
]  # fmt: skip


@pytest.mark.parametrize(("template", "expected"), CASES)
def test_what_templates_use(template, expected):
    assert render(template) == expected


def test_variables_reach_the_template():
    template = "{{ add_generation_prompt }}{{ enable_thinking }}{{ tools is none }}{{ documents is none }}"
    assert render(template, add_generation_prompt=True, enable_thinking=False) == "TrueFalseTrueTrue"
    assert render("{{ tools[0].name }}", tools=[{"name": "f"}]) == "f"


def test_the_date_is_of_today():
    assert render("{{ strftime_now('%Y-%m-%d') }}") in {
        str(datetime.date.today() - datetime.timedelta(days=days)) for days in (0, 1)
    }


def test_the_templates_own_message_is_passed_on():
    with pytest.raises(TemplateError, match=r"^Only user and assistant roles are supported!$"):
        render("{{ raise_exception('Only user and assistant roles are supported!') }}")


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for %}", "line 1: "),
        ("a\n{% if %}", "line 2: "),
        ("{{ messages[0].nope.deeper }}", "has no attribute 'nope'"),
        ("{{ nope() }}", "'nope' is undefined"),
        ("{{ 1 + 'a' }}", "unsupported operand"),
        ("{{ 1 // 0 }}", "division"),
        ("{{ 1 | nope }}", "No filter named 'nope'"),
        ("{% include 'a' %}", "line 1: include is not supported"),
        ("{% extends 'a' %}", "line 1: extends is not supported"),
        ("{% import 'a' as b %}", "line 1: import is not supported"),
        ("{% from 'a' import b %}", "line 1: fromimport is not supported"),
        ("{% autoescape true %}a{% endautoescape %}", "is not supported"),
    ],
)
def test_broken_templates_are_one_clear_error(template, reason):
    with pytest.raises(TemplateError, match=r"^the chat template") as caught:
        render(template)
    assert reason in str(caught.value)
    assert len(str(caught.value)) < 1100


@pytest.mark.parametrize(
    ("messages", "error", "reason"),
    [
        ("Hi", TypeError, "messages must be a list of mappings, not str"),
        ({"role": "user"}, TypeError, "messages must be a list of mappings, not dict"),
        ([], ValueError, "messages is empty"),
        (["Hi"], TypeError, r"messages\[0\] must be a mapping"),
        ([{"content": "a"}], ValueError, r"messages\[0\]: role must be a string"),
        ([{"role": 1, "content": "a"}], ValueError, r"messages\[0\]: role must be a string"),
        ([*USER, {"role": "user"}], ValueError, r"messages\[1\]: content is missing"),
        ([{"role": "user", "content": None}], ValueError, "content is missing"),
        (
            [{"role": "user", "content": 1}],
            TypeError,
            "content must be a string or a list of text parts, not int",
        ),
        ([{"role": "user", "content": ["a"]}], TypeError, r"content\[0\] must be a mapping, not str"),
        (
            [{"role": "user", "content": [{"type": "image_url"}]}],
            ValueError,
            r"content\[0\] .* reads text only",
        ),
        ([{"role": "user", "content": [{"type": "text"}]}], ValueError, r"content\[0\] must be"),
        ([{"role": "user", "content": "a", "x": object()}], TypeError, "templates take text, numbers, lists"),
        ([{"role": "user", "content": b"a"}], TypeError, "not bytes"),
    ],
)
def test_messages_are_checked(messages, error, reason):
    with pytest.raises(error, match=reason):
        render("{{ messages }}", messages)


def test_endless_values_are_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(ValueError, match="nested more than"):
        render("", tools=loop)


def test_text_parts_are_joined_for_templates_that_read_strings():
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert render("{{ messages[0].content }}", messages) == "a\nb"
    reads = "{% for part in messages[0].content %}<{{ part$ }}>{% endfor %}"
    for spelling in (".text", "['text']", '["text"]', ".get('text')"):
        assert render(reads.replace("$", spelling), messages) == "<a><b>"


def test_a_call_needs_no_content():
    messages = [{"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]}]
    assert (
        render("{{ messages[0].content is defined }}{{ messages[0].tool_calls[0].function.name }}", messages)
        == "Falsef"
    )


def test_templates_see_copies():
    messages = [{"role": "user", "content": "a", "list": [1]}]
    for call in (
        "messages.append(1)",
        "messages[0].update(a=1)",
        "messages[0].list.pop()",
        "messages[0].clear()",
    ):
        with pytest.raises(TemplateError, match="unsafe"):
            render("{{ " + call + " }}", messages)
    assert messages == [{"role": "user", "content": "a", "list": [1]}]


@pytest.fixture
def bare(tmp_path):
    return load_keys(tmp_path / "m.gguf", byte_level_keys())


def test_without_a_template_the_error_says_what_to_do(bare):
    assert bare.chat_template is None
    with pytest.raises(
        TemplateError, match=r"m\.gguf: the model has no chat template; pass one as chat_template="
    ):
        bare.apply_chat_template(USER)
    assert bare.apply_chat_template(USER, chat_template="<{{ messages[0].content }}>") == "<Hi>"


def test_the_tokenizer_renders_its_own_template(tmp_path):
    template = "{{ eos_token }}{{ messages[0].content }}{{ '?' if add_generation_prompt }}{{ mood }}"
    tokenizer = load_keys(tmp_path / "m.gguf", byte_level_keys(**{"tokenizer.chat_template": template}))
    assert tokenizer.apply_chat_template(USER) == "<|endoftext|>Hi?"
    assert tokenizer.apply_chat_template(USER, add_generation_prompt=False, mood="!") == "<|endoftext|>Hi!"
    ids = tokenizer.apply_chat_template(USER, tokenize=True)
    assert ids == tokenizer.encode("<|endoftext|>Hi?", add_special_tokens=False)
    # What the caller passes goes before the tokenizer's own names.
    assert tokenizer.apply_chat_template(USER, eos_token="<e>").startswith("<e>Hi")


def test_importing_the_tokenizer_leaves_jinja_alone():
    import subprocess
    import sys

    code = "import sys, pyrt.tokenizer; print([m for m in ('jinja2', 'tokenizers', 'pyrt.chat') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
