"""Forms generated from property schemas: a schema to fields, and a posted form to a document. Pure."""
