-- goose and tern know that the lower part of this file undoes the upper one. psql does not:
-- never feed it the whole file, since the end of it drops the tables. See docs/migrations.md.

-- +goose Up

-- Functions, types and the collation are qualified too, so that nothing here depends on search_path.

-- PostgreSQL asks for the right to create schemas even where the schema exists.
-- A role that was given an existing schema goes on; without one, the next statement fails.
-- +goose StatementBegin
do $create_schema$
begin
	create schema if not exists ackafter;
exception when insufficient_privilege then
	raise warning 'this role may not create a schema in this database: going on with an existing one';
end
$create_schema$;
-- +goose StatementEnd

create table ackafter.schema_version (
	version    pg_catalog.int4        primary key,
	applied_at pg_catalog.timestamptz not null default pg_catalog.now()
);

comment on table ackafter.schema_version is
	'The migrations of this schema that have run, whichever tool ran them. Workers read the highest version when they start.';

create table ackafter.processed_messages (
	subscriber_id pg_catalog.text collate pg_catalog."C" not null,
	message_id    pg_catalog.text collate pg_catalog."C" not null,
	processed_at  pg_catalog.timestamptz not null default pg_catalog.now(),
	payload_hash  pg_catalog.bytea,
	primary key (subscriber_id, message_id),
	constraint processed_messages_subscriber_id_length
		check (pg_catalog.octet_length(subscriber_id) operator(pg_catalog.>=) 1
			and pg_catalog.octet_length(subscriber_id) operator(pg_catalog.<=) 255),
	constraint processed_messages_message_id_length
		check (pg_catalog.octet_length(message_id) operator(pg_catalog.>=) 1
			and pg_catalog.octet_length(message_id) operator(pg_catalog.<=) 512),
	constraint processed_messages_payload_hash_length
		check (pg_catalog.octet_length(payload_hash) operator(pg_catalog.=) 16)
) with (
	-- Rows are only inserted, and deleted when they expire. The default scale factor, a fifth of the table,
	-- would leave a large table to few and very long vacuums.
	autovacuum_vacuum_insert_scale_factor = 0.05,
	autovacuum_vacuum_scale_factor = 0.05
);

comment on table ackafter.processed_messages is
	'A row means: this subscriber never runs this message from the broker again. It is inserted in the transaction of the business change that the message made. Deleting a row lets a late redelivery run again. Never partition by time: the unique key would have to contain the time, and one message could then be processed once in each partition. Hash partitioning by (subscriber_id, message_id) is fine.';
comment on column ackafter.processed_messages.subscriber_id is
	'The subscription that processed the message, as named in the configuration of the worker. Renaming a subscriber makes it forget its past.';
comment on column ackafter.processed_messages.message_id is
	'What identifies the message within the subscriber, compared byte by byte.';
comment on column ackafter.processed_messages.processed_at is
	'When the transaction that processed the message began.';
comment on column ackafter.processed_messages.payload_hash is
	'The first 16 bytes of the SHA-256 of the body, to notice another message under the same id. Null where hashing is off.';

insert into ackafter.schema_version (version) values (1);

---- create above / drop below ----

-- +goose Down

-- The schema stays: other tables may live in it.
-- Dropping processed_messages forgets which messages were processed: a redelivery runs again.
drop table ackafter.processed_messages;
drop table ackafter.schema_version;
