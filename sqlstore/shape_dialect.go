package sqlstore

import (
	"slices"
	"strings"
)

func sqliteShape() *shape {
	columns := append(operationColumns("key", false), column{"settle_reference", "operation", 0, false}, column{"settle_history", "operation", 0, false},
		column{"settle_operation", "n", 0, true})
	var trigger string
	for _, m := range Schema(SQLite()) {
		if _, after, ok := strings.Cut(m.SQL, "CREATE TRIGGER "); ok {
			text, _, _ := strings.Cut(after, "END;")
			trigger = "CREATE TRIGGER " + text + "END"
		}
	}
	return &shape{
		bytes: "BLOB", number: "INTEGER",
		columns: columns,
		indexes: []index{
			{"settle_operation", "settle_operation_id", "id", "", true},
			{"settle_operation", "settle_operation_key", "scope,kind,key,retired", "key <> x''", true},
			{"settle_operation", "settle_operation_intent", "scope,kind,subject,purpose,retired", "", true},
			{"settle_operation", "settle_operation_hold", "scope,hold", "hold IS NOT NULL", true},
			{"settle_operation", "settle_operation_due", "due,kind", "due IS NOT NULL", false},
			{"settle_reference", "PRIMARY KEY", "account,kind,ref", "", true},
			{"settle_history", "PRIMARY KEY", "operation,seq", "", true},
		},
		triggers: []string{trigger},
		haveColumns: `SELECT m.name, c.name, c.type, 0, c."notnull" = 0 OR c.dflt_value IS NOT NULL, ''
			FROM sqlite_master m JOIN pragma_table_info(m.name) c
			WHERE m.type = 'table' AND m.name IN ('settle_operation', 'settle_reference', 'settle_history')`,
		haveIndexes: `SELECT m.name, i.name, i."unique", (SELECT group_concat(COALESCE(name, '?'), ',') FROM pragma_index_info(i.name)),
			COALESCE((SELECT CASE WHEN i.partial THEN substr(x.sql, instr(upper(x.sql), 'WHERE') + 5) END FROM sqlite_master x WHERE x.type = 'index' AND x.name = i.name), '')
			FROM sqlite_master m JOIN pragma_index_list(m.name) i
			WHERE m.type = 'table' AND m.name IN ('settle_operation', 'settle_reference', 'settle_history')`,
		haveTriggers: `SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'settle_operation'`,
		modify:       `%s must be made anew with %s %s, as in sqlstore.Schema`,
		create:       createIndex,
	}
}

func pgShape() *shape {
	return &shape{
		bytes: "bytea", number: "bigint",
		columns: append(slices.DeleteFunc(operationColumns("key", false), func(c column) bool { return c.table == "settle_operation" && c.name == "ref" }),
			column{"settle_operation", "fixed", 1 << 15, false}, column{"settle_operation", "same", 16, false},
			column{"settle_reference", "operation", 36, false}, column{"settle_history", "operation", 36, false}, column{"settle_due", "operation", 36, false}, column{"settle_due", "kind", 64, false}, column{"settle_due", "due", 0, false}),
		indexes: []index{
			{"settle_operation", "settle_operation_pkey", "id", "", true},
			{"settle_operation", "settle_operation_key", "scope,kind,key", "key <> '' AND retired = ''", true},
			{"settle_operation", "settle_operation_intent", "scope,kind,subject,purpose", "retired = ''", true},
			{"settle_operation", "settle_operation_hold", "scope,hold", "hold IS NOT NULL", true},
			{"settle_due", "settle_due_pkey", "operation", "", true},
			{"settle_due", "settle_due_due", "due,kind", "", false},
			{"settle_reference", "settle_reference_pkey", "account,kind,ref", "", true},
			{"settle_history", "settle_history_pkey", "operation,seq", "", true},
		},
		haveColumns: `SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), 0, NOT a.attnotnull OR a.atthasdef, ''
			FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
			WHERE c.relname IN ('settle_operation', 'settle_due', 'settle_reference', 'settle_history') AND c.relkind IN ('r', 'p')
			AND pg_table_is_visible(c.oid) AND a.attnum > 0 AND NOT a.attisdropped`,
		// One that is not valid, or deferred to the commit, guards nothing.
		haveIndexes: `SELECT c.relname, x.relname, i.indisunique, COALESCE((
				SELECT string_agg(COALESCE(a.attname, '?'), ',' ORDER BY k.n) FROM unnest(i.indkey::int2[]) WITH ORDINALITY k (att, n)
				LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.att AND k.att > 0), ''),
			COALESCE(pg_get_expr(i.indpred, i.indrelid), '')
			FROM pg_catalog.pg_index i JOIN pg_catalog.pg_class c ON c.oid = i.indrelid JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid
			WHERE c.relname IN ('settle_operation', 'settle_due', 'settle_reference', 'settle_history')
			AND pg_table_is_visible(c.oid) AND i.indisvalid AND i.indimmediate`,
		modify: `ALTER TABLE %s ALTER COLUMN %s TYPE %s`,
		create: createIndex,
	}
}

