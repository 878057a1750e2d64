"""Ordinary texts that look like junk to a rule: none of them is gated."""

import pytest

from langchain_feedback.index.quality import score_chunk

ORDINARY = {
    # degrees, numbers and marks that touch letters
    "celsius": "The oven must reach 220 °C before the bread goes in; keep it at 220 °C for 10"
    " minutes, then at 180 °C for 25 minutes.",
    "fahrenheit": "Store it below 77°F (25°C). Do not freeze; below 32°F the seal breaks.",
    "french numbers": "Loi n° 78-17 du 6 janvier 1978 ; décret n° 2005-1309 du 20 octobre 2005,"
    " modifié par le décret n° 2007-451 du 25 mars 2007.",
    "coordinates": "Das Büro liegt bei 52°31'N 13°24'O, das Lager bei 53°33'N 9°59'O.",
    "gender star": "Mitarbeiter*innen und Kund*innen wenden sich an die Berater*innen im Haus."
    " Jede*r Antragsteller*in erhält eine Antwort.",
    "apostrophes": "Подати заяву можна на ім`я директора, у п`ятницю до п`яти годин, за"
    " зв`язком із відділом об`єктів.",
    "missing spaces": "Can I return it?Yes, you can.Do I get it all back?Yes!Write to us;"
    "We answer.",
    "korean bullets": "■환불 안내: 받은 날부터 가능\n■교환은 가까운 매장에서만 가능합니다.\n"
    "●배송비는 고객 부담입니다.",
    "footnotes": "Aspirin† 500 mg, Ibuprofen† 400 mg und Paracetamol* 500 mg sind rezeptfrei.\n"
    "† nur für Erwachsene\n* bis 3 Tage",
    "catalan": "Col·labora amb l'equip; paral·lelament, la il·lusió és intel·ligent.",
    "inclusive": "Les étudiant·e·s et les candidat·e·s inscrit·e·s reçoivent la réponse.",
    "quotations": "Разделы «Возврат», «Обмен», «Ремонт», «Гарантия» есть в меню.",
    # names of things
    "commit": "Release 4.2 is commit 3f786850e387550fdab836ed7e6dc881de23001b; its archive has the"
    " SHA-256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855.",
    "sums": "3f786850e387550fdab836ed7e6dc881de23001b  refunds.md\n"
    "89e6c98d92887913cadf06b2adb97f26cde4849b  keys.md\n"
    "2b66fd261ee5c6cfc8de7fa466bab600bcfe4f69  index.md",
    "identities": "name,id\nrefunds,0198f2b0-aaaa-7bbb-8ccc-dddd0000eeee\n"
    "keys,0198f2b0-bbbb-7bbb-8ccc-dddd0000eeef",
    "identifiers": "aws servicecatalog associate-tag-option-with-resource --resource-id"
    " port-2s6abcdq5wdh4 --tag-option-id tag-p3abc2pkpz5qc",
    "changelog": "* \\[[`d2c757ab19`](https://example.org/commit/d2c757ab19)] - **deps**: V8:"
    " cherry-pick 27e1ac1a79ff (Ole André) [#35986](https://example.org/pull/35986)\n"
    "* \\[[`6349b1d673`](https://example.org/commit/6349b1d673)] - **deps**: V8: cherry-pick"
    " b60a03df4ceb (Joyee) [#35987](https://example.org/pull/35987)",
    "version": "## 2014.03.11, Version 0.11.12 (Unstable)\n\n"
    "<https://example.org/x/commit/7d6b8db40f32e817ff145b7cfe6b3aec3179fba7>",
    "types": "    ResponseCustomToolCallInputDeltaEvent,\n"
    "    ResponseCustomToolCallInputDoneEvent,\n    ResponseFileSearchCallCompletedEvent,"
    "\n    ResponseFileSearchCallInProgressEvent,",
    "path": ".. cmake-module:: ../../Modules/CMakeFindPackageMode.cmake",
    # formulas
    "formula": "Let f: R -> R with f(x) = a x^2 + b x + c, where a, b, c ∈ R and a ≠ 0. Then"
    " x = (-b ± √(b² - 4 a c)) / 2 a.",
    "physics": "The force F is m a; with m in kg and a in m/s², F is in N. For two masses m and M"
    " at distance r, F = G m M / r².",
    "latex": r"\begin{equation} E = m c^2 \end{equation} where $m$ is mass and $c$ the speed.",
    "chemistry": "Ethanol (C2H5OH, CAS 64-17-5) boils at 78.37 °C; water (H2O) at 100 °C; acetone"
    " (C3H6O) at 56.05 °C.",
    "chords": "C G Am F C G F C\nLet it be, let it be, whisper words of wisdom",
    "results": "12-4, 3-1, W L W W L L W, and in the season before W W D L W D L",
    # bars and columns that state facts
    "hours": "Mo-Fr 9:00-17:00 | Sa 10:00-14:00 | So geschlossen | Feiertage geschlossen",
    "sizes": "Weight: 3 kg | Height: 20 cm | Width: 10 cm | Colour: red",
    "years": "Brazil 1958\nBrazil 1962\nEngland 1966\nBrazil 1970\nGermany 1974\nArgentina 1978",
    "figure": "![A pump with a red valve on the left and a hose on the right](pump.png)",
    # ends of sentences beyond the usual ones
    "hebrew": "בְּרֵאשִׁית בָּרָא אֱלֹהִים׃",
    "mongolian": "ᠬᠦᠮᠦᠨ ᠪᠦᠷ ᠲᠥᠷᠥᠵᠦ᠃",
    "meetei": "ꯃꯤ ꯄꯨꯝꯅꯃꯛ꯫",
}


@pytest.mark.parametrize("name", ORDINARY)
def test_an_ordinary_text_is_not_gated(name):
    quality = score_chunk(ORDINARY[name])
    assert not quality.gated, (quality.kind, quality.reasons, quality.legibility)


JUNK = {
    "specks": "Th°e ref§und tak€es fourt~een d¬ays fr^om the r†eceipt of the g¦oods at our"
    " st■ore.",
    "hex": "48656c6c6f2c20776f726c642120546869732069732061206c6f6e6720686578206465" * 6,
    "letters": "t h e r f u n d s t k e 14 d y s f r m t h r c p t f t h g d s",
    "base64": "UmVmdW5kcyB0YWtlIDE0IGRheXMgZnJvbSB0aGUgZGF5IG9mIHJlY2VpcHQu" * 3,
    "bare sums": "3f786850e387550fdab836ed7e6dc881de23001b\n"
    "89e6c98d92887913cadf06b2adb97f26cde4849b",
    "bar": "Home | Products | Support | About us | Contact",
    "dots": "Home · Products · Support · About us · Contact",
    "arrows": "Home » Products » Support » About us » Contact",
    "years in a bar": "Home | Products | Support | Archive 2025 | Contact | Imprint",
}


@pytest.mark.parametrize("name", JUNK)
def test_its_neighbors_are_gated_as_ever(name):
    assert score_chunk(JUNK[name]).gated


def test_a_ruler_is_no_fence():
    assert "broken_fence" not in score_chunk(f"Lesson 1\n\n{'~' * 78}\n\nMove the cursor.").reasons
    assert "broken_fence" in score_chunk("See:\n\n~~~~python\nimport refunds\n").reasons
