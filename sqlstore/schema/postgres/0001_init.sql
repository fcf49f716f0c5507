-- settle for PostgreSQL, migration 1.
--
-- Names are bytea, so they are compared as bytes whatever the collation. Instants are
-- microseconds since 1970 UTC. To read them:  SELECT convert_from(subject, 'UTF8'), state,
-- to_timestamp(due / 1e6), convert_from(body, 'UTF8') FROM settle_operation;

-- fillfactor: an outcome is written beside its creation, and since no index is on what it
-- changes, no index is written.
CREATE TABLE settle_operation (
  id         bytea  NOT NULL PRIMARY KEY,
  scope      bytea  NOT NULL,
  kind       bytea  NOT NULL,
  key        bytea  NOT NULL,  -- empty: none was given, the intent is the key
  subject    bytea  NOT NULL,
  purpose    bytea  NOT NULL,
  retired    bytea  NOT NULL,  -- empty while key and intent are this row's, its id once it was replaced
  hold       bytea,            -- the hold that it has now
  account    bytea  NOT NULL,  -- the provider's
  request    bytea,            -- NULL after retention
  write_id   bytea  NOT NULL,  -- the history entry of the creation
  entry      bytea  NOT NULL,
  created_at bigint NOT NULL,
  -- What an outcome changes comes last: the log of an update leaves out what the row begins with, up to the first change.
  version    bigint NOT NULL,
  due        bigint,           -- lease end or next action; NULL: never. settle_due is the index of it
  updated_at bigint NOT NULL,
  token      bytea  NOT NULL,
  ref        bytea,            -- the first reference that it owns; all are in settle_reference
  refs       bytea  NOT NULL,  -- stands for all of them, empty for none
  state      text   NOT NULL,
  body       bytea  NOT NULL,  -- JSON, see settle.EncodeRecord; repeats the columns but version, token and instants
  result     bytea,
  -- The history entry of version 2, as a rule the outcome.
  write_id_2 bytea,            -- NULL: version 2 was a claim, which leaves no entry, or is yet to come
  at_2       bigint,
  entry_2    bytea
) WITH (fillfactor = 60);
CREATE UNIQUE INDEX settle_operation_key    ON settle_operation (scope, kind, key)              WHERE key <> '' AND retired = '';
CREATE UNIQUE INDEX settle_operation_intent ON settle_operation (scope, kind, subject, purpose) WHERE retired = '';
CREATE UNIQUE INDEX settle_operation_hold   ON settle_operation (scope, hold)                   WHERE hold IS NOT NULL;

-- Open work only: a claim costs by what is due, not by what is stored.
CREATE TABLE settle_due (
  operation bytea  NOT NULL PRIMARY KEY,
  kind      bytea  NOT NULL,
  due       bigint NOT NULL
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX settle_due_due ON settle_due (due, kind);

CREATE TABLE settle_reference (
  account   bytea NOT NULL,
  kind      bytea NOT NULL,
  ref       bytea NOT NULL,
  operation bytea NOT NULL,
  PRIMARY KEY (account, kind, ref)
);

CREATE TABLE settle_history (
  operation bytea  NOT NULL,
  seq       bigint NOT NULL,  -- the version after the write, from 3
  write_id  bytea  NOT NULL,  -- settles what became of a commit whose answer was lost
  at        bigint NOT NULL,
  entry     bytea  NOT NULL,  -- JSON, see settle.EncodeEntry
  PRIMARY KEY (operation, seq)
);

CREATE TABLE settle_schema (
  version integer NOT NULL
);
INSERT INTO settle_schema (version) VALUES (1);
