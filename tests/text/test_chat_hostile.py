"""Templates that want the machine: each is a TemplateError, soon, and with little memory."""

# ruff: noqa: E501 (a row of a table is a line)

import resource
import sys
import time

import pytest

from pyrt.chat import _environment, render
from pyrt.errors import TemplateError
from pyrt.template import meter

USER = [{"role": "user", "content": "Hi"}]
MEGA = "{% set x = 'a' * 1000000 %}"
GROW = "{% set ns = namespace(x=START, y=START) %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}"


def grow(start, step, use="{{ ns.x | length }}"):
    return GROW.replace("START", start).replace("STEP", step) + use


TOO_MUCH = {
    # operators
    "string times": "{{ 'a' * 10**9 }}",
    "times string": "{{ 10**9 * 'a' }}",
    "list times": "{{ [1] * 10**9 }}",
    "power": "{{ 9 ** 9999999 }}",
    "squares": grow("3", "ns.x * ns.x", "{{ ns.x }}"),
    "concatenated twice": grow("'a'", "ns.x ~ ns.x"),
    "added twice": grow("'a'", "ns.x + ns.x"),
    "list added twice": grow("[1]", "ns.x + ns.x"),
    "shared strings": MEGA + "{{ [x] * 99999 }}",
    # formatting
    "width": "{{ '%1000000000d' % 1 }}",
    "width by argument": "{{ '%*d' % (1000000000, 1) }}",
    "width by name": "{{ '%(a(b)c)1000000000d' % {'a(b)c': 1} }}",
    "width in filter": "{{ '%1000000000d' | format(1) }}",
    "precision": "{{ '%.1000000000f' | format(1) }}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "format nested": "{{ '{:{}}'.format(1, 1000000000) }}",
    "format map": "{{ '{a:1000000000}'.format_map({'a': 1}) }}",
    "format again": MEGA + "{{ ('{0}' * 1000).format(x) }}",
    "printf again": MEGA + "{{ ('%(a)s' * 800) % {'a': x} }}",
    "format as a value": "{% set f = '{:1000000000}'.format %}{{ f(1) }}",
    "repr": grow("['lol']", "[ns.x, ns.x]", "{{ '{!r}'.format(ns.x) }}"),
    # filters
    "center": "{{ 'a' | center(1000000000) }}",
    "center by name": "{{ 'a' | center(width=1000000000) }}",
    "center by map": "{{ ['a'] | map('center', 1000000000) | list }}",
    "indent": "{{ 'a\nb' | indent(10**9) }}",
    "indent with text": MEGA + "{{ ('\n' * 1000) | indent(x) }}",
    "replace": MEGA + "{{ x | replace('a', x) }}",
    "join": MEGA + "{{ range(99999) | join(x) }}",
    "join strings": MEGA + "{{ x | join(x) }}",
    "sum of lists": "{{ ([[1]] * 99999) | sum(start=[]) }}",
    "slice": "{{ 'abc' | slice(10**9) | list }}",
    "batch": "{{ 'abc' | batch(10**9, 'x') | list }}",
    "round": "{{ 1.5 | round(100000000, 'floor') }}",
    "wordwrap": "{{ ('a' * 1000000) | wordwrap(1) }}",
    "wordwrap with text": "{{ ('a ' * 4000) | wordwrap(1, wrapstring='x' * 9000) }}",
    "urlize": "{{ ('http://a.b ' * 100000) | urlize }}",
    "list of characters": "{{ ('é' * 4000000) | list }}",
    "tojson indent": "{{ [[1]] | tojson(indent=10**9) }}",
    "tojson separators": "{{ (range(99999) | list) | tojson(separators=('x' * 1000000, 'y')) }}",
    "attribute path": "{{ (['aaa'] * 90000) | map(attribute='0.' * 2000 ~ '0') | list }}",
    "colliding keys": "{{ range(99999) | unique | list }}",
    "escape": MEGA + "{{ (x | replace('a', '<')) | e }}",
    "escape by adding": "{{ ('a' | safe) + '<' * 1000000 }}",
    # methods
    "ljust": "{{ 'a'.ljust(10**9) }}",
    "zfill": "{{ 'a'.zfill(10**9) }}",
    "expandtabs": "{{ '\t'.expandtabs(10**9) }}",
    "method replace": MEGA + "{{ x.replace('', x) }}",
    "method join": MEGA + "{{ x.join(x) }}",
    "method as a value": "{% set f = 'a'.center %}{{ f(10**9) }}",
    "translate": "{{ ('a' * 100000).translate({97: 'x' * 100000}) }}",
    "encode": "{{ 'a'.encode() }}",
    "to_bytes": "{{ (1).to_bytes(10**9) }}",
    "fromkeys": "{{ {}.fromkeys(range(99999), 1) }}",
    "search from the end": "{{ ('a' * 2000000).rfind('b' + 'a' * 1000000) }}",
    "strip many": "{{ ('a' * 2000000).strip('b' * 2000000 + 'a') }}",
    "hexadecimal": "{{ ('f' * 4000000) | int(base=16) }}",
    "date": "{{ strftime_now('%c' * 100000) }}",
    # loops
    "range": "{% for i in range(10**9) %}{% endfor %}",
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "loops with a test": "{% for i in range(99999) %}{% for j in range(99999) if j < 0 %}{% endfor %}{% endfor %}",
    "output": "{% for i in range(99999) %}" + "x" * 50_000 + "{% endfor %}",
    "output in a macro": "{% macro f() %}{% for i in range(99999) %}" + "x" * 50_000 + "{% endfor %}{% endmacro %}{{ f() }}",
    "output in a set": "{% set y %}{% for i in range(99999) %}{{ 'x' * 100000 }}{% endfor %}{% endset %}",
    "constants in a loop": "{% set ns = namespace(l=0) %}{% for i in range(99999) %}{% set ns.l = ["
    + "1," * 20_000 + "2] %}{% endfor %}",
    "memory": "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l, 'a' * 100000] %}{% endfor %}",
    "macro for ever": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "macro twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "loop in itself": "{% for x in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "chained iterators": "{% set ns = namespace(g=range(99999)) %}{% for i in range(500) %}"
    "{% set ns.g = ns.g | map('upper') %}{% endfor %}{{ ns.g | list }}",
    "compare": MEGA + "{% set y = 'a' * 1000000 %}{% for i in range(99999) %}{% if x != y %}{% endif %}{% endfor %}",
    # values within values
    "lists of lists": grow("['lol']", "[ns.x, ns.x]", "{{ ns.x }}"),
    "mappings of mappings": grow("{}", "{'a': ns.x, 'b': ns.x}", "{{ ns.x | tojson }}"),
    "equal lists": grow("[1]", "[ns.x, ns.x]", "{{ ns.x == ns.y }}"),
    "tuples as keys": grow("(1,)", "(ns.x, ns.x)", "{{ {ns.x: 1} }}"),
    "deep lists": "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}",
    "namespace in itself": "{% set n = namespace() %}{% set n.a = n %}{{ n }}",
    "views": "{% set d = {'a': 'x' * 1000000} %}{{ [d.items()] * 5000 }}",
    "long macro names": "{% macro " + "m" * 20_000 + "() %}{% endmacro %}{{ [" + "m" * 20_000 + "] * 50000 }}",
    # the template itself
    "length": "x" * 10**7,
    "parentheses": "{{ " + "(" * 30_000 + "1" + ")" * 30_000 + " }}",
    "brackets": "{{ " + "[" * 30_000 + "]" * 30_000 + " }}",
    "negations": "{{ " + "not " * 16_000 + "1 }}",
    "sums": "{{ 1" + "+1" * 32_000 + " }}",
    "filters": "{{ a" + "|upper" * 10_000 + " }}",
    "attributes": "{{ a" + ".a" * 32_000 + " }}",
    "blocks": "{% if a %}" * 3_000 + "{% endif %}" * 3_000,
    "loops in loops": "{% for a in b %}" * 25 + "{% endfor %}" * 25,
}  # fmt: skip


def peak_memory():
    """Most bytes that the process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1)


@pytest.mark.parametrize("name", TOO_MUCH)
def test_the_machine_stays_ours(name):
    """Without limits each of these takes hours, or more memory than there is; so this test also must end."""
    before = peak_memory()
    with pytest.raises(TemplateError) as caught:
        render(TOO_MUCH[name], USER, {})
    assert "MemoryError" not in str(caught.value)
    assert peak_memory() - before < 2 * meter.BUDGET


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ [''] | map(attribute='__class__') | list }}",
    "{{ '{0.__class__}'.format('') }}",
    "{{ '{a.__class__}'.format_map({'a': ''}) }}",
    "{{ ['{0.__class__}'.format][0]('') }}",
    "{{ cycler.__init__.__globals__.os.popen('echo broken').read() }}",
    "{{ joiner.__init__['__globals__'] }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ namespace(__class__='x').__class__ }}",
    "{% set ns = namespace() %}{% set ns.__html__ = 1 %}{{ ns.__html__ }}",
    "{{ raise_exception.__globals__ }}",
    "{{ range.__globals__ }}",
    "{{ dict.__globals__ }}",
    "{{ strftime_now.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ self.__init__.__globals__ }}",
    "{% for x in [1] %}{{ loop._iterable }}{{ loop.__init__.__globals__ }}{% endfor %}",
    "{{ ([1] | map('upper')).gi_frame }}",
    "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}",
    "{{ f.__init__.__globals__ }}",
    "{{ lipsum.__globals__ }}",
    "{{ (1).__class__ }}",
    "{{ messages.__class__ }}",
]


@pytest.mark.parametrize("template", ESCAPES)
def test_no_way_leads_out(template):
    try:
        text = render(template, USER, {})
    except TemplateError:
        return
    assert text.replace("Undefined", "").strip("[]") == "", text


def test_a_busy_machine_refuses_nothing(monkeypatch):
    # The clock is that of the thread's own work, so waiting costs nothing.
    environment = _environment()
    monkeypatch.setitem(environment.globals, "wait", _wait)
    monkeypatch.setitem(environment._functions, "wait", _wait)
    assert render("{{ wait() }}{% for i in range(99) %}{{ i }}{% endfor %}ok", USER, {}).endswith("ok")


def _wait():
    time.sleep(1.5)
    return ""


def test_large_inputs_are_not_refused():
    template = (
        "{% for m in messages %}{% if loop.last or m.role in ['user', 'assistant'] %}"
        "{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] | trim + '<|im_end|>' + '\\n' }}"
        "{% set x = m.content.split('</think>')[-1].lstrip('\\n') ~ m.content | replace('a', 'b') %}"
        "{% endif %}{% endfor %}{{ tools | tojson(indent=4) }}"
    )
    messages = [{"role": "user", "content": "a <b> é\n" * 200}] * 2000
    tools = [{"name": f"f{i}", "parameters": {"type": "object", "text": "x" * 500}} for i in range(500)]
    text = render(template, messages, {"tools": tools})
    assert text.count("<|im_start|>user\na <b>") == 2000
    one = [{"role": "user", "content": "word " * 400_000}]
    assert len(render(template, one, {"tools": None})) > 1_999_999


def test_a_refused_template_does_no_harm_to_the_next():
    for _ in range(2):
        with pytest.raises(TemplateError):
            render("{{ 'a' * 10**9 }}", USER, {})
        assert render("{{ messages[0].content }}", USER, {}) == "Hi"


def test_threads_have_meters_of_their_own():
    from concurrent.futures import ThreadPoolExecutor

    template = "{% for i in range(2000) %}{{ messages[0].content }}{% endfor %}"
    with ThreadPoolExecutor(8) as pool:
        texts = list(
            pool.map(lambda n: render(template, [{"role": "user", "content": str(n)}], {}), range(24))
        )
    assert texts == [str(n) * 2000 for n in range(24)]
