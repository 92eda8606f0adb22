"""Receipts of epochs: what was handed out, summed up while it happens, and joined over ranks and restarts."""

from fastio.loader.proof.account import Account, receipt_of
from fastio.loader.proof.exchange import exchanged
from fastio.loader.proof.expected import ExpectedNumber
from fastio.loader.proof.ledger import EpochLedger, RankShare
from fastio.loader.proof.trajectory import joined, unique_parts

__all__ = ["Account", "EpochLedger", "ExpectedNumber", "RankShare", "exchanged", "joined", "receipt_of", "unique_parts"]
