"""The database behind the store: contract, drivers, dialects, paging, migrations, backup."""
