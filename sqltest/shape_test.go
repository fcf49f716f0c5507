package sqltest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/settle-go/settle/sqlstore"
)

// shapeCase is a schema that somebody changed.
type shapeCase struct {
	spoil string // statements
	says  string // part of the refusal
	// mends: what the refusal says after its last colon is a statement that makes New content.
	mends bool
}

func shapeCases(d database) map[string]shapeCase {
	all := map[string]shapeCase{
		"newer schema":  {spoil: `UPDATE settle_schema SET version = 99`, says: "use a newer settle"},
		"older schema":  {spoil: `UPDATE settle_schema SET version = 0`, says: "EnsureSchema"},
		"another table": {spoil: `CREATE TABLE settle_orders (a INT)`},
	}
	switch d.name {
	case "SQLite":
		all["no unique key"] = shapeCase{`DROP INDEX settle_operation_key`, "CREATE UNIQUE INDEX settle_operation_key", true}
		all["no unique id"] = shapeCase{`DROP INDEX settle_operation_id`, "CREATE UNIQUE INDEX settle_operation_id", true}
		all["no unique hold"] = shapeCase{`DROP INDEX settle_operation_hold`, "CREATE UNIQUE INDEX settle_operation_hold", true}
		all["no due index"] = shapeCase{`DROP INDEX settle_operation_due`, "CREATE INDEX settle_operation_due", true}
		all["plain intent"] = shapeCase{
			`DROP INDEX settle_operation_intent; CREATE INDEX settle_operation_intent ON settle_operation (scope, kind, subject, purpose, retired)`,
			"CREATE UNIQUE INDEX settle_operation_intent", false,
		}
		all["one more unique index"] = shapeCase{`CREATE UNIQUE INDEX mine ON settle_operation (subject)`, "unique index mine", false}
		all["no trigger"] = shapeCase{`DROP TRIGGER settle_first_reference`, "CREATE TRIGGER settle_first_reference", false}
		all["numbers as text"] = shapeCase{
			`DROP INDEX settle_operation_due; ALTER TABLE settle_operation RENAME COLUMN due TO was; ALTER TABLE settle_operation ADD COLUMN due TEXT`,
			"column due of settle_operation is TEXT", false,
		}
		all["a condition of its own"] = shapeCase{
			`DROP INDEX settle_operation_hold; CREATE UNIQUE INDEX settle_operation_hold ON settle_operation (scope, hold) WHERE hold > x'80'`,
			"unique index settle_operation_hold", false,
		}
	case "PostgreSQL":
		all["text"] = shapeCase{
			`ALTER TABLE settle_operation ALTER COLUMN subject TYPE text USING convert_from(subject, 'UTF8')`,
			"ALTER TABLE settle_operation ALTER COLUMN subject TYPE bytea", false,
		}
		all["text with a collation"] = shapeCase{
			`CREATE COLLATION folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
			ALTER TABLE settle_reference ALTER COLUMN ref TYPE text COLLATE folded USING convert_from(ref, 'UTF8')`,
			"column ref of settle_reference is text", false,
		}
		all["citext"] = shapeCase{
			`CREATE DOMAIN citext AS text;
			ALTER TABLE settle_operation ALTER COLUMN hold TYPE citext USING convert_from(hold, 'UTF8')`,
			"column hold of settle_operation is citext", false,
		}
		all["varchar"] = shapeCase{
			`ALTER TABLE settle_operation ALTER COLUMN state TYPE varchar(8)`,
			"ALTER TABLE settle_operation ALTER COLUMN state TYPE text", true,
		}
		all["short numbers"] = shapeCase{`ALTER TABLE settle_operation ALTER COLUMN due TYPE integer`, "TYPE bigint", true}
		all["no unique key"] = shapeCase{`DROP INDEX settle_operation_key`, "CREATE UNIQUE INDEX settle_operation_key", true}
		all["key unique for ever"] = shapeCase{
			`DROP INDEX settle_operation_key; CREATE UNIQUE INDEX settle_operation_key ON settle_operation (scope, kind, key)`,
			"unique index settle_operation_key", false,
		}
		all["not yet unique"] = shapeCase{
			`ALTER TABLE settle_history DROP CONSTRAINT settle_history_pkey, ADD CONSTRAINT settle_history_pkey PRIMARY KEY (operation, seq) DEFERRABLE`,
			"settle_history_pkey", false,
		}
		all["no due index"] = shapeCase{`DROP INDEX settle_due_due`, "CREATE INDEX settle_due_due", true}
		all["one more unique index"] = shapeCase{`CREATE UNIQUE INDEX mine ON settle_operation (subject)`, "unique index mine", false}
		all["one more column"] = shapeCase{`ALTER TABLE settle_operation ADD COLUMN mine int NOT NULL`, "column mine", false}
		all["a column for reports"] = shapeCase{spoil: `ALTER TABLE settle_operation ADD COLUMN mine int`}
		all["no column"] = shapeCase{`ALTER TABLE settle_operation DROP COLUMN refs`, "no column refs", false}
		all["never NULL"] = shapeCase{`ALTER TABLE settle_operation ALTER COLUMN hold SET NOT NULL`, "column hold of settle_operation may not be NULL", false}
	case "MySQL":
		all["text"] = shapeCase{
			`ALTER TABLE settle_operation MODIFY subject VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL`,
			"MODIFY subject VARBINARY(255)", true,
		}
		all["case counts, spaces do not"] = shapeCase{
			`ALTER TABLE settle_operation MODIFY ref VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin`, "MODIFY ref VARBINARY(255)", true,
		}
		all["padded"] = shapeCase{`ALTER TABLE settle_operation MODIFY purpose BINARY(128) NOT NULL`, "MODIFY purpose VARBINARY(128)", true}
		all["short name"] = shapeCase{`ALTER TABLE settle_operation MODIFY op_key VARBINARY(40)`, "MODIFY op_key VARBINARY(255)", true}
		all["short scope"] = shapeCase{`ALTER TABLE settle_operation MODIFY scope VARBINARY(127) NOT NULL`, "MODIFY scope VARBINARY(128)", true}
		all["just long enough"] = shapeCase{spoil: `ALTER TABLE settle_operation MODIFY scope VARBINARY(128) NOT NULL`}
		all["short request"] = shapeCase{`ALTER TABLE settle_operation MODIFY request BLOB`, "MODIFY request MEDIUMBLOB", true}
		all["short numbers"] = shapeCase{`ALTER TABLE settle_operation MODIFY due INT`, "MODIFY due BIGINT", true}
		all["a trigger"] = shapeCase{`CREATE TRIGGER mine AFTER UPDATE ON settle_operation FOR EACH ROW SET @a = 1`, "trigger mine", false}
		all["engine"] = shapeCase{`ALTER TABLE settle_history ENGINE = MyISAM`, "ALTER TABLE settle_history ENGINE = InnoDB", true}
		all["no unique key"] = shapeCase{`ALTER TABLE settle_operation DROP KEY settle_operation_key`, "ADD UNIQUE KEY settle_operation_key", true}
		all["no due index"] = shapeCase{`ALTER TABLE settle_operation DROP KEY settle_operation_due`, "ADD KEY settle_operation_due", true}
		all["no references"] = shapeCase{`ALTER TABLE settle_operation DROP KEY settle_operation_ref`, "ADD UNIQUE KEY settle_operation_ref (account,kind,ref)", true}
		all["unique in part"] = shapeCase{
			`ALTER TABLE settle_operation DROP KEY settle_operation_hold, ADD UNIQUE KEY settle_operation_hold (scope, hold(40))`,
			"unique index settle_operation_hold on settle_operation (scope,hold(40))", false,
		}
		all["one more unique index"] = shapeCase{`ALTER TABLE settle_operation ADD UNIQUE KEY mine (subject)`, "unique index mine", false}
		all["never NULL"] = shapeCase{`ALTER TABLE settle_operation MODIFY hold VARBINARY(255) NOT NULL`, "MODIFY hold VARBINARY(255) NULL", true}
	}
	return all
}