func myShape() *shape {
	return &shape{
		bytes: "VARBINARY", number: "BIGINT", sized: true,
		columns: append(slices.DeleteFunc(operationColumns("op_key", true), func(c column) bool { return c.table == "settle_reference" }),
			column{"settle_history", "operation", 36, false}),
		indexes: []index{
			{"settle_operation", "PRIMARY", "id", "", true},
			{"settle_operation", "settle_operation_key", "scope,kind,op_key,retired", "", true},
			{"settle_operation", "settle_operation_intent", "scope,kind,subject,purpose,retired", "", true},
			{"settle_operation", "settle_operation_hold", "scope,hold", "", true},
			{"settle_operation", "settle_operation_ref", "account,kind,ref", "", true},
			{"settle_operation", "settle_operation_due", "due,kind", "", false},
			{"settle_history", "PRIMARY", "operation,seq", "", true},
		},
		haveColumns: `SELECT c.table_name, c.column_name, c.column_type, COALESCE(c.character_maximum_length, 0),
			c.is_nullable = 'YES' OR c.column_default IS NOT NULL, CASE WHEN t.engine = 'InnoDB' THEN ''
			ELSE CONCAT('its engine ', COALESCE(t.engine, '?'), ' has no transactions: ALTER TABLE ', c.table_name, ' ENGINE = InnoDB') END
			FROM information_schema.columns c JOIN information_schema.tables t ON t.table_schema = c.table_schema AND t.table_name = c.table_name
			WHERE c.table_schema = DATABASE() AND c.table_name IN ('settle_operation', 'settle_history')`,
		// An index on the beginning of a column takes two names for one.
		haveIndexes: `SELECT s.table_name, s.index_name, MAX(s.non_unique) = 0,
			GROUP_CONCAT(CONCAT(s.column_name, COALESCE(CONCAT('(', s.sub_part, ')'), '')) ORDER BY s.seq_in_index SEPARATOR ','), ''
			FROM information_schema.statistics s
			WHERE s.table_schema = DATABASE() AND s.table_name IN ('settle_operation', 'settle_history')
			GROUP BY s.table_name, s.index_name`,
		noTriggers: true,
		haveTriggers: `SELECT trigger_name FROM information_schema.triggers
			WHERE event_object_schema = DATABASE() AND event_object_table IN ('settle_operation', 'settle_history')`,
		modify: `ALTER TABLE %s MODIFY %s %s`,
		create: func(i *index) string {
			text := "ALTER TABLE " + i.table + " ADD "
			switch {
			case i.name == "PRIMARY":
				return text + "PRIMARY KEY (" + i.columns + ")"
			case i.unique:
				text += "UNIQUE "
			}
			return text + "KEY " + i.name + " (" + i.columns + ")"
		},
	}
}
