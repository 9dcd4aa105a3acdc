-- goose and tern know that the lower part of this file undoes the upper one. psql does not:
-- never feed it the whole file, since the end of it drops the tables. See docs/migrations.md.

-- +goose Up

create table ackafter.failed_messages (
	subscriber_id   pg_catalog.text collate pg_catalog."C" not null,
	message_id      pg_catalog.text collate pg_catalog."C" not null,
	reason          pg_catalog.text not null,
	error           pg_catalog.text not null,
	attempts        pg_catalog.int4 not null,
	unfinished      pg_catalog.int4 not null default 0,
	failed_at       pg_catalog.timestamptz not null default pg_catalog.now(),
	last_failed_at  pg_catalog.timestamptz not null default pg_catalog.now(),
	next_attempt_at pg_catalog.timestamptz,
	message_type    pg_catalog.text  not null,
	topic           pg_catalog.text  not null,
	message_key     pg_catalog.bytea,
	body            pg_catalog.bytea,
	header_keys     pg_catalog.bytea[] not null,
	header_values   pg_catalog.bytea[] not null,
	message_time    pg_catalog.timestamptz,
	position        pg_catalog.text not null,
	sequence        pg_catalog.int8 not null generated always as identity,
	primary key (subscriber_id, message_id),
	-- While a message is set aside its row in processed_messages must stay: without it, a late redelivery would run
	-- beside the next attempt from here. So whatever deletes old rows there has to spare these.
	constraint failed_messages_processed foreign key (subscriber_id, message_id)
		references ackafter.processed_messages (subscriber_id, message_id)
);

-- What is due, in the order in which it became so; nothing of what was set aside for good.
create index failed_messages_due on ackafter.failed_messages (subscriber_id, next_attempt_at)
	where next_attempt_at is not null;

-- Whether a message of a key stands before another one. A hash, since a key may be longer than an index takes.
create index failed_messages_order on ackafter.failed_messages (subscriber_id, pg_catalog.sha256(message_key), sequence)
	where message_key is not null;

-- For operators: the oldest first, of all, of one subscriber, or of one reason. The message id is there to go on from a
-- message among those of one time, and next_attempt_at to count what is set aside for good without reading messages.
create index failed_messages_age on ackafter.failed_messages (failed_at, subscriber_id, message_id);
create index failed_messages_subscriber on ackafter.failed_messages (subscriber_id, failed_at, message_id);
create index failed_messages_reason on ackafter.failed_messages (subscriber_id, reason, failed_at, message_id)
	include (next_attempt_at);

-- No foreign key here: a message that was let go is as done with as one that was processed, and its row in
-- processed_messages may expire like the others. After that it could be set aside and let go once more, hence the time
-- in the key.
create table ackafter.let_go_messages (
	subscriber_id   pg_catalog.text collate pg_catalog."C" not null,
	message_id      pg_catalog.text collate pg_catalog."C" not null,
	let_go_at       pg_catalog.timestamptz not null default pg_catalog.now(),
	let_go_reason   pg_catalog.text not null,
	reason          pg_catalog.text not null,
	error           pg_catalog.text not null,
	attempts        pg_catalog.int4 not null,
	failed_at       pg_catalog.timestamptz not null,
	last_failed_at  pg_catalog.timestamptz not null,
	message_type    pg_catalog.text  not null,
	topic           pg_catalog.text  not null,
	message_key     pg_catalog.bytea,
	body            pg_catalog.bytea,
	header_keys     pg_catalog.bytea[] not null,
	header_values   pg_catalog.bytea[] not null,
	message_time    pg_catalog.timestamptz,
	position        pg_catalog.text not null,
	primary key (subscriber_id, message_id, let_go_at)
);

comment on table ackafter.failed_messages is
	'Messages that were set aside, whole, each with its row in processed_messages. The next attempt runs the handler and deletes the row in one transaction.';
comment on column ackafter.failed_messages.reason is
	'failed, permanent, mismatch, unidentified, too_large, late, crash or behind.';
comment on column ackafter.failed_messages.error is
	'What the last attempt failed with.';
comment on column ackafter.failed_messages.attempts is
	'How many attempts have failed, those before the message was set aside included.';
comment on column ackafter.failed_messages.sequence is
	'The order in which messages of one key run that are behind a failed one.';
comment on column ackafter.failed_messages.unfinished is
	'How many attempts have begun since the last one that came to an end: they have ended their process.';
comment on column ackafter.failed_messages.next_attempt_at is
	'When a worker tries again. Null: only when somebody sets it.';
comment on column ackafter.failed_messages.body is
	'Byte for byte as delivered. Null: a tombstone of Kafka.';
comment on column ackafter.failed_messages.header_keys is
	'The names of the headers in their order, each with its value at the same place of header_values.';

comment on table ackafter.let_go_messages is
	'Messages that were set aside and then given up, as they were in failed_messages. No worker reads them: delete old ones as you like.';
comment on column ackafter.let_go_messages.let_go_reason is
	'Why, in the words of who let it go. The column reason says why it had been set aside.';

create table ackafter.begun_attempts (
	subscriber_id pg_catalog.text collate pg_catalog."C" not null,
	message_id    pg_catalog.text collate pg_catalog."C" not null,
	attempts      pg_catalog.int4 not null,
	runner        pg_catalog.text not null,
	begun_at      pg_catalog.timestamptz not null default pg_catalog.now(),
	primary key (subscriber_id, message_id)
);

comment on table ackafter.begun_attempts is
	'Messages that were delivered again, while their handler runs. What stays here has ended its process, or was in a handler when another message did. After the last allowed attempt it is set aside.';
comment on column ackafter.begun_attempts.attempts is
	'How many runs of the program have begun an attempt, and have not come to its end.';
comment on column ackafter.begun_attempts.runner is
	'The last of them.';

insert into ackafter.schema_version (version) values (2);

---- create above / drop below ----

-- +goose Down

-- Dropping failed_messages loses the messages that are set aside, and let_go_messages those that were given up.
drop table ackafter.begun_attempts;
drop table ackafter.let_go_messages;
drop table ackafter.failed_messages;
delete from ackafter.schema_version where version operator(pg_catalog.=) 2;
