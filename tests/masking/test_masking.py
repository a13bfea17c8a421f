"""Secrets stay out of text: in every form, over chunk borders, at any number of them."""

from __future__ import annotations

import base64
import copy
import html
import json
import logging
import pickle
import shlex
import string
import threading
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline.errors import SecretError, SecretLimitError, SecretMissingError, SecretTravelError
from towline.masking import Masker, Secret, native_mask_commands
from towline.testing import clause

VALUE = "p@ss 'w\"ord/<&>$+\\ü%"
"""Has something that each encoding changes."""


def masker_of(*values: str) -> Masker:
    masker = Masker()
    for value in values:
        masker.register(value)
    return masker


@clause("SEC-01")
def test_a_secret_is_read_from_either_variable_and_masked() -> None:
    """CI systems and Towline's own variables name secrets differently; both are masked once read."""
    masker = Masker()

    plain = masker.secret("TOKEN", {"TOKEN": "token-one"})
    prefixed = masker.secret("KEY", {"TOWLINE_SECRET_KEY": "token-two"})

    assert (plain.reveal(), prefixed.reveal()) == ("token-one", "token-two")
    assert masker.mask("token-one, token-two") == "***, ***"
    with pytest.raises(SecretMissingError, match="TOWLINE_SECRET_OTHER"):
        masker.secret("OTHER", {"TOKEN": "token-one", "OTHER": ""})


@clause("SEC-02")
def test_a_secret_shows_as_stars_and_does_not_travel() -> None:
    """A secret in an f-string, a traceback or a pickle is how most of them leak."""
    secret = Secret("hunter2")

    assert f"{secret} {secret!r} {secret:>20} {[secret]}" == "*** *** *** [***]"
    assert secret.reveal() == "hunter2"
    assert copy.deepcopy([secret])[0] is secret
    with pytest.raises(SecretTravelError):
        pickle.dumps(secret)
    with pytest.raises(TypeError, match="final"):
        type("Loud", (Secret,), {})


def encodings() -> dict[str, str]:
    data = VALUE.encode()
    return {
        "literal": VALUE,
        "hex": data.hex(),
        "hex in capitals": data.hex().upper(),
        "percent": quote(VALUE),
        "percent, all": quote(VALUE, safe=""),
        "percent, small": quote(VALUE, safe="").lower().replace(VALUE.lower(), VALUE),
        "plus": quote_plus(VALUE),
        "json": json.dumps(VALUE),
        "json, not ascii": json.dumps(VALUE, ensure_ascii=False),
        "repr": repr(VALUE),
        "ascii": ascii(VALUE),
        "repr of bytes": repr(data),
        "xml": html.escape(VALUE),
        "shell": shlex.quote(VALUE),
        "base64": base64.b64encode(data).decode(),
    }


@clause("SEC-03")
@pytest.mark.parametrize("form", encodings())
def test_every_form_of_a_value_is_masked(form: str) -> None:
    """Programs print what they were given quoted, escaped and encoded."""
    text = f"before {encodings()[form]} after"

    shown = masker_of(VALUE).mask(text)

    assert "***" in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert encodings()[form].strip("'\"b=") not in shown


@clause("SEC-03")
@pytest.mark.parametrize("before", [b"", b"u", b"us", b"use", b"user:"])
@pytest.mark.parametrize("urlsafe", [False, True])
def test_base64_is_masked_at_every_offset(before: bytes, urlsafe: bool) -> None:
    """``Authorization: Basic`` holds ``user:password``, so the password begins at any of three places."""
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    text = encode(before + b"\xfb\xff top secret \xfb\xef\xff" + b"tail").decode()

    shown = masker_of("top secret ").mask(f"Basic {text}")

    assert "***" in shown
    assert base64.b64encode(b"top secret")[3:-4].decode() not in shown


@clause("SEC-03")
def test_lines_of_a_value_are_masked_but_not_its_brackets() -> None:
    """A key file is printed line by line; its closing bracket stands everywhere else too."""
    masker = masker_of('{\n  "key": "abcdef"\n}')

    assert masker.mask('read   "key": "abcdef",') == "read   ***,"
    assert masker.mask("f() { return 1 }") == "f() { return 1 }"


@clause("SEC-03")
def test_overlapping_secrets_leave_nothing_between() -> None:
    """The longest match wins, and the rest of a second secret beside it is not shown either."""
    masker = masker_of("abcdef", "abcdefgh", "fghijk")

    assert masker.mask("[abcdefghijk]") == "[***]"
    assert masker.mask("[abcdefgh]") == "[***]"


