-- The same as the third schema has it, with counts of requests.
PRAGMA application_id = 1414087749;
PRAGMA user_version = 3;
CREATE TABLE document (
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        body TEXT NOT NULL,
        revision INTEGER NOT NULL,
        PRIMARY KEY (kind, name)
    ) STRICT, WITHOUT ROWID;
INSERT INTO document VALUES('policy','api','{"limit":100}',3);
CREATE TABLE audit (
        revision INTEGER PRIMARY KEY,
        at_nanos INTEGER NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        kind TEXT NOT NULL,
        name TEXT NOT NULL,
        before TEXT,
        after TEXT
    ) STRICT;
INSERT INTO audit VALUES(1,1700000000000000000,'local','put','policy','api',NULL,'{"limit":10}');
INSERT INTO audit VALUES(2,1700000001000000000,'token:ops','put','policy','gone',NULL,'{"limit":1}');
INSERT INTO audit VALUES(3,1700000002000000000,'token:ops','put','policy','api','{"limit":10}','{"limit":100}');
INSERT INTO audit VALUES(4,1700000003000000000,'local','delete','policy','gone','{"limit":1}',NULL);
CREATE TABLE secret (
        name TEXT PRIMARY KEY,
        body TEXT NOT NULL,
        version INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
INSERT INTO secret VALUES('certificate app.example','kept',7);
CREATE TABLE counted (
        span INTEGER NOT NULL,
        begin INTEGER NOT NULL,
        labels TEXT NOT NULL,
        requests INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        micros INTEGER NOT NULL,
        classes TEXT NOT NULL,
        PRIMARY KEY (span, begin, labels)
    ) STRICT, WITHOUT ROWID;
INSERT INTO counted VALUES(2,1699920000,'a',5,50,500,'[[3,5]]');
CREATE TABLE counted_writer (
        writer INTEGER PRIMARY KEY,
        number INTEGER NOT NULL,
        at INTEGER NOT NULL
    ) STRICT;
INSERT INTO counted_writer VALUES(9,4,1700000000);
