"""The database behind the store: contract, drivers, dialects, short forms of queries, paging, migrations, backup."""
