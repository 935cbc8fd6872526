BEGIN TRANSACTION;
CREATE TABLE rounds (
            run_id TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
            round INTEGER NOT NULL,
            document TEXT NOT NULL,
            PRIMARY KEY (run_id, round)
        );
INSERT INTO "rounds" VALUES('run_0123456789abcdef',0,'{"index":0,"workflow":{"steps":[{"worker":"solo","subtask":"Do part 0","access":"all"},{"worker":"solo","subtask":"Do part 1","access":"all"}]},"steps":[],"planning":[],"plan_text":"","warnings":[],"accepted":false}');
CREATE TABLE runs (
            id TEXT NOT NULL PRIMARY KEY,
            version INTEGER NOT NULL,
            created_at TEXT NOT NULL,
            updated_at TEXT NOT NULL,
            status TEXT NOT NULL,
            question TEXT NOT NULL,
            answer TEXT,
            conductor TEXT NOT NULL,
            tier TEXT NOT NULL,
            cost_usd DOUBLE PRECISION,
            total_tokens BIGINT,
            calls BIGINT,
            seconds DOUBLE PRECISION,
            document TEXT NOT NULL
        );
INSERT INTO "runs" VALUES('run_0123456789abcdef',1,'2026-01-02T03:04:05.678+00:00','2026-01-02T03:04:06.000+00:00','answered','Why is the sky blue?','Scattering.','fixed','ultra',0.5,30,2,1.5,'{"id":"run_0123456789abcdef","question":"Why is the sky blue?","status":"answered","pool":{"workers":[{"name":"solo","description":"","provider":"","model":"","price":null,"limits":{"concurrency":null,"requests_per_minute":null,"tokens_per_minute":null,"timeout_seconds":300.0,"context_window":null,"max_output_tokens":null},"capabilities":[],"fallback":null}],"share_question":true,"mask_names":false},"conductor":"fixed","created_at":"2026-01-02T03:04:05.678+00:00","rounds":[],"answer":"Scattering.","error":null,"tier":"ultra","max_steps":5,"max_rounds":1,"budget":{"calls":null,"tokens":null,"usd":null,"seconds":null,"depth":2,"allow_unpriced":false},"spent":{"calls":2,"tokens":30,"usd":0.5,"seconds":1.5},"history":[],"depth":0,"prompt_hash":"","version":1}');
CREATE TABLE schema_version (version INTEGER NOT NULL);
INSERT INTO "schema_version" VALUES(1);
CREATE TABLE steps (
            run_id TEXT NOT NULL,
            round INTEGER NOT NULL,
            step INTEGER NOT NULL,
            document TEXT NOT NULL,
            PRIMARY KEY (run_id, round, step),
            FOREIGN KEY (run_id, round) REFERENCES rounds (run_id, round) ON DELETE CASCADE
        );
INSERT INTO "steps" VALUES('run_0123456789abcdef',0,0,'{"round":0,"index":0,"worker":"solo","subtask":"Do part 0","access":"all","status":"done","reply":"Because of scattering.","error":null,"started_ms":1.0,"finished_ms":2.5,"attempts":[{"worker":"solo","usage":{"input_tokens":10,"output_tokens":5,"cached_input_tokens":0,"reasoning_tokens":0,"cache_write_tokens":0},"cost_usd":0.25,"started_ms":1.0,"finished_ms":2.5,"error":null}],"prompt":"the prompt","answered_by":"solo","finish":"stop","nested":[]}');
INSERT INTO "steps" VALUES('run_0123456789abcdef',0,1,'{"round":0,"index":1,"worker":"solo","subtask":"Do part 1","access":"all","status":"done","reply":"Because of scattering.","error":null,"started_ms":1.0,"finished_ms":2.5,"attempts":[{"worker":"solo","usage":{"input_tokens":10,"output_tokens":5,"cached_input_tokens":0,"reasoning_tokens":0,"cache_write_tokens":0},"cost_usd":0.25,"started_ms":1.0,"finished_ms":2.5,"error":null}],"prompt":"the prompt","answered_by":"solo","finish":"stop","nested":[]}');
CREATE INDEX runs_by_age ON runs (created_at, id);
COMMIT;