// TestIC27_Schema (IC-27, IC-31, IC-36): New refuses tables whose columns fold, pad or cut what they keep,
// or whose indexes let two operations have one name or refuse one that is new, and says what mends them.
func TestIC27_Schema(t *testing.T) {
	onEach(t, databases(), func(t *testing.T, d database) {
		for name, c := range shapeCases(d) {
			t.Run(name, func(t *testing.T) {
				db := d.connect(t, d.fresh(t))
				require.NoError(t, sqlstore.EnsureSchema(t.Context(), db, d.dialect()))
				for _, text := range strings.Split(c.spoil, ";") {
					require.NoError(t, run(db, text), text)
				}
				s, err := sqlstore.New(db, d.dialect(), &sqlstore.Options{AcceptUnsafe: true})
				if c.says == "" {
					require.NoError(t, err)
					_, err = s.Commit(t.Context(), create("1"))
					require.NoError(t, err)
					require.NoError(t, s.Close())
					return
				}
				require.ErrorContains(t, err, c.says)
				if !c.mends {
					return
				}
				mend := err.Error()[strings.LastIndex(err.Error(), ": ")+2:]
				require.NoError(t, run(db, mend), mend)
				s, err = sqlstore.New(db, d.dialect(), nil)
				require.NoError(t, err, "after %s", mend)
				_, err = s.Commit(t.Context(), create("1"))
				require.NoError(t, err)
				require.NoError(t, s.Close())
			})
		}
	})
}

