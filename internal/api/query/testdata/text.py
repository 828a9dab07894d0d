# Reads a CSV and an NDJSON file of the same readings as DuckDB, pandas, pyarrow and, if it is installed, polars do by
# default, and prints the last value of glucose in each. These tools choose a column's type by its first values.
import sys

import duckdb
import pandas
import pyarrow.csv
import pyarrow.json

csv_file, ndjson_file = sys.argv[1:]
sign = "glucose_mmol_l"
lasts = {
    "DuckDB": [duckdb.sql(f"SELECT last({sign}) FROM {f}('{path}')").fetchall()[0][0]
               for f, path in (("read_csv", csv_file), ("read_json", ndjson_file))],
    "pandas": [pandas.read_csv(csv_file)[sign].iloc[-1], pandas.read_json(ndjson_file, lines=True)[sign].iloc[-1]],
    "pyarrow": [f(path)[sign][-1].as_py()
                for f, path in ((pyarrow.csv.read_csv, csv_file), (pyarrow.json.read_json, ndjson_file))],
}
try:
    import polars
    lasts["polars"] = [polars.read_csv(csv_file)[sign][-1], polars.read_ndjson(ndjson_file)[sign][-1]]
except ModuleNotFoundError:
    pass
for tool, values in lasts.items():
    assert values == [3.5, 3.5], (tool, values)
print("tools:", *lasts)
