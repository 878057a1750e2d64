"""What was promised of the gate, measured by its benchmark on the generated sets.

No time is asserted here; `test_quality.py` has the texts that make patterns backtrack.
"""

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.shared import shared_data

pytest.importorskip("sklearn", reason="the benchmark's retriever needs the extra 'local'")

ROOT = Path(__file__).resolve().parents[3]


def packages():
    """A folder with one package: a description with a row of badges, and a docstring."""
    site = Path(tempfile.mkdtemp())
    info = site / "refunds-1.0.dist-info"
    info.mkdir()
    badge = "[![a](https://example.org/a.svg)](https://example.org/a)"
    told = "Возврат денег занимает 14 дней. Напишите нам письмо, мы сразу его подтвердим."
    (info / "METADATA").write_text(f"Name: refunds\nVersion: 1.0\n\n{badge * 14}\n\n{told}")
    (info / "RECORD").write_text("refunds.py,,\nrefunds-1.0.dist-info/METADATA,,\n")
    (site / "refunds.py").write_text(
        f'"""{"A refund takes 14 days from the day of request. " * 6}"""'
    )
    return str(site)


@functools.cache
def measured():
    command = [sys.executable, str(ROOT / "benchmarks" / "chunk_quality.py")]
    command += ["--json", "--sample", "20", "--unseen", packages()]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_check1_good_texts_are_left_alone():
    flags = measured()["false_flags"]["ours"]
    assert len({name.split()[-1] for name in flags if name.startswith("prose")}) == 16
    for name, share in flags.items():
        assert share <= (0.03 if name in {"code", "tables"} else 0.005), name


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("repeated", 0.95),
        ("base64", 0.95),
        ("ocr", 0.95),
        ("mojibake", 0.7),
        ("contents", 0.75),
        ("navigation", 0.75),
    ],
)
def test_check1_junk_is_found(kind, least):
    found = measured()["recall"]
    assert found["ours"][kind] >= least
    assert found["seed"][kind] < found["ours"][kind]


def test_check1_no_language_is_left_out():
    for kind in ("repeated", "base64", "ocr", "mojibake"):
        by_language = measured()["recall_by_language"]["ours"][kind]
        known = {name: share for name, share in by_language.items() if share is not None}
        assert len(known) >= 15, "English has nothing that breaks"
        assert min(known.values()) >= 0.5, (kind, known)


def test_check1_documents_that_nobody_looked_at_are_counted_by_group_and_script():
    unseen = measured()["unseen"]
    found = {name: (one["chunks"], one["gated"]) for name, one in unseen["groups"].items()}
    assert found == {"descriptions": (2, 1), "docstrings": (1, 0)}
    assert {name: one["gated"] for name, one in unseen["scripts"].items()} == {
        "cyrillic": 0,
        "latin": 1,
    }


def test_sufficiency_tells_cuts_from_whole_chunks():
    assert measured()["boundary_auc"]["ours"] >= 0.88
    assert measured()["composite_auc"]["ours"] >= 0.86


def test_check2_the_gate_costs_a_clean_corpus_nothing_and_gives_back_what_junk_took():
    shared_data("feedbackqa_us")
    retrieval = measured()["retrieval"]
    assert retrieval["clean"]["ours"] >= retrieval["clean"]["none"] - 0.1
    # A mean of ten draws; a single one gave back from 1.9 to 3.4 points.
    mixed = retrieval["junk_and_misses"]
    assert len(mixed["gains_by_seed"]) == 10
    assert mixed["ours"] >= mixed["none"] + 2.5
    lost = retrieval["junk"]["perfect"] - retrieval["junk"]["none"]
    assert retrieval["junk"]["ours"] - retrieval["junk"]["none"] >= 0.9 * lost
