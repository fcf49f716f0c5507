-- settle for MySQL and MariaDB, migration 1.
--
-- Names are VARBINARY, so they are compared as bytes whatever the collation, and not padded.
-- Instants are microseconds since 1970 UTC. To read them:  SELECT CONVERT(subject USING utf8mb4), state,
-- FROM_UNIXTIME(due / 1000000), CONVERT(body USING utf8mb4) FROM settle_operation;
--
-- DDL commits by itself here: each statement can run again after an interruption.

CREATE TABLE IF NOT EXISTS settle_operation (
  id         VARBINARY(64)  NOT NULL PRIMARY KEY,
  scope      VARBINARY(255) NOT NULL,
  kind       VARBINARY(255)  NOT NULL,
  op_key     VARBINARY(255),           -- NULL: none was given, the intent is the key
  subject    VARBINARY(255) NOT NULL,
  purpose    VARBINARY(255) NOT NULL,
  retired    VARBINARY(64)  NOT NULL,  -- empty while key and intent are this row's, its id once it was replaced
  hold       VARBINARY(255),           -- the hold that it has now
  account    VARBINARY(512) NOT NULL,  -- the provider's
  ref        VARBINARY(255),           -- the first reference that it owns; all are in settle_reference
  refs       VARBINARY(16)  NOT NULL,  -- stands for all of them, empty for none
  state      VARBINARY(32)  NOT NULL,
  version    BIGINT         NOT NULL,
  token      VARBINARY(64)  NOT NULL,
  due        BIGINT,                   -- lease end or next action; NULL: never
  created_at BIGINT         NOT NULL,
  updated_at BIGINT         NOT NULL,
  body       MEDIUMBLOB     NOT NULL,  -- JSON, see settle.EncodeRecord; repeats the columns but version, token and instants
  request    MEDIUMBLOB,               -- NULL after retention
  result     MEDIUMBLOB,
  -- The history entries of the creation and of version 2, as a rule the outcome.
  write_id   VARBINARY(64)  NOT NULL,
  entry      BLOB           NOT NULL,
  write_id_2 VARBINARY(64),            -- NULL: version 2 was a claim, which leaves no entry, or is yet to come
  at_2       BIGINT,
  entry_2    BLOB,
  UNIQUE KEY settle_operation_key    (scope, kind, op_key, retired),
  UNIQUE KEY settle_operation_intent (scope, kind, subject, purpose, retired),
  UNIQUE KEY settle_operation_hold   (scope, hold),
  KEY        settle_operation_due    (due, kind)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS settle_reference (
  account   VARBINARY(512) NOT NULL,
  kind      VARBINARY(255)  NOT NULL,
  ref       VARBINARY(255) NOT NULL,
  operation VARBINARY(64)  NOT NULL,
  PRIMARY KEY (account, kind, ref)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS settle_history (
  operation VARBINARY(64) NOT NULL,
  seq       BIGINT        NOT NULL,  -- the version after the write, from 3
  write_id  VARBINARY(64) NOT NULL,  -- settles what became of a commit whose answer was lost
  at        BIGINT        NOT NULL,
  entry     BLOB          NOT NULL,  -- JSON, see settle.EncodeEntry
  PRIMARY KEY (operation, seq)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS settle_schema (
  version INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;
INSERT IGNORE INTO settle_schema (version) VALUES (1);
