"""Reads columns of Arrow and Parquet files as fields of samples."""
