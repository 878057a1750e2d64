"""A cross-encoder of one's own as a ranker, or as a feature; its folder is checked at load."""

import hashlib
import importlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_feedback.errors import ArtifactError, MissingExtraError
from langchain_feedback.ranking._checks import Floats
from langchain_feedback.ranking.views import Candidates

__all__ = ["CrossEncoderRanker", "folder_digest"]

_FORMAT = 1
_READ = frozenset({".safetensors", ".json", ".txt", ".model", ".jinja", ".md"})
"""What a folder may hold: weights as numbers, texts, and the vocabulary of SentencePiece."""
_BLOCK = 1 << 20


@dataclass(frozen=True)
class CrossEncoderRanker:
    """Scores question and text together, by a model in a folder.

    It sees neither the base's order nor titles. As a feature of a `LinearRanker`, whose anchor
    holds the order, it is steadier than alone: `extra_features={"cross_encoder": it.scorer}`.
    20 candidates take about .7 s on a processor, so a small model is what to use.

    Raises:
        ArtifactError: If the folder is not what `sha256` says, holds a file that could run
            something, or no model that gives one score.
        MissingExtraError: If sentence-transformers is not installed.
    """

    folder: Path
    sha256: str
    """What `folder_digest` must give."""
    device: str | None = None
    """None: sentence-transformers picks one."""
    batch_size: int = 32
    """Pairs at a time."""
    _model: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = folder_digest(self.folder)
        if found != self.sha256:
            msg = (
                f"The files in {self.folder} are not those that were trained: their digest is "
                f"{found[:16]}, and {self.sha256[:16]} is expected"
            )
            raise ArtifactError(msg)
        object.__setattr__(self, "_model", _loaded(self.folder, self.device))

    @classmethod
    def of(cls, folder: Path | str, *, device: str | None = None) -> "CrossEncoderRanker":
        """Take a folder as it is now."""
        return cls(Path(folder), folder_digest(Path(folder)), device)

    def score(self, question: str, candidates: Candidates) -> Floats:
        """Return (C,) scores: the model's own, before any squashing.

        Raises:
            ValueError: If the candidates come without documents.
        """
        if len(candidates.documents) != len(candidates):
            msg = "A ranker reads the documents: make Candidates(base_rank, documents)"
            raise ValueError(msg)
        return np.asarray(self.scorer(question, candidates.documents), dtype=np.float64)

    def scorer(self, question: str, documents: Sequence[Document]) -> list[float]:
        """Give one score for each document: a feature for `LinearRanker`."""
        pairs = [(question, document.page_content) for document in documents]
        if not pairs:
            return []
        scores = self._model.predict(
            pairs,
            batch_size=self.batch_size,
            show_progress_bar=False,
            activation_fn=_torch().nn.Identity(),  # a sigmoid makes all good ones alike
            convert_to_numpy=True,
        )
        return [float(score) for score in np.asarray(scores, dtype=np.float64).ravel()]

    def to_json(self) -> str:
        """Write where it lies and what its digest is; the model stays in its folder."""
        parts = {"format": _FORMAT, "folder": str(self.folder), "sha256": self.sha256}
        return json.dumps(parts, sort_keys=True)

    @classmethod
    def from_json(
        cls, text: str, *, root: Path | None = None, device: str | None = None
    ) -> "CrossEncoderRanker":
        """Read what `to_json` wrote, and check the folder.

        Args:
            text: The artifact.
            root: Where this machine keeps the folders, if elsewhere than it says.
            device: Where it is computed.

        Raises:
            ArtifactError: If the text or the folder is damaged.
            MissingExtraError: If sentence-transformers is not installed.
        """
        try:
            parts = json.loads(text)
            if parts["format"] != _FORMAT:
                msg = "another format"
                raise ValueError(msg)  # noqa: TRY301  told with the rest
            folder, digest = Path(parts["folder"]), str(parts["sha256"])
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            msg = f"This is no cross-encoder that this release reads: {error}"
            raise ArtifactError(msg) from error
        return cls(folder if root is None else root / folder.name, digest, device)


def folder_digest(folder: Path) -> str:
    """Return a SHA-256 over the names and contents of all files.

    Raises:
        ArtifactError: If the folder is missing, or holds anything but safetensors, texts and
            vocabularies: files of other kinds may run something when they are read.
    """
    digest = hashlib.sha256()
    try:
        for file in _files(folder):
            name = file.relative_to(folder).as_posix().encode()
            size = file.stat().st_size
            # Lengths first: no two folders are written down alike.
            digest.update(b"%d %d " % (len(name), size) + name)
            with file.open("rb") as opened:
                while block := opened.read(_BLOCK):
                    digest.update(block)
    except OSError as error:
        msg = f"The cross-encoder in {folder} cannot be read: {error}"
        raise ArtifactError(msg) from error
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    found = sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix())
    if not any(path.suffix == ".safetensors" for path in found):
        msg = f"There is no cross-encoder in {folder}: its weights must be in .safetensors files"
        raise ArtifactError(msg)
    for path in found:
        if path.is_symlink() or not (path.is_dir() or path.suffix in _READ):
            msg = f"{path} is nothing that is loaded: only {', '.join(sorted(_READ))}, no links"
            raise ArtifactError(msg)
        if path.is_file():
            yield path


def _loaded(folder: Path, device: str | None) -> Any:
    try:
        module = importlib.import_module("sentence_transformers.cross_encoder")
    except ImportError as error:
        msg = (
            "A cross-encoder needs sentence-transformers: "
            'pip install "langchain-feedback[train] @ file:///path/to/clone"'
        )
        raise MissingExtraError(msg) from error
    try:
        model = module.CrossEncoder(
            str(folder),
            device=device,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except Exception as error:  # whatever a library raises over files that it cannot read
        msg = f"The cross-encoder in {folder} cannot be loaded: {error}"
        raise ArtifactError(msg) from error
    if model.num_labels != 1:
        msg = f"The cross-encoder in {folder} gives {model.num_labels} scores, and one is needed"
        raise ArtifactError(msg)
    return model


def _torch() -> Any:
    return importlib.import_module("torch")
