-- settle for SQLite, migration 1.
--
-- Names are BLOBs, so they are compared as bytes. Instants are microseconds
-- since 1970 UTC. To read them:  SELECT CAST(subject AS TEXT), state,
-- datetime(due / 1000000, 'unixepoch'), CAST(body AS TEXT) FROM settle_operation;
--
-- The database must be in WAL mode, once for the file, outside a transaction:
--   PRAGMA journal_mode = WAL;

CREATE TABLE settle_operation (
  n          INTEGER PRIMARY KEY,
  id         BLOB    NOT NULL,
  scope      BLOB    NOT NULL,
  kind       BLOB    NOT NULL,
  key        BLOB    NOT NULL,  -- empty: none was given, the intent is the key
  subject    BLOB    NOT NULL,
  purpose    BLOB    NOT NULL,
  retired    BLOB    NOT NULL,  -- empty while key and intent are this row's, its id once it was replaced
  hold       BLOB,              -- the hold that it has now
  account    BLOB    NOT NULL,  -- the provider's
  ref        BLOB,              -- the first reference that it owns; all are in settle_reference
  refs       BLOB    NOT NULL,  -- stands for all of them, empty for none
  state      TEXT    NOT NULL,
  version    INTEGER NOT NULL,
  token      BLOB    NOT NULL,
  due        INTEGER,           -- lease end or next action; NULL: never
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  body       BLOB    NOT NULL,  -- JSON, see settle.EncodeRecord; repeats the columns but version, token and instants
  request    BLOB,              -- NULL after retention
  result     BLOB,
  -- The history entries of the creation and of version 2, as a rule the outcome, are kept
  -- here: rows of their own would make both commits of an Execute write one more page.
  write_id   BLOB    NOT NULL,
  entry      BLOB    NOT NULL,
  write_id_2 BLOB,              -- NULL: version 2 was a claim, which leaves no entry, or is yet to come
  at_2       INTEGER,
  entry_2    BLOB
);
CREATE UNIQUE INDEX settle_operation_id     ON settle_operation (id);
CREATE UNIQUE INDEX settle_operation_key    ON settle_operation (scope, kind, key, retired) WHERE key <> x'';
CREATE UNIQUE INDEX settle_operation_intent ON settle_operation (scope, kind, subject, purpose, retired);
CREATE UNIQUE INDEX settle_operation_hold   ON settle_operation (scope, hold) WHERE hold IS NOT NULL;
CREATE        INDEX settle_operation_due    ON settle_operation (due, kind)   WHERE due  IS NOT NULL;

CREATE TABLE settle_reference (
  account   BLOB    NOT NULL,
  kind      BLOB    NOT NULL,
  ref       BLOB    NOT NULL,
  operation INTEGER NOT NULL,
  PRIMARY KEY (account, kind, ref)
) WITHOUT ROWID;

-- The outcome of an operation is one statement: that adds the reference too.
CREATE TRIGGER settle_first_reference AFTER UPDATE OF ref ON settle_operation WHEN OLD.ref IS NULL AND NEW.ref IS NOT NULL BEGIN
  INSERT INTO settle_reference (account, kind, ref, operation) VALUES (NEW.account, NEW.kind, NEW.ref, NEW.n);
END;

CREATE TABLE settle_history (
  operation INTEGER NOT NULL,
  seq       INTEGER NOT NULL,  -- the version after the write, from 3
  write_id  BLOB    NOT NULL,  -- settles what became of a commit whose answer was lost
  at        INTEGER NOT NULL,
  entry     BLOB    NOT NULL,  -- JSON, see settle.EncodeEntry
  PRIMARY KEY (operation, seq)
) WITHOUT ROWID;

CREATE TABLE settle_schema (
  version INTEGER NOT NULL
);
INSERT INTO settle_schema (version) VALUES (1);