// TestMySQLSettings: New refuses a session in which values are cut, or assignments see old values.
func TestMySQLSettings(t *testing.T) {
	t.Parallel()
	d := mariaDatabase()
	dsn := d.fresh(t)
	require.NoError(t, sqlstore.EnsureSchema(t.Context(), d.connect(t, dsn), d.dialect()))
	for setting, says := range map[string]string{
		"sql_mode=''": "STRICT_TRANS_TABLES",
		"sql_mode='STRICT_ALL_TABLES,SIMULTANEOUS_ASSIGNMENT'": "SIMULTANEOUS_ASSIGNMENT",
		"sql_mode='STRICT_ALL_TABLES,ANSI'":                    "",
		"innodb_lock_wait_timeout=50":                          "innodb_lock_wait_timeout",
		"autocommit=0":                                         "autocommit is off",
		"completion_type='CHAIN'":                              "completion_type",
	} {
		name, value, _ := strings.Cut(setting, "=")
		cfg := dsnWith(t, dsn, name, value)
		s, err := sqlstore.New(d.connect(t, cfg), d.dialect(), nil)
		if says == "" {
			require.NoError(t, err, setting)
			_, err = s.Commit(t.Context(), create("1"))
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, says, setting)
	}
}

// TestEnsureSchemaAtOnceOnServers: several processes make one schema at the same time, and each finds it whole.
func TestEnsureSchemaAtOnceOnServers(t *testing.T) {
	onEach(t, servers(), func(t *testing.T, d database) {
		for range 2 {
			dsn := d.fresh(t)
			children := make([]*child, 4)
			for i := range children {
				children[i] = start(t, "migrate "+d.name, dsn, "")
			}
			for _, c := range children { // all are up before the first begins
				require.Equal(t, "ready", c.line(t))
			}
			for _, c := range children {
				require.NoError(t, c.in.Close())
			}
			for _, c := range children {
				require.NoError(t, c.cmd.Wait())
			}
			db := d.connect(t, dsn)
			assert.Equal(t, 1, count(t, db, `SELECT count(*) FROM settle_schema`))
			s, err := sqlstore.New(db, d.dialect(), nil)
			require.NoError(t, err)
			_, err = s.Commit(t.Context(), create("1"))
			require.NoError(t, err)
			require.NoError(t, s.Close())
		}
	})
}