ALPHABET = "abA1 -\n"
values_of_secrets = st.lists(st.text(ALPHABET, min_size=4, max_size=9), min_size=1, max_size=5)


@clause("SEC-05")
@given(values_of_secrets, st.data())
def test_text_cut_anywhere_comes_out_without_its_secrets(values: list[str], data: st.DataObject) -> None:
    """Output arrives in pieces of any size; a value over a border must not slip through."""
    masker = masker_of(*values)
    parts = data.draw(st.lists(st.one_of(st.text(ALPHABET, max_size=12), st.sampled_from(values)), max_size=8))
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    stream = masker.stream()

    shown = "".join(stream.feed(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)) + stream.end()

    assert not any(value in shown for value in values)
    assert shown == masker.mask(text)


@clause("SEC-05")
@given(st.lists(st.text("ab-", min_size=1, max_size=5), min_size=1, max_size=4), st.text("ab-", max_size=20))
def test_chunks_of_one_character_are_masked_like_the_whole(values: list[str], text: str) -> None:
    """Short values depend on both neighbours, which come later than the value itself."""
    masker = masker_of(*values)
    stream = masker.stream()

    shown = "".join(stream.feed(character) for character in text) + stream.end()

    assert shown == masker.mask(text)


@clause("SEC-05")
def test_only_a_possible_beginning_is_held_back() -> None:
    """A prompt without a line end has to appear, though a secret is registered."""
    stream = masker_of("password-1").stream()

    assert stream.feed("Enter pass") == "Enter "
    assert stream.held == 4
    assert stream.feed("word: ") == "password: "
    assert stream.feed("pass") == ""
    assert stream.end() == "pass"
    assert stream.end() == ""


@clause("SEC-06")
def test_short_values_are_masked_where_they_stand_apart(caplog: pytest.LogCaptureFixture) -> None:
    """A password ``42`` must not turn every number of a log into stars."""
    with caplog.at_level(logging.WARNING):
        masker = masker_of("42", "ab")

    assert masker.mask("42 1421 x42 pin=42, ab abc") == "*** 1421 x42 pin=***, *** abc"
    assert len(caplog.records) == 1
    assert "42" not in caplog.text
    with pytest.raises(SecretError):
        masker.register("")


@clause("SEC-08")
def test_native_mask_commands_are_escaped() -> None:
    """The log viewer of the CI system gets the value before anything could print it."""
    assert native_mask_commands("a%b", "github") == ["::add-mask::a%25b"]
    assert native_mask_commands("one\ntwo", "github") == ["::add-mask::one%0Atwo", "::add-mask::one", "::add-mask::two"]
    assert native_mask_commands("a%b\n", "azure") == ["##vso[task.setsecret]a%AZP25b%0A"]


@clause("SEC-10")
def test_a_thousand_secrets_are_the_limit_and_masked_in_one_pass() -> None:
    """Cost is of the text, not of the number of secrets: the automaton is built once and walked once."""
    masker = masker_of(*(f"secret-{n:04d}-{string.ascii_letters}" for n in range(1000)))
    text = "nothing to see here " * 1000

    first = masker.compiled()
    assert masker.mask(f"{text}secret-0999-{string.ascii_letters}") == f"{text}***"

    assert masker.compiled() is first
    with pytest.raises(SecretLimitError, match="1,001"):
        masker.register("one too many")
    with pytest.raises(SecretLimitError, match="65,537"):
        Masker().register("x" * (64 * 1024 + 1))


def test_text_with_lone_surrogates_is_masked_like_any() -> None:
    """File names that are no UTF-8 reach logs as surrogates, beside secrets."""
    assert masker_of("secret").mask("\udcff secret \udcfe") == "\udcff *** \udcfe"


def test_secrets_may_be_registered_while_others_mask() -> None:
    """Bodies in threads read secrets at any time; what was registered before a call is masked by it."""
    masker, leaks = Masker(), []

    def use(number: int) -> None:
        for turn in range(20):
            value = f"value-{number}-{turn}-x"
            masker.register(value)
            if value in masker.mask(f"<{value}>"):
                leaks.append(value)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert not leaks
    assert len(masker.values) == 80


def test_without_secrets_text_is_given_back_untouched() -> None:
    """The common case costs nothing: not even a copy, and the automaton is not imported for it."""
    text = "any text"

    assert Masker().mask(text) is text
    assert Masker().stream().feed(text) == text
