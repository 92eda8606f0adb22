"""Receipts of epochs: what was handed out, summed up while it happens, and joined over ranks and restarts."""

from fastio.loader.proof.account import Account, ExpectedNumber, joined, receipt_of, unique_parts
from fastio.loader.proof.ledger import EpochLedger, RankShare
from fastio.loader.proof.rank_exchange import exchanged

__all__ = ["Account", "EpochLedger", "ExpectedNumber", "RankShare", "exchanged", "joined", "receipt_of", "unique_parts"]
