-- settle for PostgreSQL, migration 2: what an outcome writes is less than half. The table is made anew for the order of its
-- columns, which takes as long as copying it. Rows stay as they are until they are written again.
--
-- To read the names:  SELECT convert_from(subject, 'UTF8'), state, to_timestamp(due / 1e6) FROM settle_operation;
-- body, fixed and the entries are JSON with codes for its words, tokens and write ids UUIDs of 16 bytes: settle's own tools show them.

-- fillfactor: an outcome is written beside its creation, and since no index is on what it changes, no index is written. Half of a page
-- is left for that, since many creations of one transaction have their outcomes in another.
CREATE TABLE settle_operation_2 (
  -- The log of an update leaves out what the row begins with, up to the first change.
  id         bytea  NOT NULL PRIMARY KEY,
  scope      bytea  NOT NULL,
  kind       bytea  NOT NULL,
  key        bytea  NOT NULL,  -- empty: none was given, the intent is the key
  subject    bytea  NOT NULL,
  purpose    bytea  NOT NULL,
  retired    bytea  NOT NULL,  -- empty while key and intent are this row's, its id once it was replaced
  hold       bytea,            -- the hold that it has now
  account    bytea  NOT NULL,  -- the provider's
  fixed      bytea  NOT NULL,  -- the part of the record that no evidence changes; empty: it is in the body
  same       bytea  NOT NULL,  -- stands for all of the above and the request, which an update compares by it; empty: it cannot
  request    bytea,            -- NULL after retention
  write_id   bytea  NOT NULL,  -- the history entry of the creation
  entry      bytea  NOT NULL,
  created_at bigint NOT NULL,
  -- What an outcome changes.
  version    bigint NOT NULL,
  due        bigint,           -- lease end or next action; NULL: never. settle_due is the index of it
  updated_at bigint NOT NULL,
  at_2       bigint,
  token      bytea  NOT NULL,
  refs       bytea  NOT NULL,  -- stands for the references that it owns, which are in settle_reference; empty: none
  state      text   NOT NULL,
  body       bytea  NOT NULL,  -- the rest of the record
  result     bytea,
  -- The history entry of version 2, as a rule the outcome; its time is at_2.
  write_id_2 bytea,            -- NULL: version 2 was a claim, which leaves no entry, or is yet to come
  entry_2    bytea
) WITH (fillfactor = 40);
INSERT INTO settle_operation_2 (id, scope, kind, key, subject, purpose, retired, hold, account, fixed, same, request, write_id, entry, created_at,
    version, due, updated_at, at_2, token, refs, state, body, result, write_id_2, entry_2)
  SELECT id, scope, kind, key, subject, purpose, retired, hold, account, '', '', request, write_id, entry, created_at,
    version, due, updated_at, at_2, token, refs, state, body, result, write_id_2, entry_2 FROM settle_operation;
DROP TABLE settle_operation;
ALTER TABLE settle_operation_2 RENAME TO settle_operation;
ALTER TABLE settle_operation RENAME CONSTRAINT settle_operation_2_pkey TO settle_operation_pkey;
CREATE UNIQUE INDEX settle_operation_key    ON settle_operation (scope, kind, key)              WHERE key <> '' AND retired = '';
CREATE UNIQUE INDEX settle_operation_intent ON settle_operation (scope, kind, subject, purpose) WHERE retired = '';
CREATE UNIQUE INDEX settle_operation_hold   ON settle_operation (scope, hold)                   WHERE hold IS NOT NULL;

UPDATE settle_schema SET version = 2;
