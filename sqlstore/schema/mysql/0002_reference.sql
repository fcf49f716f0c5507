-- settle for MySQL and MariaDB, migration 2: the first reference of an operation is in its row, under a unique index, so that
-- an outcome is one statement. A further one is a row of this table of its own, under the same index, with version 0, the state
-- 'reference' and its operation's id as the subject: a statement that looks for operations says  version > 0.
--
-- Processes of the version before must have ended: they look for references in the table that goes. Each statement can run again
-- after an interruption.

CREATE TABLE IF NOT EXISTS settle_reference (
  account   VARBINARY(512) NOT NULL,
  kind      VARBINARY(255)  NOT NULL,
  ref       VARBINARY(255) NOT NULL,
  operation VARBINARY(64)  NOT NULL,
  PRIMARY KEY (account, kind, ref)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

SET @settle = (SELECT CASE COUNT(*) WHEN 0 THEN 'ALTER TABLE settle_operation ADD UNIQUE KEY settle_operation_ref (account, kind, ref)' ELSE 'DO 0' END
  FROM information_schema.statistics
  WHERE table_schema = DATABASE() AND table_name = 'settle_operation' AND index_name = 'settle_operation_ref');
PREPARE settle FROM @settle;
EXECUTE settle;
DEALLOCATE PREPARE settle;

INSERT INTO settle_operation (id, scope, kind, subject, purpose, retired, account, ref, refs, state, version, token, created_at, updated_at,
  body, write_id, entry)
  SELECT k.id, '', k.kind, k.operation, '', k.id, k.account, k.ref, '', 'reference', 0, '', 0, 0, '', '', ''
  FROM (SELECT CONCAT('ref:', LEFT(SHA2(CONCAT(HEX(k.account), ':', HEX(k.kind), ':', HEX(k.ref)), 256), 60)) AS id, k.*
    FROM settle_reference k) k
  WHERE NOT EXISTS (SELECT 1 FROM settle_operation o WHERE o.account = k.account AND o.kind = k.kind AND o.ref = k.ref)
  ON DUPLICATE KEY UPDATE version = settle_operation.version;

DROP TABLE IF EXISTS settle_reference;
INSERT IGNORE INTO settle_schema (version) VALUES (2);
DELETE FROM settle_schema WHERE version < 2;
