package pgstore

import "strings"

// SchemaOfVersion2 returns the statements with which the releases before created a schema.
func SchemaOfVersion2(name string) string { return strings.ReplaceAll(schema, "SCHEMA", name) }

// Learned returns the generation up to which a store knows the changes.
func Learned(s *Store) int64 { return s.marks.learned() }
