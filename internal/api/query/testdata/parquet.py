# Compares a Parquet file with the CSV file of the same readings, value by value, as
# pyarrow, pandas and DuckDB read it. Of many rows, it formats those beside the end of the
# first row group and one in 500: three tools take seconds to format 140,000.
import csv
import datetime
import decimal
import sys

import duckdb
import pandas
import pyarrow
import pyarrow.parquet

others = ["device", "time", "received", "gateway", "subject", "utc_offset_minutes", "shared", "flags"]


def cell(name, value):
    """Formats a value like a cell of the CSV file."""
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        assert value.utcoffset() == datetime.timedelta(0), value
        return value.strftime("%Y-%m-%dT%H:%M:%S.") + "%03dZ" % (value.microsecond // 1000)
    if isinstance(value, float):
        if value % 1:
            return str(decimal.Decimal(repr(value)).normalize() + 0)
        return str(int(value)) + ("" if name in others else ".0")  # a sign has at least one decimal
    return str(value)


def compare(tool, names, rows, want):
    assert names == list(want[0]), (tool, names, list(want[0]))
    assert len(rows) == len(want), (tool, len(rows), len(want))
    for i, (row, expected) in enumerate(zip(rows, want)):
        got = {name: cell(name, value) for name, value in zip(names, row)}
        assert got == expected, (tool, i, got, expected)


def main(parquet_file, csv_file):
    file = pyarrow.parquet.ParquetFile(parquet_file)
    table = file.read()
    count, border = table.num_rows, file.metadata.row_group(0).num_rows
    some = [i for i in range(count) if count <= 1000 or i % 500 == 0 or abs(i - border) <= 100 or i == count - 1]
    with open(csv_file, newline="") as f:
        lines = f.readlines()
    assert len(lines) == 1 + count, (len(lines), count)
    want = list(csv.DictReader([lines[0]] + [lines[1 + i] for i in some]))

    compare("pyarrow", table.column_names, list(zip(*(c.to_pylist() for c in table.take(some).columns))), want)
    for name in ["time", "received"]:
        assert table.schema.field(name).type == pyarrow.timestamp("ms", "UTC"), table.schema
    signs = [name for name in table.column_names if name not in others]
    assert len(signs) == 15 and signs[-2:] == ["base_excess", "tympanic_gradient"], signs
    for name in signs:
        assert table.schema.field(name).type == pyarrow.float64(), table.schema
        assert (name + ".unit").encode() in file.metadata.metadata, file.metadata.metadata
    assert file.metadata.metadata[b"spo2_pct.loinc"] == b"59408-5 2708-6", file.metadata.metadata
    for i in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(i)
        assert group.num_rows <= 128 << 10, group
        for j in [table.column_names.index("device"), table.column_names.index("gateway")]:
            assert "RLE_DICTIONARY" in group.column(j).encodings, group.column(j)

    frame = pandas.read_parquet(parquet_file)
    for name in ["time", "received"]:
        assert str(frame[name].dtype) == "datetime64[ms, UTC]", frame.dtypes
    for name in signs:
        assert str(frame[name].dtype) == "float64", frame.dtypes
    assert len(frame) == count, len(frame)
    frame = frame.iloc[some]
    frame = frame.astype(object).where(frame.notna(), None)
    compare("pandas", list(frame.columns), list(zip(*(frame[name] for name in frame.columns))), want)

    # Its conversion of TIMESTAMPTZ for Python needs a further package.
    times = ["time", "received"]
    columns = ", ".join("epoch_ms(%s)" % name if name in times else name for name in table.column_names)
    assert duckdb.execute("SELECT count(*) FROM read_parquet(?)", [parquet_file]).fetchone() == (count,)
    picked = "?::BIGINT <= 1000 OR file_row_number % 500 = 0 OR abs(file_row_number - ?) <= 100 OR file_row_number = ? - 1"
    rows = duckdb.execute("SELECT " + columns + " FROM read_parquet(?, file_row_number = true) WHERE " + picked, [parquet_file, count, border, count]).fetchall()
    kinds = dict(duckdb.execute("SELECT column_name, column_type FROM (DESCRIBE SELECT * FROM read_parquet(?))", [parquet_file]).fetchall())
    assert [kinds[name] for name in times] == ["TIMESTAMP WITH TIME ZONE"] * 2, kinds
    epoch = datetime.datetime.fromtimestamp(0, datetime.timezone.utc)
    at = [table.column_names.index(name) for name in times]
    rows = [[epoch + datetime.timedelta(milliseconds=v) if i in at else v for i, v in enumerate(row)] for row in rows]
    compare("DuckDB", table.column_names, rows, want)
    print(count, "rows in", file.metadata.num_row_groups, "groups")


for i in range(1, len(sys.argv), 2):
    main(*sys.argv[i : i + 2])
